import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { QueueSchema } from "../gen/yunhe/scheduler/v1/queues_pb";
import { type QueueNode, queueAmounts, queueTree, within } from "./queues";

const queue = (queueId: string, parentId = "", rest = {}) => create(QueueSchema, { queueId, parentId, ...rest });
const shape = (nodes: QueueNode[]): string =>
  nodes.map((n) => n.queue.queueId + (n.below ? `(${shape(n.below)})` : "")).join(" ");

test("queues stand below their groups", () => {
  const list = [
    queue("b", "top"),
    queue("top"),
    queue("a", "top"),
    queue("lost", "gone"),
    queue("c", "a"),
    queue("self", "self"),
  ];
  expect(shape(queueTree(list))).toBe("lost self top(a(c) b)");
  expect([...within(list, "top")].sort()).toEqual(["a", "b", "c", "top"]);
});

test("amounts are held against what is said of them", () => {
  const [cpu, memory, gpu] = queueAmounts({
    used: { cpu: "6", gpu: "2" },
    guaranteed: { cpu: "4" },
    borrowable: { cpu: "4" },
    limit: { memory: "8Gi" },
  });
  expect(cpu).toEqual({ name: "cpu", used: 6, guaranteed: 4, reach: 8, limit: undefined, full: 8 });
  expect(memory).toMatchObject({ name: "memory", used: 0, limit: 8 * 1024 ** 3, full: 8 * 1024 ** 3 });
  expect(gpu).toMatchObject({ used: 2, guaranteed: undefined, reach: undefined, full: 2 });
});
