import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import {
  ChangeKind,
  Level,
  NetworkViewSchema,
  TopologyChangeSchema,
  type VertexRecordSchema,
  ViewValuesSchema,
} from "../../gen/yunhe/topology/v1/topology_pb";
import { formatBits, formatFigure, formatSeconds } from "./figures";
import { layOut, type Memory } from "./layout";
import { cardOf, countAll, type Graph, Health, targetOf, vertexId } from "./model";
import { applyChanges, markChanges, Replay, stepTo, withPlaces } from "./replay";
import { Mark } from "./scene";
import { center, network } from "./testgraph";
import { fromValues, fromView } from "./view";

type Record = MessageInitShape<typeof VertexRecordSchema>;

const node = (center: string, name: string, more: Record = {}): Record => ({
  parentId: `center:${center}`,
  aiCenterId: center,
  name,
  level: Level.NODE,
  health: Health.healthy,
  state: 1,
  equipment: [{ resource: "gpu", vendor: "NVIDIA", model: "H800", count: 8n }],
  ...more,
});

function change(at: number, nodeId: string, before: Record | undefined, after: Record | undefined) {
  return create(TopologyChangeSchema, {
    sequence: BigInt(at),
    at: timestampFromMs(at),
    nodeId,
    kind: before ? (after ? ChangeKind.CHANGED : ChangeKind.REMOVED) : ChangeKind.ADDED,
    before,
    after,
  });
}

describe("changes", () => {
  const graph = network([center("a", 3), center("b", 2)]);

  test("a node fails, joins and leaves", () => {
    const after = applyChanges(graph, [
      change(2_000, "node:a:n00001", node("a", "n00001"), node("a", "n00001", { health: Health.down, state: 2 })),
      change(3_000, "node:a:n0000x", undefined, node("a", "n0000x")),
      change(4_000, "node:b:n00000", node("b", "n00000"), undefined),
    ]);
    const [a, b] = after.centers as [Graph["centers"][0], Graph["centers"][0]];
    expect(a.nodes.names).toEqual(["n00000", "n00001", "n00002", "n0000x"]);
    expect([...a.nodes.health]).toEqual([1, 4, 1, 1]);
    expect([...a.nodes.cardHealth.slice(8, 16)]).toEqual(new Array(8).fill(4));
    expect(b.nodes.names).toEqual(["n00001"]);
    expect(after.at).toBe(4_000);
    expect(vertexId({ level: "card", index: 0, node: 3, card: 7 }, after)).toBe("card:a/n0000x/gpu/7");
    // What it was made of is as it was.
    expect(graph.centers[0]?.nodes.names).toHaveLength(3);
    expect([...(graph.centers[0]?.nodes.health ?? [])]).toEqual([1, 1, 1]);
  });

  test("centers that did not change are the same objects", () => {
    const after = applyChanges(graph, [change(2_000, "node:a:n00001", node("a", "n00001"), undefined)]);
    expect(after.centers[1]).toBe(graph.centers[1]);
  });

  test("centers, groups, resources and links come and go", () => {
    const region: Record = { parentId: "network", name: "south", level: Level.REGION };
    const late: Record = { parentId: "region:south", name: "Late", aiCenterId: "c", level: Level.CENTER, health: 1 };
    const switches: Record = { parentId: "center:a", name: "Switch", level: Level.RESOURCE, health: 1 };
    const link = create(TopologyChangeSchema, {
      at: timestampFromMs(5_000),
      linkId: "l1",
      linkAfter: { linkId: "l1", fromId: "center:a", toId: "center:c", latencyUs: 1500n },
    });
    const after = applyChanges(graph, [
      change(2_000, "region:south", undefined, region),
      change(2_000, "center:c", undefined, late),
      change(2_000, "node:c:x", undefined, node("c", "x")),
      change(3_000, "res-1", undefined, switches),
      link,
    ]);
    expect(after.groups.map((g) => g.id)).toContain("region:south");
    expect(targetOf("node:c:x", after)).toMatchObject({ level: "node", node: 0 });
    expect(targetOf("res-1", after)).toMatchObject({ level: "node", node: 0 });
    expect(after.links.find((l) => l.id === "l1")?.latency).toBeCloseTo(0.0015);
    const gone = applyChanges(after, [
      change(6_000, "node:c:x", node("c", "x"), undefined),
      change(6_000, "center:c", late, undefined),
      change(6_000, "res-1", switches, undefined),
      create(TopologyChangeSchema, { at: timestampFromMs(6_000), linkId: "l1" }),
    ]);
    expect(gone.centers.map((c) => c.id)).toEqual(["center:a", "center:b"]);
    expect(gone.links.find((l) => l.id === "l1")).toBeUndefined();
  });

  test("no change changes nothing", () => {
    expect(applyChanges(graph, [])).toBe(graph);
  });
});

