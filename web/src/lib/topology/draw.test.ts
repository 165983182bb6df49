import { describe, expect, test } from "vitest";
import {
  boxOf,
  type Camera,
  fitTo,
  flight,
  focusOf,
  hold,
  limitsOf,
  pathTo,
  pick,
  toScreen,
  toWorld,
  zoomAt,
} from "./camera";
import { draw } from "./draw";
import { inView, LISTED, search } from "./inview";
import { type Layout, layOut } from "./layout";
import { type Graph, Health, nameOf, type Target, targetOf, vertexId } from "./model";
import { channels, DARK, LIGHT, type Palette, STEPS, stepOf } from "./palette";
import { type Pen, type Stats, Text } from "./pen";
import { Scene } from "./scene";
import { center, many, network } from "./testgraph";

const size = { width: 1200, height: 760 };
const words = { nodes: String, resources: "", network: "", latency: String, value: String };

// A pen that counts what it is asked to do.
function counting(): { pen: Pen; calls: () => number; fills: () => number } {
  let calls = 0;
  let fills = 0;
  const pen = new Proxy({} as Record<string, unknown>, {
    get: (target, name: string) =>
      name in target
        ? target[name]
        : (...args: unknown[]) => {
            calls++;
            if (name === "fillRect" || name === "fill") fills++;
            if (name === "measureText") return { width: String(args[0]).length * 50 };
            return undefined;
          },
    set: (target, name: string, value) => {
      target[name] = value;
      return true;
    },
  });
  return { pen: pen as unknown as Pen, calls: () => calls, fills: () => fills };
}

function frame(graph: Graph, layout: Layout, camera: Camera): { stats: Stats; calls: number; fills: number } {
  const scene = new Scene(graph, layout, LIGHT, words);
  const { pen, calls, fills } = counting();
  const stats = draw(pen, scene, camera, size, new Text("sans-serif"));
  return { stats, calls: calls(), fills: fills() };
}

const into = (target: Target, graph: Graph, layout: Layout) => {
  const box = boxOf(target, graph, layout);
  if (!box) throw new Error("not there");
  return fitTo(box, size);
};

describe("draw", () => {
  test("10,000 nodes are all drawn when all are in view", () => {
    const graph = many(100, 100);
    const layout = layOut(graph);
    const { stats, fills } = frame(graph, layout, fitTo(layout.world, size));
    expect(stats.tiles).toBe(100);
    expect(stats.cells).toBe(10_000);
    expect(fills).toBeGreaterThan(10_000);
    expect(stats.cards).toBe(0);
    expect(stats.links).toBe(100);
  });

  test("10,000 nodes of one center, too", () => {
    const graph = network([center("a", 10_000)]);
    const layout = layOut(graph);
    expect(frame(graph, layout, fitTo(layout.world, size)).stats.cells).toBe(10_000);
  });

  test.each([
    ["a center", { level: "center", index: 7 } as Target],
    ["a node", { level: "node", index: 7, node: 31 } as Target],
    ["a card", { level: "card", index: 7, node: 31, card: 5 } as Target],
  ])("what is not in view costs nothing: the view of %s in 2,000, 10,000 and 40,000 nodes", (_, target) => {
    const costs = [20, 100, 400].map((n) => {
      const graph = many(n, 100);
      const layout = layOut(graph);
      const { stats, calls } = frame(graph, layout, into(target, graph, layout));
      return { ...stats, calls };
    });
    // Only the neighbors at the edge of the view may differ.
    for (const c of costs) {
      expect(c.tiles).toBeLessThanOrEqual(12);
      expect(c.cells).toBeLessThanOrEqual(1200);
      expect(c.cards).toBeLessThanOrEqual(target.level === "center" ? 4_000 : 130);
      expect(c.calls).toBeLessThanOrEqual(target.level === "center" ? 20_000 : 2_000);
    }
  });

  test("a frame is bounded by the screen, not by the network", () => {
    const graph = many(200, 500);
    const layout = layOut(graph);
    const limits = limitsOf(layout, size);
    // Cells of the least size all over.
    const least = (size.width * size.height) / (1.6 * (1.6 / 1.6));
    for (let k = limits.least; k < limits.most; k *= 1.4) {
      const tile = layout.tiles[50] as { x: number; y: number; w: number; h: number };
      const { stats } = frame(graph, layout, { x: tile.x + tile.w / 2, y: tile.y + tile.h / 2, k });
      expect(stats.cells).toBeLessThan(least);
      expect(stats.cards).toBeLessThan(16_000);
      expect(stats.texts).toBeLessThan(1_500);
    }
  });

  test("zooming in shows cells, then cards, then their names", () => {
    const graph = many(100, 100);
    const layout = layOut(graph);
    const at = (target: Target) => frame(graph, layout, into(target, graph, layout)).stats;
    expect(at({ level: "center", index: 0 }).cells).toBeGreaterThanOrEqual(100);
    const node = at({ level: "node", index: 0, node: 0 });
    expect(node.cards).toBeGreaterThanOrEqual(8);
    expect(node.texts).toBeGreaterThanOrEqual(16);
  });

  test("colors are worked out for what is in view only", () => {
    const graph = many(100, 100);
    const layout = layOut(graph);
    const scene = new Scene(graph, layout, LIGHT, words);
    let painted = 0;
    const paint = scene.paint.bind(scene);
    scene.paint = (i) => {
      painted++;
      return paint(i);
    };
    draw(
      counting().pen,
      scene,
      into({ level: "node", index: 4, node: 9 }, graph, layout),
      size,
      new Text("sans-serif"),
    );
    expect(painted).toBeLessThanOrEqual(2);
  });
});

