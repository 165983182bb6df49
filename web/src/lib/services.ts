// The service form's values, and their way to and from the contract.
import { create } from "@bufbuild/protobuf";
import { type Service, ServiceOriginSchema, ServiceSchema } from "../gen/yunhe/routing/v1/routing_pb";
import type { FieldPath } from "./errors";

/** A field that was emptied is null. */
type Maybe = number | null | undefined;

export interface ServiceValues {
  name: string;
  jobIds: string[];
  /** Degrees. */
  origins: { originId: string; name?: string; longitude?: Maybe; latitude?: Maybe }[];
  replicaRate: number;
  maxLatencyMs?: Maybe;
  maxUsePercent?: Maybe;
  movePercent?: Maybe;
  endpoints: { name: string; value: string }[];
}

const MICRO = 1_000_000;

export function fromService(s: Service | undefined): ServiceValues {
  if (!s)
    return {
      name: "",
      jobIds: [],
      origins: [{ originId: "", name: "" }],
      replicaRate: 100,
      maxUsePercent: 85,
      movePercent: 20,
      endpoints: [],
    };
  const degrees = (v: bigint | undefined) => (v === undefined ? undefined : Number(v) / MICRO);
  return {
    name: s.name,
    jobIds: [...s.jobIds],
    origins: s.origins.map((o) => ({
      originId: o.originId,
      name: o.name,
      longitude: degrees(o.longitude),
      latitude: degrees(o.latitude),
    })),
    replicaRate: s.replicaRate,
    maxLatencyMs: s.maxLatencyMicroseconds > 0n ? Number(s.maxLatencyMicroseconds) / 1000 : undefined,
    maxUsePercent: s.maxUsePercent,
    movePercent: s.movePercent,
    endpoints: Object.entries(s.endpoints)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value]) => ({ name, value })),
  };
}

export function toService(v: ServiceValues, serviceId: string): Service {
  const micros = (x: Maybe) => (x === null || x === undefined ? undefined : BigInt(Math.round(x * MICRO)));
  return create(ServiceSchema, {
    serviceId,
    name: v.name.trim(),
    jobIds: v.jobIds,
    origins: v.origins.map((o) =>
      create(ServiceOriginSchema, {
        originId: o.originId.trim(),
        name: o.name ?? "",
        longitude: micros(o.longitude),
        latitude: micros(o.latitude),
      }),
    ),
    replicaRate: v.replicaRate,
    maxLatencyMicroseconds: BigInt(Math.round((v.maxLatencyMs ?? 0) * 1000)),
    maxUsePercent: v.maxUsePercent ?? 0,
    movePercent: v.movePercent ?? 0,
    endpoints: Object.fromEntries(v.endpoints.filter((e) => e?.name).map((e) => [e.name, e.value ?? ""])),
  });
}

/** The form field that shows a violation at this path. */
export function serviceField(path: FieldPath): FieldPath {
  if (path[0] === "maxLatencyMicroseconds") return ["maxLatencyMs"];
  if (path[0] === "jobIds") return ["jobIds"];
  return path;
}
