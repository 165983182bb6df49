// Reservations and maintenance as the console shows them.
import {
  Maintenance_Runs,
  Maintenance_State,
  type Occurrence,
  Occurrence_State,
  type Reservation,
  Reservation_State,
} from "../gen/yunhe/calendar/v1/calendar_pb";
import type { Tone } from "./states";

const RESERVATIONS = {
  [Reservation_State.UNSPECIFIED]: "unknown",
  [Reservation_State.PLANNED]: "planned",
  [Reservation_State.BEGINNING]: "beginning",
  [Reservation_State.ACTIVE]: "active",
  [Reservation_State.ENDED]: "ended",
  [Reservation_State.CANCELED]: "canceled",
} as const;
export const reservationStateName = (s: Reservation_State) => RESERVATIONS[s] ?? "unknown";

const TIMES = {
  [Occurrence_State.UNSPECIFIED]: "unknown",
  [Occurrence_State.PLANNED]: "planned",
  [Occurrence_State.BEGINNING]: "beginning",
  [Occurrence_State.ACTIVE]: "active",
  [Occurrence_State.ENDED]: "ended",
  [Occurrence_State.UNUSED]: "unused",
  [Occurrence_State.CANCELED]: "canceled",
  [Occurrence_State.MISSED]: "missed",
} as const;
export const timeStateName = (s: Occurrence_State) => TIMES[s] ?? "unknown";

const MAINTENANCE = {
  [Maintenance_State.UNSPECIFIED]: "unknown",
  [Maintenance_State.PLANNED]: "planned",
  [Maintenance_State.UNDER_WAY]: "underWay",
  [Maintenance_State.ENDED]: "ended",
  [Maintenance_State.CANCELED]: "canceled",
} as const;
export const maintenanceStateName = (s: Maintenance_State) => MAINTENANCE[s] ?? "unknown";

export const runsName = (r: Maintenance_Runs) => (r === Maintenance_Runs.REQUEUE ? "requeue" : "finish");

export function calendarTone(name: ReturnType<typeof timeStateName> | ReturnType<typeof maintenanceStateName>): Tone {
  switch (name) {
    case "active":
      return "good";
    case "planned":
    case "beginning":
      return "waiting";
    case "underWay":
      return "active";
    case "missed":
      return "bad";
    default:
      return "neutral";
  }
}

/** The time that is under way or next, else the last. */
export function presentTime(r: Reservation): Occurrence | undefined {
  return r.occurrences.find((o) => !o.endedAt) ?? r.occurrences.at(-1);
}

export const reservationOver = (r: Reservation) =>
  r.state === Reservation_State.ENDED || r.state === Reservation_State.CANCELED;
