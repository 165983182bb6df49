// Where everything is in the world of the view, in units that do not depend
// on the screen. Centers are tiles on a grid, near to where they lie on the
// map; groups are boxes around them; nodes are cells of their tile. The same
// graph gives the same places, and what changes moves little else: cells stay
// (see Slots), and tiles are placed in the order in which they were first seen.
import type { Center, Graph } from "./model";
import { around, type Box, BoxIndex, GAP, GRID, pack, type Wish } from "./pack";
import { CELL_ASPECT, type Grid, Slots } from "./slots";

/** A center. Its cells begin at (x0, y0). */
export interface Tile extends Box {
  header: number;
  grid: Grid;
  x0: number;
  y0: number;
  cellWidth: number;
  cellHeight: number;
  /** The cell of each node. */
  cells: Uint32Array;
  /** The node in each cell, -1 for none. */
  nodeAt: Int32Array;
}

/** A group with room for its title, and for a hub if links end at the group itself. */
export interface Frame extends Box {
  header: number;
  depth: number;
  hub?: Box;
}

export interface Layout {
  /** Of the graph's groups and centers, in their order. */
  frames: Frame[];
  tiles: Tile[];
  world: Box;
  index: BoxIndex;
  /** Groups, outer ones first. */
  outerFirst: number[];
}

/** What a layout remembers of those before it. */
export type Memory = Map<string, Slots>;

/** Longitude is shortened as at this latitude, wherever places are. */
const SHORTEN = Math.cos((35 * Math.PI) / 180);
/** How much wider than high a picture should be. */
const WIDE = 1.5;
const PAD = 10;

export function layOut(graph: Graph, memory: Memory = new Map()): Layout {
  const tiles = graph.centers.map((c) => tileOf(c, memory));
  const frames: Frame[] = graph.groups.map(() => ({ x: 0, y: 0, w: 0, h: 0, header: 0, depth: 0 }));
  const tree = treeOf(graph);
  for (const root of tree.roots) arrange(root, 0, graph, tree, tiles, frames);
  const tops: Item[] = tree.roots.map((g) => itemOfFrame(g, graph, tree, frames));
  place(tops, frames, tiles, tree, 0, 0);
  for (const tile of tiles) {
    tile.x0 += tile.x;
    tile.y0 += tile.y;
  }
  const outerFirst = frames.map((_, i) => i).sort((a, b) => depthOf(frames, a) - depthOf(frames, b) || a - b);
  return { frames, tiles, world: around(frames), index: new BoxIndex(tiles, 64), outerFirst };
}

const depthOf = (frames: Frame[], i: number) => frames[i]?.depth ?? 0;

interface Tree {
  roots: number[];
  groups: number[][];
  centers: number[][];
  /** Groups at which links end. */
  hubs: Set<number>;
  /** Mean place and first time of all centers in a group. */
  places: Geo[];
}

interface Geo {
  longitude?: number;
  latitude?: number;
  since: number;
}

function treeOf(graph: Graph): Tree {
  const indexOf = new Map(graph.groups.map((g, i) => [g.id, i]));
  const tree: Tree = {
    roots: [],
    groups: graph.groups.map(() => []),
    centers: graph.groups.map(() => []),
    hubs: new Set(),
    places: [],
  };
  graph.groups.forEach((g, i) => {
    const parent = indexOf.get(g.parent);
    if (parent === undefined || parent === i) tree.roots.push(i);
    else tree.groups[parent]?.push(i);
  });
  graph.centers.forEach((c, i) => {
    const group = indexOf.get(c.group) ?? tree.roots[0];
    if (group !== undefined) tree.centers[group]?.push(i);
  });
  for (const end of [...graph.links.flatMap((l) => [l.from, l.to]), ...(graph.hubs ?? [])]) {
    const group = indexOf.get(end);
    if (group !== undefined) tree.hubs.add(group);
  }
  const geo = (i: number): Geo[] => [
    ...(tree.centers[i] ?? []).map((c) => graph.centers[c] as Center),
    ...(tree.groups[i] ?? []).flatMap(geo),
  ];
  tree.places = graph.groups.map((_, i) => {
    const all = geo(i);
    const located = all.filter((g) => g.longitude !== undefined && g.latitude !== undefined);
    const mean = (get: (g: Geo) => number | undefined) =>
      located.length ? located.reduce((sum, g) => sum + (get(g) ?? 0), 0) / located.length : undefined;
    return {
      longitude: mean((g) => g.longitude),
      latitude: mean((g) => g.latitude),
      since: all.reduce((first, g) => Math.min(first, g.since), Infinity),
    };
  });
  return tree;
}

