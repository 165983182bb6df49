// What part of the world is on the screen.
import type { Layout } from "./layout";
import { cardBox, cellBox } from "./layout";
import { cardCount, type Graph, type Target } from "./model";
import type { Box } from "./pack";

/** The world's point in the middle of the screen, and pixels per unit. */
export interface Camera {
  x: number;
  y: number;
  k: number;
}

export interface Size {
  width: number;
  height: number;
}

export interface Limits {
  least: number;
  most: number;
}

/** The legend lies over this many pixels at the foot of the view. */
const FOOT = 40;

/** The camera that shows all of a box with a margin. */
export function fitTo(box: Box, size: Size, margin = 16): Camera {
  const room = Math.max(1, size.height - 2 * margin - FOOT);
  const k = Math.max(1e-4, Math.min(Math.max(1, size.width - 2 * margin) / (box.w || 1), room / (box.h || 1)));
  return { x: box.x + box.w / 2, y: box.y + box.h / 2 + FOOT / 2 / k, k };
}

export function limitsOf(layout: Layout, size: Size): Limits {
  const all = fitTo(layout.world, size).k;
  let cell = Infinity;
  for (const t of layout.tiles) cell = Math.min(cell, t.cellWidth);
  // A card, about a fifth of a cell, may fill half of the screen.
  return { least: all * 0.7, most: Math.max(all, (2.5 * size.width) / Math.min(cell, layout.world.w || 1)) };
}

export function toScreen(camera: Camera, size: Size, x: number, y: number): [number, number] {
  return [(x - camera.x) * camera.k + size.width / 2, (y - camera.y) * camera.k + size.height / 2];
}

export function toWorld(camera: Camera, size: Size, px: number, py: number): [number, number] {
  return [(px - size.width / 2) / camera.k + camera.x, (py - size.height / 2) / camera.k + camera.y];
}

/** Zooms by a factor so that the point of the world under the pixel stays there. */
export function zoomAt(camera: Camera, size: Size, px: number, py: number, factor: number, limits: Limits): Camera {
  const k = Math.min(limits.most, Math.max(limits.least, camera.k * factor));
  const [x, y] = toWorld(camera, size, px, py);
  return { k, x: x - (px - size.width / 2) / k, y: y - (py - size.height / 2) / k };
}

/** Keeps part of the world on the screen. */
export function hold(camera: Camera, world: Box): Camera {
  return {
    k: camera.k,
    x: Math.min(world.x + world.w, Math.max(world.x, camera.x)),
    y: Math.min(world.y + world.h, Math.max(world.y, camera.y)),
  };
}

/**
 * The way from one camera to another that keeps the speed of what passes by
 * even: out, over, and in (van Wijk and Nuij, 2003). at takes 0 to 1; length
 * is a measure of how far it is.
 */
export function flight(from: Camera, to: Camera, size: Size): { length: number; at: (t: number) => Camera } {
  const RHO = 1.3;
  const w0 = size.width / from.k;
  const w1 = size.width / to.k;
  const dx = to.x - from.x;
  const dy = to.y - from.y;
  const d2 = dx * dx + dy * dy;
  if (d2 < (w0 * 1e-4) ** 2) {
    const s = Math.log(w1 / w0);
    return {
      length: Math.abs(s) / RHO,
      at: (t) => ({ x: from.x + dx * t, y: from.y + dy * t, k: size.width / (w0 * Math.exp(s * t)) }),
    };
  }
  const d1 = Math.sqrt(d2);
  const b0 = (w1 * w1 - w0 * w0 + RHO ** 4 * d2) / (2 * w0 * RHO ** 2 * d1);
  const b1 = (w1 * w1 - w0 * w0 - RHO ** 4 * d2) / (2 * w1 * RHO ** 2 * d1);
  const r0 = Math.asinh(-b0);
  const r1 = Math.asinh(-b1);
  const length = (r1 - r0) / RHO;
  return {
    length: Math.abs(length),
    at: (t) => {
      if (t >= 1) return to;
      const s = t * length * RHO;
      const u = (w0 / (RHO ** 2 * d1)) * (Math.cosh(r0) * Math.tanh(s + r0) - Math.sinh(r0));
      return { x: from.x + u * dx, y: from.y + u * dy, k: (size.width * Math.cosh(s + r0)) / (w0 * Math.cosh(r0)) };
    },
  };
}

