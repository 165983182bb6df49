// Allocations and operations as the console shows them.
import { AllocationState, OperationKind, OperationState } from "../gen/yunhe/control/v1/control_pb";
import { formatBytes, formatCount, parseQuantity } from "./format";
import type { Tone } from "./states";

const STATES = {
  [AllocationState.UNSPECIFIED]: "unknown",
  [AllocationState.SCHEDULED]: "scheduled",
  [AllocationState.WAITING]: "waiting",
  [AllocationState.GRANTED]: "granted",
  [AllocationState.REFUSED]: "refused",
  [AllocationState.RELEASING]: "releasing",
  [AllocationState.RELEASED]: "released",
  [AllocationState.EXPIRED]: "expired",
} as const;
export const allocationStateName = (s: AllocationState) => STATES[s] ?? "unknown";

/** Those an allocation can be in, in the order of its life. */
export const ALLOCATION_STATES = [
  AllocationState.SCHEDULED,
  AllocationState.WAITING,
  AllocationState.GRANTED,
  AllocationState.RELEASING,
  AllocationState.RELEASED,
  AllocationState.EXPIRED,
  AllocationState.REFUSED,
] as const;

export function allocationTone(s: AllocationState): Tone {
  switch (s) {
    case AllocationState.GRANTED:
      return "good";
    case AllocationState.SCHEDULED:
    case AllocationState.WAITING:
      return "waiting";
    case AllocationState.RELEASING:
      return "active";
    case AllocationState.REFUSED:
      return "bad";
    default:
      return "neutral";
  }
}

/** It is over: nothing more will happen to it. */
export function isOver(s: AllocationState): boolean {
  return s === AllocationState.REFUSED || s === AllocationState.RELEASED || s === AllocationState.EXPIRED;
}

const OPERATION_STATES = {
  [OperationState.UNSPECIFIED]: "unknown",
  [OperationState.RUNNING]: "running",
  [OperationState.SUCCEEDED]: "succeeded",
  [OperationState.FAILED]: "failed",
  [OperationState.PARTLY]: "partly",
} as const;
export const operationStateName = (s: OperationState) => OPERATION_STATES[s] ?? "unknown";

export function operationTone(s: OperationState): Tone {
  switch (s) {
    case OperationState.SUCCEEDED:
      return "good";
    case OperationState.FAILED:
      return "bad";
    case OperationState.PARTLY:
      return "warn";
    default:
      return "active";
  }
}

const KINDS = {
  [OperationKind.UNSPECIFIED]: "other",
  [OperationKind.APPLY]: "apply",
  [OperationKind.ADJUST]: "adjust",
  [OperationKind.RELEASE]: "release",
  [OperationKind.ISOLATE]: "isolate",
  [OperationKind.RESTORE]: "restore",
  [OperationKind.RECLAIM]: "reclaim",
  [OperationKind.JOIN]: "join",
} as const;
export const operationKindName = (k: OperationKind) => KINDS[k] ?? "other";
export const OPERATION_KINDS = [
  OperationKind.APPLY,
  OperationKind.ADJUST,
  OperationKind.RELEASE,
  OperationKind.ISOLATE,
  OperationKind.RESTORE,
  OperationKind.RECLAIM,
  OperationKind.JOIN,
] as const;

const BYTES = new Set(["memory", "storage", "ephemeral-storage"]);
const ORDER = ["cpu", "memory", "gpu", "npu", "mlu", "dcu", "storage"];

export interface Amount {
  name: string;
  text: string;
  /** In the units of the resource, undefined if it cannot be read. */
  value: number | undefined;
}

/** Amounts as people read them, the common ones first. */
export function amountsOf(amounts: Record<string, string>): Amount[] {
  const rank = (name: string) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
  return Object.entries(amounts)
    .sort(([a], [b]) => rank(a) - rank(b) || (a < b ? -1 : 1))
    .map(([name, given]) => {
      const value = parseQuantity(given);
      return { name, value, text: value === undefined ? given : quantity(name, value) };
    });
}

export function quantity(name: string, value: number): string {
  if (BYTES.has(name)) return formatBytes(value);
  return Number.isInteger(value) ? formatCount(value) : `${Number(value.toFixed(3))}`;
}

/** "cpu=4" texts as amounts; undefined if one is none. */
export function typedAmounts(texts: readonly string[]): Record<string, string> | undefined {
  const out: Record<string, string> = {};
  for (const text of texts) {
    const match = /^\s*([A-Za-z0-9][A-Za-z0-9._/-]*)\s*=\s*(\S+)\s*$/.exec(text);
    if (!match?.[1] || !match[2] || parseQuantity(match[2]) === undefined) return undefined;
    out[match[1]] = match[2];
  }
  return out;
}