describe("difference", () => {
  test("what is gone is put back as an outline, the rest is marked", () => {
    const graph = network([center("a", 3)]);
    const { graph: merged, marks } = markChanges(graph, [
      change(2_000, "node:a:n00000", undefined, node("a", "n00000")),
      change(2_000, "node:a:n00002", node("a", "n00002", { state: 2 }), node("a", "n00002")),
      change(2_000, "node:a:old", node("a", "old"), undefined),
      change(2_000, "node:z:n1", node("z", "n1"), undefined),
      change(2_000, "center:z", { name: "z", aiCenterId: "z", parentId: "region:r", level: Level.CENTER }, undefined),
    ]);
    expect(merged.centers.map((c) => c.id)).toEqual(["center:a", "center:z"]);
    expect(merged.centers[0]?.nodes.names).toEqual(["n00000", "n00001", "n00002", "old"]);
    expect([...(marks.nodes[0] ?? [])]).toEqual([Mark.added, Mark.none, Mark.changed, Mark.removed]);
    expect(marks.centers[1]).toBe(Mark.removed);
    expect([...(marks.nodes[1] ?? [])]).toEqual([Mark.removed]);
    expect(merged.at).toBe(graph.at);
  });
});

describe("replay", () => {
  const graph = network([center("a", 4)]);
  const fail = (at: number, i: number, health: number) =>
    change(at, `node:a:n0000${i}`, node("a", `n0000${i}`), node("a", `n0000${i}`, { health }));
  const health = (r: Replay) => [...(r.graph.centers[0]?.nodes.health ?? [])];

  test("shows each change at its time, and none before", () => {
    const r = new Replay(graph, 0);
    r.add([fail(1_000, 0, 4), fail(2_000, 1, 5), fail(2_000, 0, 1)]);
    r.complete = true;
    r.advance(999, 9_000);
    expect(health(r)).toEqual([1, 1, 1, 1]);
    r.advance(1_000, 9_000);
    expect(health(r)).toEqual([4, 1, 1, 1]);
    r.advance(9_000, 9_000);
    expect(health(r)).toEqual([1, 5, 1, 1]);
    expect(r.at).toBe(9_000);
  });

  test("waits for what is not read yet", () => {
    const r = new Replay(graph, 0);
    r.advance(5_000, 9_000);
    expect(r.at).toBe(0);
    r.add([fail(1_000, 0, 4), fail(3_000, 1, 4)]);
    r.advance(5_000, 9_000);
    // More of 3,000 may come.
    expect(r.at).toBe(2_999);
    expect(health(r)).toEqual([4, 1, 1, 1]);
    r.complete = true;
    r.advance(5_000, 9_000);
    expect(r.at).toBe(5_000);
    expect(health(r)).toEqual([4, 4, 1, 1]);
  });

  test("in steps it ends as at once", () => {
    const changes = Array.from({ length: 300 }, (_, i) => fail(i * 10, (i * 7) % 4, 1 + ((i * 5) % 6)));
    const once = applyChanges(graph, changes);
    const r = new Replay(graph, 0);
    r.add(changes);
    r.complete = true;
    for (let at = 0; at < 4_000; at += 37) r.advance(at, 4_000);
    expect(health(r)).toEqual([...(once.centers[0]?.nodes.health ?? [])]);
  });

  test("quiet times are passed over, the rest is not", () => {
    expect(stepTo(0, 10, 20, 1_000)).toBe(10);
    expect(stepTo(0, 10, 500, 1_000)).toBeCloseTo(492.5);
    expect(stepTo(0, 10, undefined, 1_000)).toBe(10);
  });
});

