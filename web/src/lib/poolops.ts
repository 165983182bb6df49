// How the operation of the accelerator pool is told to people.
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import {
  LogLevel,
  PoolUpgrade_Node_State as NodeState,
  PoolAlarmRule_Kind,
  type PoolNodeComponents,
  type PoolUse,
  PoolUpgrade_State as UpgradeState,
} from "../gen/yunhe/pool/v1/operation_pb";
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

/** What the states of an upgrade are called, and how they look. */
export const UPGRADES = {
  [UpgradeState.UNSPECIFIED]: { name: "running", tone: "neutral" },
  [UpgradeState.RUNNING]: { name: "running", tone: "active" },
  [UpgradeState.WAITING]: { name: "waiting", tone: "warn" },
  [UpgradeState.DONE]: { name: "done", tone: "good" },
  [UpgradeState.FAILED]: { name: "failed", tone: "bad" },
  [UpgradeState.ROLLING_BACK]: { name: "rollingBack", tone: "warn" },
  [UpgradeState.ROLLED_BACK]: { name: "rolledBack", tone: "neutral" },
  [UpgradeState.STOPPED]: { name: "stopped", tone: "neutral" },
} as const;

/** The same of its nodes. */
export const NODE_STEPS = {
  [NodeState.UNSPECIFIED]: { name: "asItWas", tone: "neutral" },
  [NodeState.WAITING]: { name: "asItWas", tone: "neutral" },
  [NodeState.UPGRADING]: { name: "running", tone: "active" },
  [NodeState.DONE]: { name: "done", tone: "good" },
  [NodeState.FAILED]: { name: "failed", tone: "bad" },
  [NodeState.ROLLING_BACK]: { name: "rollingBack", tone: "warn" },
  [NodeState.ROLLED_BACK]: { name: "rolledBack", tone: "neutral" },
} as const;

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
  [PoolAlarmRule_Kind.DEVICE_HOT]: { name: "deviceHot", unit: "celsius" },
  [PoolAlarmRule_Kind.POWER_HIGH]: { name: "powerHigh", unit: "watts" },
  [PoolAlarmRule_Kind.UNSPECIFIED]: { name: "notConfigured", unit: "none" },
} as const;

export const ruleOf = (kind: PoolAlarmRule_Kind) => RULES[kind] ?? RULES[PoolAlarmRule_Kind.UNSPECIFIED];

/** Kinds of alarms that the pool's rules raise: the rule's kind and this. */
export const POOL_KINDS = 11;

export const severityOf = (n: number): "warning" | "major" | "critical" =>
  n >= 3 ? "critical" : n === 2 ? "major" : "warning";

/** Energy in watt hours. */
export const wattHours = (millijoules: bigint) => `${(Number(millijoules) / 3.6e6).toFixed(3)} Wh`;

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

/** How nodes are configured; undefined: not alike. */
export interface ConfigValues {
  logLevel?: LogLevel | undefined;
  idleLimitSeconds?: number | null | undefined;
  runLimitSeconds?: number | null | undefined;
}

/** How nodes are configured, as far as that is alike. */
export function configInCommon(nodes: PoolNodeComponents[]): ConfigValues {
  function same<T>(of: (n: PoolNodeComponents) => T): T | undefined {
    const [first, ...rest] = nodes.map(of);
    return rest.every((x) => x === first) ? first : undefined;
  }
  return {
    logLevel: same((n) => n.config?.logLevel || LogLevel.INFO),
    idleLimitSeconds: same((n) => Number(n.config?.idleLimitSeconds ?? 0n)),
    runLimitSeconds: same((n) => Number(n.config?.runLimitSeconds ?? 0n)),
  };
}

/** What was edited, undefined: nothing. A limit that is empty is none, or, if it was not alike, not edited. */
export function configChange(was: ConfigValues, now: ConfigValues) {
  const change: { logLevel?: LogLevel; idleLimitSeconds?: bigint; runLimitSeconds?: bigint } = {};
  if (now.logLevel !== undefined && now.logLevel !== was.logLevel) change.logLevel = now.logLevel;
  for (const field of ["idleLimitSeconds", "runLimitSeconds"] as const) {
    const seconds = now[field] ?? (was[field] === undefined ? undefined : 0);
    if (seconds !== undefined && seconds !== was[field]) change[field] = BigInt(seconds);
  }
  return Object.keys(change).length > 0 ? change : undefined;
}
