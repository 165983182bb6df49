// Job and replica states: order, groups and how they look.
import { State } from "../gen/yunhe/jobs/v1/jobs_pb";

/** Every state in the order of a job's life. */
export const STATES = [
  State.QUEUED,
  State.SCHEDULING,
  State.DISPATCHING,
  State.PENDING,
  State.RUNNING,
  State.PAUSED,
  State.MIGRATING,
  State.STOPPING,
  State.SUCCEEDED,
  State.FAILED,
  State.STOPPED,
] as const;

export type StateName =
  | "unspecified"
  | "queued"
  | "scheduling"
  | "dispatching"
  | "pending"
  | "running"
  | "paused"
  | "migrating"
  | "stopping"
  | "stopped"
  | "succeeded"
  | "failed";

/** The state's name on the wire: "running". */
export function stateName(state: State): StateName {
  return (State[state] ?? "UNSPECIFIED").toLowerCase() as StateName;
}

/** The state of that name, undefined if there is none. */
export function stateOf(name: string): State | undefined {
  return STATES.find((s) => stateName(s) === name);
}

/** Whether nothing more will happen. */
export function hasEnded(state: State): boolean {
  return state === State.STOPPED || state === State.SUCCEEDED || state === State.FAILED;
}

/** Whether a center holds resources for it. */
export function isActive(state: State): boolean {
  return state === State.RUNNING || state === State.PAUSED || state === State.MIGRATING || state === State.STOPPING;
}

/** The family of colors a state is drawn in. */
export type Tone = "neutral" | "waiting" | "active" | "good" | "bad" | "warn";

export function stateTone(state: State): Tone {
  switch (state) {
    case State.QUEUED:
    case State.SCHEDULING:
    case State.DISPATCHING:
    case State.PENDING:
      return "waiting";
    case State.RUNNING:
    case State.MIGRATING:
      return "active";
    case State.PAUSED:
    case State.STOPPING:
      return "warn";
    case State.SUCCEEDED:
      return "good";
    case State.FAILED:
      return "bad";
    default:
      return "neutral";
  }
}
