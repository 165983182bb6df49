// Usage records: their sums, and the address of the same list as CSV.
import type { Usage } from "../gen/yunhe/metering/v1/metering_pb";

export interface UsageTotal {
  records: number;
  costMicros: bigint;
  durationMicroseconds: bigint;
  cpuMicroseconds: bigint;
}

export function totalOf(list: Usage[]): UsageTotal {
  const total: UsageTotal = { records: list.length, costMicros: 0n, durationMicroseconds: 0n, cpuMicroseconds: 0n };
  for (const u of list) {
    total.costMicros += u.costMicros;
    total.durationMicroseconds += u.durationMicroseconds;
    total.cpuMicroseconds += u.cpuMicroseconds;
  }
  return total;
}

/** Where the REST interface has the filtered records as CSV. */
export function csvPath(filter: {
  jobId: string;
  centerId: string;
  userName: string;
  after?: number;
  before?: number;
}): string {
  const query = new URLSearchParams();
  if (filter.jobId) query.set("job_id", filter.jobId);
  if (filter.centerId) query.set("ai_center_id", filter.centerId);
  if (filter.userName) query.set("user_name", filter.userName);
  if (filter.after !== undefined) query.set("ended_after", new Date(filter.after).toISOString());
  if (filter.before !== undefined) query.set("ended_before", new Date(filter.before).toISOString());
  const text = query.toString();
  return text ? `/v1/usage.csv?${text}` : "/v1/usage.csv";
}
