// What is in view, as a list: the same for those who do not see the drawing.
import { boxOf, type Camera, focusOf, type Size, toWorld } from "./camera";
import type { Layout } from "./layout";
import { cardCount, type Graph, healthOf, type Level, nameOf, type Target, TROUBLE_FIRST } from "./model";

export interface InView {
  /** What the view is about. */
  focus: Target | undefined;
  /** Of what level the things listed are. */
  level: Level;
  rows: Target[];
  /** In view, also those that are not listed. */
  total: number;
}

/** No more than this many are listed. */
export const LISTED = 200;

/** Lists what is in view one level below what the view is about, trouble first. */
export function inView(graph: Graph, layout: Layout, camera: Camera, size: Size): InView {
  const focus = focusOf(graph, layout, camera, size);
  const [x0, y0] = toWorld(camera, size, 0, 0);
  const [x1, y1] = toWorld(camera, size, size.width, size.height);
  const shown = (t: Target) => {
    const b = boxOf(t, graph, layout);
    return !!b && b.x < x1 && b.x + b.w > x0 && b.y < y1 && b.y + b.h > y0;
  };
  let rows: Target[] = [];
  let level: Level = "center";
  if (focus?.level === "node" || focus?.level === "card") {
    level = "card";
    const nodes = graph.centers[focus.index]?.nodes;
    const count = nodes && focus.node !== undefined ? cardCount(nodes, focus.node) : 0;
    rows = Array.from({ length: count }, (_, card) => ({ level, index: focus.index, node: focus.node, card }));
  } else if (focus?.level === "center") {
    level = "node";
    const tile = layout.tiles[focus.index];
    if (tile) {
      const { columns, rows: high } = tile.grid;
      const clamp = (n: number, most: number) => Math.min(most, Math.max(0, Math.floor(n)));
      for (
        let r = clamp((y0 - tile.y0) / tile.cellHeight, high - 1);
        r <= clamp((y1 - tile.y0) / tile.cellHeight, high - 1);
        r++
      ) {
        for (
          let c = clamp((x0 - tile.x0) / tile.cellWidth, columns - 1);
          c <= clamp((x1 - tile.x0) / tile.cellWidth, columns - 1);
          c++
        ) {
          const node = tile.nodeAt[r * columns + c] ?? -1;
          if (node >= 0) rows.push({ level, index: focus.index, node });
        }
      }
    }
  } else {
    layout.index.meets(x0, y0, x1, y1, (index) => {
      if (!graph.centers[index]?.absent) rows.push({ level: "center", index });
      return undefined;
    });
  }
  rows = rows.filter(shown);
  const rank = (t: Target) => TROUBLE_FIRST.indexOf(healthOf(t, graph));
  const order = (t: Target) => t.card ?? 0;
  const keyed = rows.map((target) => ({ target, rank: rank(target), name: nameOf(target, graph) }));
  keyed.sort(
    (a, b) => a.rank - b.rank || order(a.target) - order(b.target) || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
  );
  return { focus, level, rows: keyed.slice(0, LISTED).map((k) => k.target), total: rows.length };
}

/** Things whose name or ID has the text: those of the center that is near first, then the shortest names. */
export function search(graph: Graph, text: string, near?: Target, most = 20): Target[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return [];
  const found: { target: Target; rank: number; name: string }[] = [];
  const consider = (target: Target, ...names: string[]) => {
    const hit = names.map((n) => n.toLowerCase()).filter((n) => n.includes(wanted));
    const name = hit[0];
    if (name === undefined) return;
    const far =
      target.node === undefined ||
      (near?.node === undefined && near?.level !== "center") ||
      near.index !== target.index;
    const rank = hit.includes(wanted) ? 0 : hit.some((n) => n.startsWith(wanted)) ? 2 : 4;
    found.push({ target, name, rank: rank + (far ? 1 : 0) });
  };
  graph.groups.forEach((g, index) => {
    if (g.level !== "network") consider({ level: g.level, index }, g.name, g.id);
  });
  graph.centers.forEach((c, index) => {
    if (c.centerId && !c.absent) consider({ level: "center", index }, c.name, c.centerId);
  });
  graph.centers.forEach((c, index) => {
    c.nodes.names.forEach((name, node) => {
      consider({ level: "node", index, node }, name, ...(c.nodes.ids ? [c.nodes.ids[node] ?? ""] : []));
    });
  });
  return found
    .sort((a, b) => a.rank - b.rank || a.name.length - b.name.length || (a.name < b.name ? -1 : 1))
    .slice(0, most)
    .map((f) => f.target);
}
