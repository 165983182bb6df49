// Nodes of centers: their filter, and what they add up to.
import type { Accelerator, Center } from "../gen/yunhe/registry/v1/registry_pb";
import { NodeState } from "../gen/yunhe/registry/v1/registry_pb";
import type { Tone } from "./states";

/** The states a node can be in, the good one first. */
export const NODE_STATES = [NodeState.READY, NodeState.NOT_READY, NodeState.DRAINED] as const;

const NAMES = {
  [NodeState.READY]: "ready",
  [NodeState.NOT_READY]: "notReady",
  [NodeState.DRAINED]: "drained",
} as const;
export type NodeStateName = (typeof NAMES)[keyof typeof NAMES] | "unknown";

export function nodeStateName(state: NodeState): NodeStateName {
  return state === NodeState.UNSPECIFIED ? "unknown" : (NAMES[state] ?? "unknown");
}

/** The state of that name, UNSPECIFIED (any) if there is none. */
export function nodeStateOf(name: string): NodeState {
  return NODE_STATES.find((s) => NAMES[s] === name) ?? NodeState.UNSPECIFIED;
}

export function nodeTone(state: NodeState): Tone {
  switch (state) {
    case NodeState.READY:
      return "good";
    case NodeState.NOT_READY:
      return "bad";
    case NodeState.DRAINED:
      return "warn";
    default:
      return "neutral";
  }
}

/** Which nodes are shown. Empty fields do not filter. */
export interface NodeFilter {
  centerId: string;
  state: NodeState;
  model: string;
  labels: string[];
}

/** The platform takes this many label filters. */
export const MAX_LABELS = 8;

export function isFiltered(filter: NodeFilter): boolean {
  return filter.state !== NodeState.UNSPECIFIED || filter.model !== "" || filter.labels.length > 0;
}

export interface NodeTotals {
  ready: bigint;
  notReady: bigint;
  drained: bigint;
  total: bigint;
  /** Centers whose driver reports nodes. */
  centers: number;
  models: ModelTotal[];
}

/** Accelerators of one kind in the network. */
export interface ModelTotal {
  key: string;
  resource: string;
  vendor: string;
  model: string;
  count: bigint;
  centers: string[];
}

/** The nodes of the centers in numbers; accelerators by kind, most first. */
export function totalsOf(centers: readonly Center[]): NodeTotals {
  const totals: NodeTotals = { ready: 0n, notReady: 0n, drained: 0n, total: 0n, centers: 0, models: [] };
  const models = new Map<string, ModelTotal>();
  for (const center of centers) {
    const nodes = center.nodes;
    if (!nodes) continue;
    totals.centers++;
    totals.ready += nodes.ready;
    totals.notReady += nodes.notReady;
    totals.drained += nodes.drained;
    totals.total += nodes.total;
    for (const a of nodes.accelerators) {
      const key = JSON.stringify([a.resource, a.vendor, a.model]);
      const sum = models.get(key) ?? {
        key,
        resource: a.resource,
        vendor: a.vendor,
        model: a.model,
        count: 0n,
        centers: [],
      };
      sum.count += a.count;
      if (!sum.centers.includes(center.aiCenterId)) sum.centers.push(center.aiCenterId);
      models.set(key, sum);
    }
  }
  totals.models = [...models.values()].sort((a, b) =>
    a.count === b.count ? (a.key < b.key ? -1 : 1) : a.count > b.count ? -1 : 1,
  );
  return totals;
}

/** How many nodes of a center, or of all, are in a state, as the centers' summaries say. */
export function countOf(centers: readonly Center[], filter: NodeFilter): bigint | undefined {
  if (filter.model !== "" || filter.labels.length > 0) return undefined;
  const totals = totalsOf(centers.filter((c) => filter.centerId === "" || c.aiCenterId === filter.centerId));
  switch (filter.state) {
    case NodeState.READY:
      return totals.ready;
    case NodeState.NOT_READY:
      return totals.notReady;
    case NodeState.DRAINED:
      return totals.drained;
    default:
      return totals.total;
  }
}

/** "NVIDIA H800", its resource's name if neither vendor nor model is known. */
export function acceleratorName(a: Pick<Accelerator, "vendor" | "model" | "resource">): string {
  const name = a.model.toLowerCase().startsWith(a.vendor.toLowerCase()) ? a.model : `${a.vendor} ${a.model}`.trim();
  return name || a.resource.toUpperCase();
}

const ORDER = ["cpu", "memory", "gpu", "npu", "mlu", "dcu", "storage"];

/** Names of resources of a node, the common ones first. */
export function resourceNames(...amounts: Record<string, string>[]): string[] {
  const rank = (name: string) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
  return [...new Set(amounts.flatMap((a) => Object.keys(a)))].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
}