function tileOf(center: Center, memory: Memory): Tile {
  let slots = memory.get(center.id);
  if (!slots) {
    slots = new Slots();
    memory.set(center.id, slots);
  }
  const cells = slots.assign(center.nodes.names);
  const { columns, rows } = slots.grid;
  const room = columns * rows;
  // Larger centers have larger tiles, though not in proportion: a center of one node is still seen.
  const w = snapUp(8 + 7 * room ** 0.4);
  const header = 6 + 0.07 * w;
  const pad = 1.5 + 0.02 * w;
  const cellWidth = (w - 2 * pad) / columns;
  const h = snapUp(header + pad + (rows * cellWidth) / CELL_ASPECT);
  const nodeAt = new Int32Array(room).fill(-1);
  cells.forEach((cell, node) => {
    nodeAt[cell] = node;
  });
  return {
    x: 0,
    y: 0,
    w,
    h,
    header,
    grid: { columns, rows },
    x0: pad,
    y0: header,
    cellWidth,
    cellHeight: (h - header - pad) / rows,
    cells,
    nodeAt,
  };
}

const snapUp = (n: number) => Math.ceil(n / GRID) * GRID;

interface Item {
  box: Box;
  geo: Geo;
  id: string;
  /** Puts it at its place, relative to the parent's. */
  settle: (box: Box) => void;
}

// Places what is in a group, relative to the group's own corner, and sizes the group.
function arrange(g: number, depth: number, graph: Graph, tree: Tree, tiles: Tile[], frames: Frame[]): void {
  const frame = frames[g] as Frame;
  frame.depth = depth;
  const items: Item[] = [];
  for (const child of tree.groups[g] ?? []) {
    arrange(child, depth + 1, graph, tree, tiles, frames);
    items.push(itemOfFrame(child, graph, tree, frames));
  }
  for (const c of tree.centers[g] ?? []) {
    const tile = tiles[c] as Tile;
    const center = graph.centers[c] as Center;
    items.push({ box: tile, geo: center, id: center.id, settle: (b) => Object.assign(tile, { x: b.x, y: b.y }) });
  }
  items.sort((a, b) => a.geo.since - b.geo.since || (a.id < b.id ? -1 : 1));
  if (tree.hubs.has(g)) {
    const area = items.reduce((sum, { box }) => sum + box.w * box.h, 0);
    const side = snapUp(Math.max(20, 0.07 * Math.sqrt(area)));
    const hub: Box = { x: 0, y: 0, w: side, h: side };
    frame.hub = hub;
    const { longitude, latitude } = tree.places[g] as Geo;
    items.unshift({
      box: hub,
      geo: { longitude, latitude, since: 0 },
      id: "",
      settle: (b) => Object.assign(hub, { x: b.x, y: b.y }),
    });
  }
  const boxes = pack(wishes(items));
  const all = around(boxes);
  frame.header = depth === 0 ? 0 : Math.max(9, 0.06 * all.w);
  boxes.forEach((b, i) => {
    items[i]?.settle({ ...b, x: b.x - all.x + PAD, y: b.y - all.y + PAD + frame.header });
  });
  frame.w = Math.max(4 * PAD, all.w + 2 * PAD);
  frame.h = Math.max(2 * PAD, all.h + 2 * PAD) + frame.header;
}

function itemOfFrame(g: number, graph: Graph, tree: Tree, frames: Frame[]): Item {
  const frame = frames[g] as Frame;
  return {
    box: { ...frame, w: snapUp(frame.w), h: snapUp(frame.h) },
    geo: tree.places[g] as Geo,
    id: graph.groups[g]?.id ?? "",
    settle: (b) => Object.assign(frame, { x: b.x, y: b.y, w: b.w, h: b.h }),
  };
}

// Turns positions on the map into wishes of a density at which little is pushed aside.
function wishes(items: readonly Item[]): Wish[] {
  const located = items.filter((i) => i.geo.longitude !== undefined && i.geo.latitude !== undefined);
  const ys = located.map((i) => -(i.geo.latitude ?? 0));
  const [y0, y1] = [Math.min(...ys), Math.max(...ys)];
  const plain = located.map((i) => (i.geo.longitude ?? 0) * SHORTEN);
  const wide = Math.max(...plain) - Math.min(...plain);
  // A network that is higher than wide is widened towards the shape of the view.
  const wider =
    wide > 1e-6 ? 2 ** (Math.round(2 * Math.log2(Math.min(2, Math.max(1, (WIDE * (y1 - y0)) / wide)))) / 2) : 1;
  const east = (g: Geo) => (g.longitude ?? 0) * SHORTEN * wider;
  const xs = located.map((i) => east(i.geo));
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  if (located.length < 2 || (x1 - x0 < 1e-6 && y1 - y0 < 1e-6)) {
    return items.map(({ box }) => ({ w: box.w, h: box.h }));
  }
  const sum = (get: (i: Item) => number) => items.reduce((total, i) => total + get(i), 0);
  const area = sum(({ box }) => (box.w + GAP) * (box.h + GAP));
  // The scale at which boxes of the mean size around these places take little more than the area of all:
  // (a·s + w)(b·s + h) = room.
  const [a, b] = [Math.max(x1 - x0, 0.1 * (y1 - y0)), Math.max(y1 - y0, 0.1 * (x1 - x0))];
  const [w, h] = [sum(({ box }) => box.w) / items.length, sum(({ box }) => box.h) / items.length];
  const half = (a * h + b * w) / 2;
  const exact = (Math.sqrt(half * half + a * b * Math.max(0.1 * area, 1.05 * area - w * h)) - half) / (a * b);
  // In steps, so that one more center does not change the scale of all.
  const scale = 2 ** (Math.round(2 * Math.log2(exact)) / 2);
  const [midX, midY] = [(x0 + x1) / 2, (y0 + y1) / 2];
  return items.map(({ box, geo }) => ({
    w: box.w,
    h: box.h,
    ...(geo.longitude !== undefined && geo.latitude !== undefined
      ? { x: (east(geo) - midX) * scale, y: (-geo.latitude - midY) * scale }
      : {}),
  }));
}