describe("places", () => {
  test("what is not there yet keeps its place free", () => {
    const present = network([center("a", 30), center("b", 9, 8, { since: 5 }), center("c", 4)]);
    const memory: Memory = new Map();
    const now = layOut(present, memory);
    const then = withPlaces({ ...present, centers: present.centers.slice(2), links: [] }, present);
    const layout = layOut(then, memory);
    for (const c of present.centers) {
      const [a, b] = [
        now.tiles[present.centers.indexOf(c)],
        layout.tiles[then.centers.findIndex((d) => d.id === c.id)],
      ];
      expect([b?.x, b?.y, b?.w, b?.h]).toEqual([a?.x, a?.y, a?.w, a?.h]);
    }
    expect(countAll(then)).toMatchObject({ centers: 1, cards: 32 });
    expect(withPlaces(present, present)).toBe(present);
  });
});

describe("view", () => {
  const view = create(NetworkViewSchema, {
    sequence: 7n,
    revision: "r",
    at: timestampFromMs(9_000),
    vertices: [
      { nodeId: "network", name: "network", level: Level.NETWORK },
      { nodeId: "region:r", parentId: "network", name: "r", level: Level.REGION },
      { nodeId: "sw", parentId: "node:a:n1", name: "Switch", level: Level.RESOURCE, health: 1 },
      { nodeId: "port", parentId: "sw", name: "Port", level: Level.RESOURCE, health: 4 },
    ],
    centers: [
      {
        center: {
          nodeId: "center:a",
          parentId: "region:r",
          name: "A",
          level: Level.CENTER,
          health: 3,
          aiCenterId: "a",
        },
        names: ["n1", "n2", "n3"],
        health: new Uint8Array([1, 4, 2]),
        states: new Uint8Array([1, 2, 1]),
        layouts: [1, 0, 2],
        layoutTable: [
          { cards: [] },
          { cards: [{ resource: "gpu", model: "H800", count: 2n }] },
          {
            cards: [
              { resource: "gpu", model: "A", count: 1n },
              { resource: "npu", model: "B", count: 2n },
            ],
          },
        ],
      },
    ],
    links: [{ linkId: "l", fromId: "port", toId: "network", latencyUs: 2000n }],
  });
  const graph = fromView(view);

  test("nodes have their cards, each named by its resource and number", () => {
    const nodes = graph.centers[0]?.nodes as Graph["centers"][0]["nodes"];
    expect([...nodes.cardStart]).toEqual([0, 2, 2, 5]);
    expect([...nodes.cardHealth]).toEqual([1, 1, 2, 2, 2]);
    expect([0, 1, 2].map((i) => cardOf(nodes, 2, i))).toMatchObject([
      { resource: "gpu", index: 0 },
      { resource: "npu", index: 0 },
      { resource: "npu", index: 1 },
    ]);
    expect(cardOf(nodes, 2, 3)).toBeUndefined();
    expect(countAll(graph)).toMatchObject({ centers: 1, cards: 5 });
  });

  test("resources stand in a tile of the center they are below, links end there", () => {
    const tile = graph.centers[1] as Graph["centers"][0];
    expect(tile).toMatchObject({ id: "center:a#resources", centerId: "", group: "region:r", health: 4 });
    expect(tile.nodes.ids).toEqual(["port", "sw"]);
    expect(graph.links[0]).toMatchObject({ from: "center:a", to: "network", latency: 0.002, measured: false });
  });

  test("values fit the structure they are of, and no other", () => {
    const values = create(ViewValuesSchema, {
      sequence: 7n,
      binding: { low: 0, high: 2 },
      centers: [{ aiCenterId: "a", value: 0.5, nodes: [1, Number.NaN, 0], cards: [] }],
    });
    const found = fromValues(values, graph);
    expect(found?.centers[0]?.value).toBe(0.5);
    expect(found?.centers[1]?.value).toBeNaN();
    expect(fromValues(values, { ...graph, sequence: 8 })).toBeUndefined();
  });
});

describe("figures", () => {
  test("have their unit", () => {
    expect(formatFigure(0.634, "ratio")).toBe("63%");
    expect(formatFigure(0.0123, "seconds")).toBe("12.3 ms");
    expect(formatFigure(Number.NaN, "ratio")).toBe("–");
    expect(formatSeconds(0.00002)).toBe("20 µs");
    expect(formatBits(2.5e10)).toBe("25 Gb/s");
    expect(formatFigure(12, "req/s")).toBe("12 req/s");
  });
});