describe("camera", () => {
  const graph = many(30, 40);
  const layout = layOut(graph);
  const all = fitTo(layout.world, size);

  test("zooming keeps the point under the pointer, within limits", () => {
    const limits = limitsOf(layout, size);
    const before = toWorld(all, size, 300, 200);
    const zoomed = zoomAt(all, size, 300, 200, 3, limits);
    const after = toWorld(zoomed, size, 300, 200);
    expect(after[0]).toBeCloseTo(before[0]);
    expect(after[1]).toBeCloseTo(before[1]);
    expect(zoomAt(all, size, 0, 0, 1e9, limits).k).toBe(limits.most);
    expect(zoomAt(all, size, 0, 0, 1e-9, limits).k).toBe(limits.least);
  });

  test("a card can fill half of the view", () => {
    const card = boxOf({ level: "card", index: 0, node: 0, card: 0 }, graph, layout);
    expect((card?.w ?? 0) * limitsOf(layout, size).most).toBeGreaterThan(size.width / 2);
  });

  test("a flight begins and ends where it should, and never leaves the numbers", () => {
    const to = into({ level: "card", index: 9, node: 3, card: 1 }, graph, layout);
    for (const [a, b] of [
      [all, to],
      [to, all],
      [all, { ...all, k: all.k * 4 }],
    ] as const) {
      const way = flight(a, b, size);
      expect(way.at(0).k).toBeCloseTo(a.k);
      expect(way.at(0).x).toBeCloseTo(a.x);
      expect(way.at(1).k / b.k).toBeCloseTo(1);
      expect(way.at(1).x).toBeCloseTo(b.x);
      for (let t = 0; t <= 1; t += 0.05) expect(Object.values(way.at(t)).every(Number.isFinite)).toBe(true);
    }
  });

  test("part of the world stays in view", () => {
    const held = hold({ x: 1e9, y: -1e9, k: 1 }, layout.world);
    expect(held.x).toBe(layout.world.x + layout.world.w);
    expect(held.y).toBe(layout.world.y);
  });

  test("what is drawn at a point is what is picked there", () => {
    const targets: Target[] = [
      { level: "center", index: 3 },
      { level: "node", index: 3, node: 11 },
      { level: "card", index: 3, node: 11, card: 6 },
    ];
    for (const target of targets) {
      const camera = into(target, graph, layout);
      const box = boxOf(target, graph, layout) as { x: number; y: number; w: number; h: number };
      // Of a center its title, of a node its name: what is inside them is picked otherwise.
      const y = box.y + box.h * (target.level === "card" ? 0.5 : 0.02);
      expect(pick(graph, layout, camera, box.x + box.w / 2, y)).toEqual(target);
      expect(focusOf(graph, layout, camera, size)?.index).toBe(3);
    }
    expect(pick(graph, layout, all, layout.world.x - 5, 0)).toBeUndefined();
    expect(focusOf(graph, layout, all, size)).toMatchObject({ level: expect.stringMatching(/network|region/) });
  });

  test("from the network to a card there are five steps", () => {
    const path = pathTo({ level: "card", index: 0, node: 1, card: 2 }, graph);
    expect(path.map((p) => p.level)).toEqual(["network", "region", "center", "node", "card"]);
  });

  test("a point of the screen is the same point of the world", () => {
    const [x, y] = toScreen(all, size, 12, 34);
    const [wx, wy] = toWorld(all, size, x, y);
    expect(wx).toBeCloseTo(12);
    expect(wy).toBeCloseTo(34);
  });
});

