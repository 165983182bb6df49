import { describe, expect, test } from "vitest";
import { cardBox, cellBox, type Layout, layOut, type Memory, sameShape } from "./layout";
import type { Graph } from "./model";
import { type Box, BoxIndex, GAP, pack } from "./pack";
import { gridFor, Slots } from "./slots";
import { center, many, network } from "./testgraph";

const apart = (a: Box, b: Box) => a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
const inside = (a: Box, b: Box) => a.x >= b.x && a.y >= b.y && a.x + a.w <= b.x + b.w && a.y + a.h <= b.y + b.h;
const moved = (a: Layout, b: Layout, graph: Graph, later: Graph) =>
  graph.centers.filter((c, i) => {
    const j = later.centers.findIndex((d) => d.id === c.id);
    return a.tiles[i]?.x !== b.tiles[j]?.x || a.tiles[i]?.y !== b.tiles[j]?.y;
  }).length;

describe("pack", () => {
  const boxes = Array.from({ length: 120 }, (_, i) => ({
    w: 16 + (i % 7) * 12,
    h: 16 + (i % 5) * 8,
    x: ((i * 71) % 97) * 4,
    y: ((i * 31) % 53) * 4,
  }));

  test.each([
    ["at wished places", boxes],
    ["without wishes", boxes.map(({ w, h }) => ({ w, h }))],
    ["very many", Array.from({ length: 900 }, (_, i) => boxes[i % boxes.length] as (typeof boxes)[0])],
  ])("%s nothing overlaps", (_, list) => {
    const placed = pack(list);
    const overlapping = placed.flatMap((a, i) => placed.slice(i + 1).filter((b) => !apart(a, b)));
    expect(overlapping).toEqual([]);
  });

  test("what comes later moves nothing", () => {
    expect(pack(boxes).slice(0, 80)).toEqual(pack(boxes.slice(0, 80)));
  });

  test("a free place that is wished for is given", () => {
    expect(pack([{ w: 16, h: 16, x: 100, y: 40 }])[0]).toEqual({ x: 92, y: 32, w: 16, h: 16 });
  });

  test("there is a gap between neighbors", () => {
    const [a, b] = pack([
      { w: 16, h: 16 },
      { w: 16, h: 16 },
    ]) as [Box, Box];
    expect(Math.max(Math.abs(a.x - b.x), Math.abs(a.y - b.y))).toBe(16 + GAP);
  });

  test("the index finds what meets an area, once each", () => {
    const placed = pack(boxes);
    const index = new BoxIndex(placed, 64);
    const found: number[] = [];
    index.meets(0, 0, 300, 200, (i) => {
      found.push(i);
      return undefined;
    });
    const expected = placed.flatMap((b, i) => (apart(b, { x: 0, y: 0, w: 300, h: 200 }) ? [] : [i]));
    expect(found.sort((x, y) => x - y)).toEqual(expected);
  });
});

describe("slots", () => {
  test("go by name at first", () => {
    expect([...new Slots().assign(["b", "a", "c"])]).toEqual([1, 0, 2]);
  });

  test("are kept when nodes leave, come back and join", () => {
    const slots = new Slots();
    const names = Array.from({ length: 90 }, (_, i) => `n${i}`);
    const first = slots.assign(names);
    const fewer = names.filter((_, i) => i % 3 !== 0);
    expect([...slots.assign(fewer)]).toEqual(fewer.map((n) => first[names.indexOf(n)]));
    expect([...slots.assign(names)]).toEqual([...first]);
    const more = slots.assign([...names, "new"]);
    expect([...more.slice(0, 90)]).toEqual([...first]);
    expect([...first]).not.toContain(more[90]);
  });

  test("are never shared, whatever comes and goes", () => {
    const slots = new Slots();
    for (let round = 0; round < 60; round++) {
      const names = Array.from({ length: 5 + ((round * 37) % 200) }, (_, i) => `n${(i * 7 + round * 13) % 400}`);
      const unique = [...new Set(names)];
      const cells = slots.assign(unique);
      expect(new Set(cells).size).toBe(unique.length);
      for (const cell of cells) expect(cell).toBeLessThan(slots.grid.columns * slots.grid.rows);
    }
  });

  test("a grid has room for its nodes and not much more", () => {
    for (let n = 1; n < 20_000; n = Math.ceil(n * 1.3)) {
      const { columns, rows } = gridFor(n);
      expect(columns * rows).toBeGreaterThanOrEqual(n);
      expect(columns * rows).toBeLessThanOrEqual(n * 1.3 + 8);
    }
  });
});

