// Queues as a tree, and their amounts.
import type { Queue } from "../gen/yunhe/scheduler/v1/queues_pb";
import { amountsOf } from "./control";

export interface QueueNode {
  queue: Queue;
  below?: QueueNode[];
}

/** One whose parent is not in the list is a root; by ID. */
export function queueTree(queues: readonly Queue[]): QueueNode[] {
  const nodes = new Map(queues.map((queue): [string, QueueNode] => [queue.queueId, { queue }]));
  const roots: QueueNode[] = [];
  const list = [...nodes.values()].sort((a, b) => (a.queue.queueId < b.queue.queueId ? -1 : 1));
  for (const node of list) {
    const parent = nodes.get(node.queue.parentId);
    if (!parent || parent === node) roots.push(node);
    else {
      parent.below ??= [];
      parent.below.push(node);
    }
  }
  return roots;
}

/** One resource of a queue: what is used, and the lines it is held against. */
export interface QueueAmount {
  name: string;
  used: number;
  /** Undefined where nothing is said. */
  guaranteed: number | undefined;
  /** Guaranteed and borrowable together, as far as both are said. */
  reach: number | undefined;
  limit: number | undefined;
  /** What the bar ends at. */
  full: number;
}

/** Resources of a queue that are used or bounded, the common ones first. */
export function queueAmounts(q: Pick<Queue, "used" | "guaranteed" | "borrowable" | "limit">): QueueAmount[] {
  const values = (amounts: Record<string, string>) => new Map(amountsOf(amounts).map((a) => [a.name, a.value]));
  const [used, guaranteed, borrowable, limit] = [q.used, q.guaranteed, q.borrowable, q.limit].map(values);
  const names = amountsOf({ ...q.used, ...q.guaranteed, ...q.borrowable, ...q.limit }).map((a) => a.name);
  return names.map((name) => {
    const u = used?.get(name) ?? 0;
    const g = guaranteed?.get(name);
    const b = borrowable?.get(name);
    const l = limit?.get(name);
    const reach = b === undefined ? undefined : (g ?? 0) + b;
    return { name, used: u, guaranteed: g, reach, limit: l, full: Math.max(u, g ?? 0, reach ?? 0, l ?? 0) };
  });
}

/** Names of the queues below one, itself included: it cannot be put below those. */
export function within(queues: readonly Queue[], id: string): Set<string> {
  const out = new Set([id]);
  for (let grown = true; grown; ) {
    grown = false;
    for (const q of queues) {
      if (out.has(q.parentId) && !out.has(q.queueId)) {
        out.add(q.queueId);
        grown = true;
      }
    }
  }
  return out;
}