describe("in view", () => {
  const graph = many(300, 12);
  const layout = layOut(graph);
  const bad = graph.centers[123] as Graph["centers"][0];
  bad.health = Health.down;

  test("trouble is listed first, and no more than a table holds", () => {
    const view = inView(graph, layout, fitTo(layout.world, size), size);
    expect(view.rows[0]).toEqual({ level: "center", index: 123 });
    expect(view.rows.length).toBe(LISTED);
    expect(view.total).toBe(300);
  });

  test("the list follows the zoom", () => {
    const levels = (["center", "node", "card"] as const).map((level) => {
      const target: Target = {
        level,
        index: 2,
        ...(level === "center" ? {} : { node: 5 }),
        ...(level === "card" ? { card: 1 } : {}),
      };
      const view = inView(graph, layout, into(target, graph, layout), size);
      return [view.level, view.total];
    });
    expect(levels[0]).toEqual(["node", 12]);
    expect(levels[1]).toEqual(["card", 8]);
    expect(levels[2]?.[0]).toBe("card");
  });

  test("search finds centers before nodes, exact names first", () => {
    const found = search(graph, "C0007");
    expect(found[0]).toEqual({ level: "center", index: 7 });
    expect(search(graph, "n00011")).toHaveLength(20);
    expect(search(graph, "  ")).toEqual([]);
  });

  test("IDs lead back to what they name", () => {
    const targets: Target[] = [
      { level: "network", index: 0 },
      { level: "region", index: 1 },
      { level: "center", index: 4 },
      { level: "node", index: 4, node: 7 },
      { level: "card", index: 4, node: 7, card: 3 },
    ];
    for (const target of targets) expect(targetOf(vertexId(target, graph), graph)).toEqual(target);
    expect(vertexId(targets[4] as Target, graph)).toBe("card:c0004/n00007/gpu/3");
    expect(nameOf(targets[4] as Target, graph)).toBe("gpu/3");
    expect(targetOf("node:c0004:nowhere", graph)).toBeUndefined();
  });
});

// How people see who lack one kind of cone (Machado, Oliveira and Fernandes, 2009), on linear light.
const SIGHT: Record<string, number[]> = {
  usual: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  "without red": [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  "without green": [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  "without blue": [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
};

function seen(hex: string, sight: number[]): number[] {
  const light = channels(hex).map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const [r = 0, g = 0, b = 0] = [0, 1, 2].map((i) =>
    Math.max(
      0,
      [0, 1, 2].reduce((sum, j) => sum + (sight[i * 3 + j] ?? 0) * (light[j] ?? 0), 0),
    ),
  );
  // OKLab: distances are as they look.
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

describe("palette", () => {
  const themes: [string, Palette][] = [
    ["light", LIGHT],
    ["dark", DARK],
  ];
  for (const [theme, palette] of themes) {
    test.each(Object.entries(SIGHT))(`colors of health stay apart, ${theme}, sight %s`, (_, sight) => {
      const colors = palette.health.map((c) => seen(c, sight));
      colors.forEach((a, i) => {
        colors.slice(i + 1).forEach((b, j) => {
          const distance = Math.hypot(...a.map((v, k) => v - (b[k] ?? 0)));
          expect(distance, `${palette.health[i]} and ${palette.health[i + 1 + j]}`).toBeGreaterThan(0.08);
        });
      });
    });

    test(`the scale goes one way, ${theme}`, () => {
      const light = palette.scale.slice(0, STEPS).map((c) => seen(c, SIGHT.usual as number[])[0] as number);
      const up = (light[1] as number) > (light[0] as number);
      for (let i = 1; i < light.length; i++) expect((light[i] as number) > (light[i - 1] as number)).toBe(up);
    });
  }

  test("values have their step, also at and beyond the ends", () => {
    expect([0, 0.5, 1, -3, 9].map((v) => stepOf(v, 0, 1))).toEqual([0, STEPS / 2, STEPS - 1, 0, STEPS - 1]);
    expect(stepOf(Number.NaN, 0, 1)).toBe(STEPS);
  });
});