describe("layout", () => {
  test("the same graph has the same places", () => {
    expect(layOut(many(60, 20)).tiles).toEqual(layOut(many(60, 20)).tiles);
  });

  test("tiles lie apart in their group, nodes in their tile, cards in their node", () => {
    const graph = network([center("a", 1), center("b", 130), center("c", 7, 16), center("d", 0), center("e", 3, 1)]);
    const layout = layOut(graph);
    layout.tiles.forEach((tile, i) => {
      expect(inside(tile, layout.frames[1] as Box)).toBe(true);
      layout.tiles.slice(i + 1).forEach((other) => {
        expect(apart(tile, other)).toBe(true);
      });
      const nodes = graph.centers[i]?.nodes;
      nodes?.names.forEach((_, n) => {
        const cell = cellBox(tile, n);
        expect(inside(cell, tile)).toBe(true);
        const count = (nodes.cardStart[n + 1] ?? 0) - (nodes.cardStart[n] ?? 0);
        for (let k = 0; k < count; k++) expect(inside(cardBox(cell, count, k), cell)).toBe(true);
      });
    });
    expect(inside(layout.frames[1] as Box, layout.frames[0] as Box)).toBe(true);
  });

  test("the hub of a group that links end at lies apart from its tiles", () => {
    const layout = layOut(network([center("a", 4), center("b", 9)]));
    const hub = layout.frames[0]?.hub as Box;
    expect(hub).toBeDefined();
    for (const tile of layout.tiles) expect(apart(tile, hub)).toBe(true);
  });

  test("a center that joins moves no other within its group", () => {
    const before = many(40, 30);
    const later = network([...before.centers, center("late", 30, 8, { since: 99, longitude: 110, latitude: 30 })]);
    const a = layOut(before);
    const b = layOut(later);
    const [fa, fb] = [a.frames[1] as Box, b.frames[1] as Box];
    const shifts = new Set(
      before.centers.map((_, i) => {
        const [s, t] = [a.tiles[i] as Box, b.tiles[i] as Box];
        return `${t.x - fb.x - (s.x - fa.x)},${t.y - fb.y - (s.y - fa.y)}`;
      }),
    );
    // All by the same distance: the group may have grown at its edge.
    expect(shifts.size).toBe(1);
  });

  test("nodes that come and go move nothing", () => {
    const memory: Memory = new Map();
    const full = many(10, 50);
    const first = layOut(full, memory);
    const fewer = structuredClone(full);
    for (const c of fewer.centers) {
      c.nodes.names = c.nodes.names.filter((_, i) => i % 5 !== 0);
    }
    const second = layOut(fewer, memory);
    expect(moved(first, second, full, fewer)).toBe(0);
    const name = fewer.centers[3]?.nodes.names[17] as string;
    const old = full.centers[3]?.nodes.names.indexOf(name) as number;
    expect(cellBox(second.tiles[3] as never, 17)).toEqual(cellBox(first.tiles[3] as never, old));
    expect(layOut(full, memory).tiles).toEqual(first.tiles);
  });

  test("health is no matter of shape; nodes are", () => {
    const a = many(3, 4);
    const b = many(3, 4);
    b.centers[0]?.nodes.health.fill(4);
    expect(sameShape(a, b)).toBe(true);
    const c = many(3, 4);
    (c.centers[1] as (typeof c.centers)[0]).nodes.names[2] = "other";
    expect(sameShape(a, c)).toBe(false);
    expect(sameShape(a, { ...b, links: [] })).toBe(false);
  });

  test("an empty network has a layout", () => {
    expect(layOut(network([])).tiles).toEqual([]);
    expect(layOut({ ...network([]), groups: [] }).world).toEqual({ x: 0, y: 0, w: 0, h: 0 });
  });
});