/** The box of what is looked at; undefined if it is not there. */
export function boxOf(target: Target, graph: Graph, layout: Layout): Box | undefined {
  if (target.level !== "center" && target.level !== "node" && target.level !== "card") {
    return layout.frames[target.index];
  }
  const tile = layout.tiles[target.index];
  const center = graph.centers[target.index];
  if (!tile || !center) return undefined;
  if (target.node === undefined) return tile;
  if (target.node >= center.nodes.names.length) return undefined;
  const cell = cellBox(tile, target.node);
  return target.card === undefined ? cell : cardBox(cell, cardCount(center.nodes, target.node), target.card);
}

/** What is at a point of the world: the innermost that is drawn there, cells of less than some pixels not being. */
export function pick(graph: Graph, layout: Layout, camera: Camera, x: number, y: number): Target | undefined {
  let found: Target | undefined;
  layout.index.meets(x, y, x + 1e-9, y + 1e-9, (index) => {
    found = { level: "center", index };
    const tile = layout.tiles[index];
    const center = graph.centers[index];
    if (!tile || !center || tile.cellWidth * camera.k < 3) return true;
    const column = Math.floor((x - tile.x0) / tile.cellWidth);
    const row = Math.floor((y - tile.y0) / tile.cellHeight);
    if (column < 0 || row < 0 || column >= tile.grid.columns || row >= tile.grid.rows) return true;
    const node = tile.nodeAt[row * tile.grid.columns + column] ?? -1;
    if (node < 0) return true;
    found = { level: "node", index, node };
    const count = cardCount(center.nodes, node);
    if (tile.cellWidth * camera.k < CARDS_FROM_PX) return true;
    const cell = cellBox(tile, node);
    for (let card = 0; card < count; card++) {
      const b = cardBox(cell, count, card);
      if (x >= b.x && x < b.x + b.w && y >= b.y && y < b.y + b.h) found = { level: "card", index, node, card };
    }
    return true;
  });
  if (found) return found;
  for (let i = layout.outerFirst.length - 1; i >= 0; i--) {
    const g = layout.outerFirst[i] as number;
    const f = layout.frames[g];
    const group = graph.groups[g];
    if (f && group && x >= f.x && x < f.x + f.w && y >= f.y && y < f.y + f.h) return { level: group.level, index: g };
  }
  return undefined;
}

/** Cells at least this wide show their cards. */
export const CARDS_FROM_PX = 26;

/** What the view is about: the innermost thing that fills much of the screen around its middle. */
export function focusOf(graph: Graph, layout: Layout, camera: Camera, size: Size): Target | undefined {
  const at = pick(graph, layout, { ...camera, k: 1e9 }, camera.x, camera.y);
  const fills = (target: Target, share: number) => {
    const b = boxOf(target, graph, layout);
    return !!b && (b.w * camera.k >= share * size.width || b.h * camera.k >= share * size.height);
  };
  for (let target = at; target; target = parentOf(target, graph)) {
    if (fills(target, 0.5)) return target;
  }
  return rootOf(graph);
}

export function rootOf(graph: Graph): Target | undefined {
  const index = graph.groups.findIndex((g) => g.parent === "");
  const group = graph.groups[index];
  return group && { level: group.level, index };
}

/** What a vertex is in. */
export function parentOf(target: Target, graph: Graph): Target | undefined {
  if (target.card !== undefined) return { level: "node", index: target.index, node: target.node };
  if (target.node !== undefined) return { level: "center", index: target.index };
  const parent =
    target.level === "center" ? graph.centers[target.index]?.group : graph.groups[target.index]?.parent || undefined;
  if (parent === undefined) return undefined;
  const index = graph.groups.findIndex((g) => g.id === parent);
  const group = graph.groups[index];
  return group && { level: group.level, index };
}

/** From the network down to what is given. */
export function pathTo(target: Target | undefined, graph: Graph): Target[] {
  const path: Target[] = [];
  for (let at = target; at && path.length < 32; at = parentOf(at, graph)) path.unshift(at);
  return path;
}
