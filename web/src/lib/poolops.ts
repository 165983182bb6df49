// How the operation of the accelerator pool is told to people.
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { LogLevel, PoolAlarmRule_Kind, type PoolUse } from "../gen/yunhe/pool/v1/operation_pb";
import type { Tone } from "./states";

export const stampOf = (ms: number | undefined) => (ms === undefined ? undefined : timestampFromMs(ms));

export function levelName(level: LogLevel): "debug" | "info" | "warn" | "error" {
  switch (level) {
    case LogLevel.DEBUG:
      return "debug";
    case LogLevel.WARN:
      return "warn";
    case LogLevel.ERROR:
      return "error";
    default:
      return "info";
  }
}

export const TONES: Record<LogLevel, Tone> = {
  [LogLevel.UNSPECIFIED]: "neutral",
  [LogLevel.DEBUG]: "neutral",
  [LogLevel.INFO]: "active",
  [LogLevel.WARN]: "warn",
  [LogLevel.ERROR]: "bad",
};

const RULES = {
  [PoolAlarmRule_Kind.NODE_OFFLINE]: { name: "nodeOffline", unit: "seconds" },
  [PoolAlarmRule_Kind.DEVICE_GONE]: { name: "deviceGone", unit: "none" },
  [PoolAlarmRule_Kind.COMPUTE_FULL]: { name: "computeFull", unit: "percent" },
  [PoolAlarmRule_Kind.MEMORY_FULL]: { name: "memoryFull", unit: "percent" },
  [PoolAlarmRule_Kind.TASK_MEMORY_FULL]: { name: "taskMemoryFull", unit: "percent" },
  [PoolAlarmRule_Kind.QUEUE_LONG]: { name: "queueLong", unit: "slices" },
  [PoolAlarmRule_Kind.WAIT_LONG]: { name: "waitLong", unit: "seconds" },
  [PoolAlarmRule_Kind.REFUSED_OFTEN]: { name: "refusedOften", unit: "times" },
  [PoolAlarmRule_Kind.NOT_CONFIGURED]: { name: "notConfigured", unit: "seconds" },
  [PoolAlarmRule_Kind.UNSPECIFIED]: { name: "notConfigured", unit: "none" },
} as const;

export const ruleOf = (kind: PoolAlarmRule_Kind) => RULES[kind] ?? RULES[PoolAlarmRule_Kind.UNSPECIFIED];

/** Kinds of alarms that the pool's rules raise: the rule's kind and this. */
export const POOL_KINDS = 11;

export const severityOf = (n: number): "warning" | "major" | "critical" =>
  n >= 3 ? "critical" : n === 2 ? "major" : "warning";

/** The shares of use, in percent of what there was. */
export function shares(u: PoolUse): { lent: number; busy: number; memory: number; used: number } {
  const of = (part: number, all: bigint) => (all > 0n ? (part * 100) / Number(all) : 0);
  return {
    lent: of(Number(u.computeLent), u.computeThere),
    busy: of((Number(u.deviceMicros) / 1e6) * 100, u.computeThere),
    memory: of(Number(u.memoryLent), u.memoryThere),
    used: of(Number(u.memoryUsed), u.memoryThere),
  };
}
