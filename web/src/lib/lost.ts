// Which runs of a job an operator may write off: those at centers that are
// gone. The platform decides; this only decides whether the console offers it,
// by the same rule.
import type { Gateway } from "../gen/yunhe/adapters/v1/adapters_pb";
import type { Job, Replica } from "../gen/yunhe/jobs/v1/jobs_pb";
import { State } from "../gen/yunhe/jobs/v1/jobs_pb";
import { type Center, CenterStatus } from "../gen/yunhe/registry/v1/registry_pb";
import { millis } from "./format";
import { GATEWAY } from "./plugins";
import { hasEnded } from "./states";

/** A center not heard of for longer is gone. */
export const SEEN_WITHIN_MS = 10_000;

/** Whether a center went away; a drained one is unavailable too, and works off what it has. */
export function isGone(center: Center, gateways: readonly Gateway[] | undefined, now: number): boolean {
  if (center.status === CenterStatus.AVAILABLE) return false;
  if (center.status === CenterStatus.UNKNOWN || !center.drained) return true;
  if (now - (millis(center.lastSeenAt) ?? 0) > SEEN_WITHIN_MS) return true;
  return (
    center.adapter === GATEWAY && gateways !== undefined && !gateways.some((g) => g.aiCenterId === center.aiCenterId)
  );
}

/** Whether a run was placed at a center and has not ended. */
export function isOpen(replica: Replica): boolean {
  return (
    replica.aiCenterId !== "" &&
    replica.attempt > 0 &&
    replica.state !== State.QUEUED &&
    replica.state !== State.SCHEDULING &&
    !hasEnded(replica.state)
  );
}

/** Open runs at a center that is gone. */
export interface Lost {
  center: Center;
  runs: number;
}

/** What of a job can be written off now, by center. */
export function lostRuns(
  job: Job,
  centers: readonly Center[],
  gateways: readonly Gateway[] | undefined,
  now: number,
): Lost[] {
  const open = new Map<string, number>();
  for (const r of job.replicas) if (isOpen(r)) open.set(r.aiCenterId, (open.get(r.aiCenterId) ?? 0) + 1);
  return centers
    .filter((c) => open.has(c.aiCenterId) && isGone(c, gateways, now))
    .map((center) => ({ center, runs: open.get(center.aiCenterId) ?? 0 }));
}
