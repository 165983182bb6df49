// The stretches of a replica's life, and round marks for a time axis.
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Replica } from "../gen/yunhe/jobs/v1/jobs_pb";
import { hasEnded } from "./states";

export type Phase = "queued" | "placed" | "running";

export interface Stretch {
  phase: Phase;
  from: number;
  to: number;
  /** It goes on. */
  open: boolean;
}

/** Queued until placed, placed until started, running until ended; only the stretches that happened. */
export function stretches(created: Timestamp | undefined, replica: Replica, now: number): Stretch[] {
  const begin = exact(created);
  if (begin === undefined) return [];
  const placed = exact(replica.placedAt);
  const started = exact(replica.startedAt);
  const ended = exact(replica.endedAt);
  const over = hasEnded(replica.state);
  const last = ended ?? (over ? (started ?? placed ?? begin) : now);
  const found: Stretch[] = [];
  const add = (phase: Phase, from: number, to: number, open: boolean) => {
    if (to > from || open) found.push({ phase, from, to: Math.max(from, to), open });
  };
  const queuedTo = placed ?? started ?? last;
  add("queued", begin, queuedTo, !over && placed === undefined && started === undefined);
  if (placed !== undefined) add("placed", placed, started ?? last, !over && started === undefined);
  // Even a run of no measurable length was a run.
  if (started !== undefined) found.push({ phase: "running", from: started, to: Math.max(started, last), open: !over });
  return found;
}

// Milliseconds since 1970 with their fraction: some runs take no whole millisecond.
function exact(t: Timestamp | undefined): number | undefined {
  return t && Number(t.seconds) * 1000 + t.nanos / 1_000_000;
}

const STEPS_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000,
  900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 21_600_000, 43_200_000, 86_400_000,
];

/** Round distances from the start, at most count + 1 of them, that cover a span. */
export function ticks(span: number, count: number): number[] {
  const step = STEPS_MS.find((s) => span / s <= count) ?? Math.ceil(span / count / 86_400_000) * 86_400_000;
  const marks: number[] = [];
  for (let at = 0; at <= span; at += step) marks.push(at);
  return marks;
}