// Puts groups at the top next to each other, and all within them at their place in the world.
function place(tops: Item[], frames: Frame[], tiles: Tile[], tree: Tree, x: number, y: number): void {
  const boxes = pack(wishes(tops));
  boxes.forEach((b, i) => {
    tops[i]?.settle({ ...b, x: b.x + x, y: b.y + y });
  });
  for (const root of tree.roots) shift(root, frames, tiles, tree);
}

// Children are relative to their group: from the top down they become absolute.
function shift(g: number, frames: Frame[], tiles: Tile[], tree: Tree): void {
  const frame = frames[g] as Frame;
  const move = (b: Box | undefined) => {
    if (!b) return;
    b.x += frame.x;
    b.y += frame.y;
  };
  move(frame.hub);
  for (const c of tree.centers[g] ?? []) move(tiles[c]);
  for (const child of tree.groups[g] ?? []) {
    move(frames[child]);
    shift(child, frames, tiles, tree);
  }
}

/** The box of a node. */
export function cellBox(tile: Tile, node: number): Box {
  const cell = tile.cells[node] ?? 0;
  return {
    x: tile.x0 + (cell % tile.grid.columns) * tile.cellWidth,
    y: tile.y0 + Math.floor(cell / tile.grid.columns) * tile.cellHeight,
    w: tile.cellWidth,
    h: tile.cellHeight,
  };
}

/** Shares of a cell: around it, and for the node's name above its cards. */
export const CELL_PAD = 0.06;
export const CELL_HEAD = 0.26;

/** Columns of the cards of a node. */
export function cardColumns(count: number): number {
  return count <= 4 ? Math.max(1, count) : Math.ceil(Math.sqrt(count * 2));
}

/** The box of a card of a node of so many. */
export function cardBox(cell: Box, count: number, card: number): Box {
  const columns = cardColumns(count);
  const rows = Math.ceil(count / columns);
  const x = cell.x + cell.w * CELL_PAD;
  const y = cell.y + cell.h * CELL_HEAD;
  const w = (cell.w * (1 - CELL_PAD * 1.7)) / columns;
  const h = (cell.h * (1 - CELL_HEAD - CELL_PAD * 1.4)) / rows;
  return { x: x + (card % columns) * w, y: y + Math.floor(card / columns) * h, w, h };
}

/** Whether two graphs have the same places: the same groups, centers, nodes and ends of links. */
export function sameShape(a: Graph, b: Graph): boolean {
  if (a === b) return true;
  if (a.groups.length !== b.groups.length || a.centers.length !== b.centers.length) return false;
  const hubs = (g: Graph) => {
    const groups = new Set(g.groups.map((x) => x.id));
    const ends = [...g.links.flatMap((l) => [l.from, l.to]), ...(g.hubs ?? [])];
    return new Set(ends.filter((id) => groups.has(id)));
  };
  const [ha, hb] = [hubs(a), hubs(b)];
  if (ha.size !== hb.size || [...ha].some((id) => !hb.has(id))) return false;
  const sameGroup = (i: number) => a.groups[i]?.id === b.groups[i]?.id && a.groups[i]?.parent === b.groups[i]?.parent;
  return (
    a.groups.every((_, i) => sameGroup(i)) &&
    a.centers.every((c, i) => {
      const d = b.centers[i];
      return (
        d !== undefined &&
        c.id === d.id &&
        c.group === d.group &&
        c.since === d.since &&
        c.longitude === d.longitude &&
        c.latitude === d.latitude &&
        c.nodes.names.length === d.nodes.names.length &&
        (c.nodes.names === d.nodes.names || c.nodes.names.every((n, j) => n === d.nodes.names[j]))
      );
    })
  );
}
