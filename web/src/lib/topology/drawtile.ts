// A center: its title and its nodes, as much of them as there is room for.
import { CARDS_FROM_PX, type Camera, type Size, toScreen } from "./camera";
import { CELL_HEAD, CELL_PAD, cardBox, cellBox, type Tile } from "./layout";
import { type Center, cardCount, cardOf, Health } from "./model";
import { mix } from "./palette";
import { type Area, type Pen, roundRect, type Stats, sign, type Text } from "./pen";
import { Mark, type Paint, type Scene } from "./scene";

/** Titles are read where there is this much room for them. */
export const TITLES_FROM_PX = 9;
/** Cells narrower than this are drawn as shares of the tile. */
const CELLS_FROM_PX = 1.6;
/** Cells at least this wide show what is wrong with a sign. */
const SIGNS_FROM_PX = 11;
/** Cells at least this wide show names. */
const NAMES_FROM_PX = 62;

export function drawTile(
  pen: Pen,
  scene: Scene,
  camera: Camera,
  size: Size,
  text: Text,
  index: number,
  area: Area,
  stats: Stats,
): void {
  const tile = scene.layout.tiles[index];
  const center = scene.graph.centers[index];
  if (!tile || !center) return;
  const { palette } = scene;
  const paint = scene.paint(index);
  const [x, y] = toScreen(camera, size, tile.x, tile.y);
  const [w, h] = [tile.w * camera.k, tile.h * camera.k];
  const own = scene.colors[paint.own] ?? palette.tile;
  if (w < 7) {
    pen.fillStyle = own;
    pen.fillRect(x, y, w, h);
    return;
  }
  if (center.absent) {
    pen.globalAlpha = 0.6;
    pen.strokeStyle = palette.tileLine;
    pen.lineWidth = 1;
    pen.setLineDash([3, 5]);
    roundRect(pen, x, y, w, h, Math.min(9, w * 0.06), size);
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
    return;
  }
  const removed = scene.marks?.centers[index] === Mark.removed;
  pen.fillStyle = palette.tile;
  pen.strokeStyle = center.health === Health.down ? (palette.health[Health.down] ?? "") : palette.tileLine;
  pen.lineWidth = 1;
  if (removed) pen.setLineDash([5, 4]);
  roundRect(pen, x, y, w, h, Math.min(9, w * 0.06), size);
  pen.fill();
  pen.stroke();
  pen.setLineDash([]);
  drawTitle(pen, scene, text, center, paint, tile, x, y, w, camera.k);
  if (center.nodes.names.length === 0) {
    pen.fillStyle = own;
    const top = y + tile.header * camera.k;
    roundRect(pen, x + w * 0.08, top, w * 0.84, Math.max(1, y + h - top - w * 0.08), 3, size);
    pen.fill();
  } else if (tile.cellWidth * camera.k < CELLS_FROM_PX) {
    const pad = Math.min(3, w * 0.06);
    const top = Math.max(pad, tile.header * camera.k);
    drawShares(pen, scene, paint, x + pad, y + top, w - 2 * pad, Math.max(1, h - top - pad));
  } else {
    drawCells(pen, scene, camera, size, text, index, tile, center, paint, area, stats);
  }
  markTile(pen, scene, index, x, y, w, h, size);
}

function drawTitle(
  pen: Pen,
  scene: Scene,
  text: Text,
  center: Center,
  paint: Paint,
  tile: Tile,
  x: number,
  y: number,
  w: number,
  k: number,
): void {
  const { palette, words } = scene;
  const header = tile.header * k;
  if (header < TITLES_FROM_PX) return;
  const px = Math.min(15, Math.max(8, header * 0.6));
  // With much room there is a bar of all nodes below the title.
  const bar = header > 44 && center.centerId !== "" && center.nodes.names.length > 0;
  const middle = y + header * (bar ? 0.36 : 0.5);
  const r = px * 0.3;
  const left = x + Math.min(12, w * 0.06) + r;
  pen.fillStyle = palette.health[center.health] ?? palette.muted;
  pen.beginPath();
  pen.arc(left, middle, r, 0, 2 * Math.PI);
  pen.fill();
  const name = center.centerId ? center.name : center.name ? `${center.name} · ${words.resources}` : words.resources;
  let room = x + w - left - r * 2.2 - Math.min(10, w * 0.05);
  const total = center.nodes.names.length;
  if (w > 150 && total > 0 && center.centerId) {
    const bad = (paint.counts[Health.down] ?? 0) + (paint.counts[Health.unknown] ?? 0);
    const figures = bad > 0 ? `${total - bad} / ${words.nodes(total)}` : words.nodes(total);
    const width = text.width(figures, px * 0.85);
    text.draw(figures, x + w - Math.min(12, w * 0.05), middle, {
      px: px * 0.85,
      color: palette.muted,
      width: width + 4,
      right: true,
    });
    room -= width + 10;
  }
  text.draw(name, left + r * 2.2, middle, { px, color: palette.text, width: room, bold: true });
  if (bar) drawShares(pen, scene, paint, x + w * 0.03, y + header * 0.66, w * 0.94, Math.min(7, header * 0.14));
}

// The colors of all nodes side by side, as wide as there are many of them.
function drawShares(pen: Pen, scene: Scene, paint: Paint, x: number, y: number, w: number, h: number): void {
  const total = paint.shares.reduce((a, b) => a + b, 0);
  let left = x;
  paint.shares.forEach((count, color) => {
    if (count === 0) return;
    // However few are down, it is seen.
    const width = Math.max(1, (count / total) * w);
    pen.fillStyle = scene.colors[color] ?? "";
    pen.fillRect(left, y, Math.min(width, x + w - left), h);
    left += width;
  });
}

// Reused from frame to frame: nodes in view by color.
let order = new Int32Array(1024);

function drawCells(
  pen: Pen,
  scene: Scene,
  camera: Camera,
  size: Size,
  text: Text,
  index: number,
  tile: Tile,
  center: Center,
  paint: Paint,
  area: Area,
  stats: Stats,
): void {
  const { columns, rows } = tile.grid;
  const clamp = (n: number, most: number) => Math.min(most, Math.max(0, Math.floor(n)));
  const c0 = clamp((area.x0 - tile.x0) / tile.cellWidth, columns - 1);
  const c1 = clamp((area.x1 - tile.x0) / tile.cellWidth, columns - 1);
  const r0 = clamp((area.y0 - tile.y0) / tile.cellHeight, rows - 1);
  const r1 = clamp((area.y1 - tile.y0) / tile.cellHeight, rows - 1);
  const most = (c1 - c0 + 1) * (r1 - r0 + 1);
  if (order.length < most) order = new Int32Array(2 * most);
  // Colors are set once for all cells of one color: counted, then sorted.
  const starts = new Int32Array(scene.colors.length + 1);
  for (let r = r0; r <= r1; r++) {
    for (let c = c0; c <= c1; c++) {
      const node = tile.nodeAt[r * columns + c] ?? -1;
      if (node >= 0) starts[(paint.nodes[node] ?? 0) + 1] = (starts[(paint.nodes[node] ?? 0) + 1] ?? 0) + 1;
    }
  }
  for (let i = 1; i < starts.length; i++) starts[i] = (starts[i] ?? 0) + (starts[i - 1] ?? 0);
  const next = starts.slice();
  for (let r = r0; r <= r1; r++) {
    for (let c = c0; c <= c1; c++) {
      const node = tile.nodeAt[r * columns + c] ?? -1;
      if (node < 0) continue;
      const color = paint.nodes[node] ?? 0;
      order[next[color] ?? 0] = node;
      next[color] = (next[color] ?? 0) + 1;
    }
  }
  const total = starts[starts.length - 1] ?? 0;
  stats.cells += total;
  const pw = tile.cellWidth * camera.k;
  const ph = tile.cellHeight * camera.k;
  const [ox, oy] = toScreen(camera, size, tile.x0, tile.y0);
  const gap = pw < 4 ? 0.5 : Math.min(3, pw * CELL_PAD * 2);
  const marks = scene.marks?.nodes[index];
  // Where cards show, their node steps back.
  const open = Math.min(1, Math.max(0, (pw - CARDS_FROM_PX) / 8));
  if (open < 1 || !hasCards(center)) {
    for (let color = 0; color < scene.colors.length; color++) {
      const [from, to] = [starts[color] ?? 0, starts[color + 1] ?? 0];
      if (from === to) continue;
      pen.fillStyle = scene.colors[color] ?? "";
      pen.globalAlpha = scene.alphaOf(color);
      for (let i = from; i < to; i++) {
        const cell = tile.cells[order[i] as number] ?? 0;
        pen.fillRect(ox + (cell % columns) * pw, oy + Math.floor(cell / columns) * ph, pw - gap, ph - gap);
      }
    }
    pen.globalAlpha = 1;
    if (pw >= SIGNS_FROM_PX && pw < NAMES_FROM_PX && !scene.values) {
      drawSigns(pen, scene, tile, starts, ox, oy, pw, ph, gap);
    }
  }
  if (open > 0) {
    const view: View = { pen, scene, camera, size, text, index, tile, center, paint, stats, pw, ph, gap };
    if (hasCards(center)) {
      for (let i = 0; i < total; i++) drawNode(view, order[i] as number, open);
      drawCards(view, total);
    }
    if (pw >= NAMES_FROM_PX) for (let i = 0; i < total; i++) nameNode(view, order[i] as number);
  }
  if (marks) for (let i = 0; i < total; i++) markCell(pen, scene, tile, order[i] as number, marks, ox, oy, pw, ph, gap);
}

const hasCards = (center: Center) => center.nodes.cardHealth.length > 0;

interface View {
  pen: Pen;
  scene: Scene;
  camera: Camera;
  size: Size;
  text: Text;
  index: number;
  tile: Tile;
  center: Center;
  paint: Paint;
  stats: Stats;
  pw: number;
  ph: number;
  gap: number;
}

function drawSigns(
  pen: Pen,
  scene: Scene,
  tile: Tile,
  starts: Int32Array,
  ox: number,
  oy: number,
  pw: number,
  ph: number,
  gap: number,
): void {
  for (const health of [Health.down, Health.warning, Health.unknown, Health.isolated]) {
    const [from, to] = [starts[health] ?? 0, starts[health + 1] ?? 0];
    if (from === to) continue;
    pen.strokeStyle = scene.palette.onHealth[health] ?? "";
    pen.lineWidth = Math.max(1.2, ph * 0.09);
    pen.beginPath();
    for (let i = from; i < to; i++) {
      const cell = tile.cells[order[i] as number] ?? 0;
      const x = ox + (cell % tile.grid.columns) * pw + (pw - gap) / 2;
      const y = oy + Math.floor(cell / tile.grid.columns) * ph + (ph - gap) / 2;
      sign(pen, health, x, y, ph * 0.2);
    }
    pen.stroke();
  }
}

// A node that shows its cards: a pale ground with an edge in its color.
function drawNode(v: View, node: number, open: number): void {
  const { pen, scene, tile, camera, size, paint, center } = v;
  const cell = cellBox(tile, node);
  const [x, y] = toScreen(camera, size, cell.x, cell.y);
  const color = scene.colors[paint.nodes[node] ?? 0] ?? "";
  const cards = cardCount(center.nodes, node) > 0;
  pen.globalAlpha = open;
  pen.fillStyle = cards ? mix(scene.palette.tile, color, 0.2) : color;
  if (v.pw < NAMES_FROM_PX) {
    pen.fillRect(x, y, v.pw - v.gap, v.ph - v.gap);
  } else {
    roundRect(pen, x, y, v.pw - v.gap, v.ph - v.gap, Math.min(8, v.pw * 0.04), size);
    pen.fill();
  }
  pen.fillStyle = color;
  pen.fillRect(x, y, Math.max(2, Math.min(6, v.pw * 0.035)), v.ph - v.gap);
  pen.globalAlpha = 1;
}

/** Cards at least this wide say which they are; at least twice this, what they are. */
const CARD_NAMES_FROM_PX = 30;

function drawCards(v: View, total: number): void {
  const { pen, scene, tile, camera, size, paint, center, stats } = v;
  const { cardStart } = center.nodes;
  const lists: number[][] = scene.colors.map(() => []);
  for (let i = 0; i < total; i++) {
    const node = order[i] as number;
    const count = cardCount(center.nodes, node);
    const cell = cellBox(tile, node);
    for (let n = 0; n < count; n++) {
      const b = cardBox(cell, count, n);
      const [x, y] = toScreen(camera, size, b.x, b.y);
      const [w, h] = [b.w * camera.k, b.h * camera.k];
      if (x > size.width || y > size.height || x + w < 0 || y + h < 0) continue;
      stats.cards++;
      lists[paint.cards[(cardStart[node] ?? 0) + n] ?? 0]?.push(x, y, w, h);
      if (w >= CARD_NAMES_FROM_PX) named.push(v.index, node, n, x, y, w, h);
    }
  }
  lists.forEach((list, color) => {
    if (list.length === 0) return;
    pen.fillStyle = scene.colors[color] ?? "";
    pen.globalAlpha = scene.alphaOf(color);
    for (let i = 0; i < list.length; i += 4) {
      const [x, y, w, h] = [list[i] as number, list[i + 1] as number, list[i + 2] as number, list[i + 3] as number];
      const gap = Math.min(6, w * 0.1);
      if (w < 16) pen.fillRect(x, y, w - gap, h - gap);
      else {
        roundRect(pen, x, y, w - gap, h - gap, Math.min(10, w * 0.1), size);
        pen.fill();
      }
    }
  });
  pen.globalAlpha = 1;
  for (let i = 0; i < named.length; i += 7) nameCard(v, named.slice(i + 1, i + 7));
  named.length = 0;
}

const named: number[] = [];

function nameCard(v: View, at: number[]): void {
  const [node = 0, n = 0, x = 0, y = 0, w = 0, h = 0] = at;
  const { scene, center, paint, pen, text } = v;
  const card = cardOf(center.nodes, node, n);
  if (!card) return;
  const i = (center.nodes.cardStart[node] ?? 0) + n;
  const color = paint.cards[i] ?? 0;
  const ink = scene.values ? readable(scene.colors[color] ?? "#000000") : (scene.palette.onHealth[color] ?? "");
  const px = Math.min(16, w * 0.24);
  const [cx, cy] = [x + w * 0.46, y + h * 0.46];
  const large = w >= 2 * CARD_NAMES_FROM_PX;
  const value = scene.values?.centers[v.index]?.cards[i];
  const lines = [large ? `${card.resource}/${card.index}` : String(card.index)];
  if (large && card.model && h > px * 3.4) lines.push(card.model);
  if (value !== undefined && Number.isFinite(value) && h > px * (1.2 + lines.length * 1.2))
    lines.push(scene.words.value(value));
  lines.forEach((line, j) => {
    const top = cy + (j - (lines.length - 1) / 2) * px * 1.25;
    text.draw(line, cx, top, {
      px: j === 0 ? px : px * 0.85,
      color: ink,
      width: w * 0.86,
      center: true,
      bold: j === 0,
    });
  });
  const health = center.nodes.cardHealth[i] ?? 0;
  if (!scene.values && w > 44 && health > Health.busy) {
    pen.strokeStyle = ink;
    pen.lineWidth = Math.max(1.4, w * 0.02);
    pen.beginPath();
    sign(pen, health, x + w * 0.82, y + h * 0.14 + 3, Math.min(6, w * 0.06));
    pen.stroke();
  }
}

/** Black or white, whichever is read better on a color. */
function readable(hex: string): string {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((i) => Number.parseInt(hex.slice(i, i + 2), 16));
  return r * 0.299 + g * 0.587 + b * 0.114 > 140 ? "#10161d" : "#ffffff";
}

function nameNode(v: View, node: number): void {
  const { scene, tile, camera, size, text, center, pen, paint } = v;
  const cell = cellBox(tile, node);
  const [x, y] = toScreen(camera, size, cell.x, cell.y);
  const cards = cardCount(center.nodes, node) > 0;
  const health = center.nodes.health[node] ?? 0;
  const color = paint.nodes[node] ?? 0;
  const ink = cards
    ? scene.palette.text
    : scene.values
      ? readable(scene.colors[color] ?? "#000000")
      : (scene.palette.onHealth[color] ?? "");
  const head = cards ? CELL_HEAD * v.ph : v.ph - v.gap;
  const px = Math.min(15, head * 0.5, v.pw * 0.16);
  // The name of a node that reaches beyond the edge stays in view.
  const left = Math.max(x + Math.max(v.pw * CELL_PAD * 1.3, 5), 10);
  let right = Math.min(x + v.pw - v.gap - 6, size.width - 10);
  if (health > Health.busy && !scene.values) {
    const r = Math.min(6, px * 0.4);
    pen.strokeStyle = cards ? (scene.palette.health[health] ?? "") : ink;
    pen.lineWidth = Math.max(1.6, r * 0.45);
    pen.beginPath();
    sign(pen, health, right - r, y + head / 2, r);
    pen.stroke();
    right -= 3 * r;
  }
  const value = scene.values?.centers[v.index]?.nodes[node];
  if (v.pw > 2 * NAMES_FROM_PX) {
    const said = value !== undefined && Number.isFinite(value) ? scene.words.value(value) : "";
    const width = said ? text.width(said, px * 0.9) + 6 : 0;
    text.draw(said, right, y + head / 2, { px: px * 0.9, color: ink, width: width + 2, right: true });
    right -= width;
  }
  text.draw(center.nodes.names[node] ?? "", left, y + head / 2, { px, color: ink, width: right - left, bold: true });
}

function markCell(
  pen: Pen,
  scene: Scene,
  tile: Tile,
  node: number,
  marks: Uint8Array,
  ox: number,
  oy: number,
  pw: number,
  ph: number,
  gap: number,
): void {
  const mark = marks[node] ?? 0;
  const cell = tile.cells[node] ?? 0;
  const x = ox + (cell % tile.grid.columns) * pw;
  const y = oy + Math.floor(cell / tile.grid.columns) * ph;
  const [w, h] = [pw - gap, ph - gap];
  if (mark === Mark.none || mark === Mark.removed) {
    // What stayed the same steps back; what is gone is only an outline.
    pen.globalAlpha = mark === Mark.removed ? 1 : 0.72;
    pen.fillStyle = scene.palette.tile;
    pen.fillRect(x - 0.5, y - 0.5, w + 1, h + 1);
    pen.globalAlpha = 1;
    if (mark === Mark.none) return;
  }
  const color = scene.palette.marks[mark - 1] ?? "";
  const line = Math.min(3, Math.max(1, pw * 0.12));
  pen.strokeStyle = color;
  pen.lineWidth = line;
  if (mark === Mark.removed && pw > 12) pen.setLineDash([line * 2, line * 1.5]);
  pen.strokeRect(x + line / 2, y + line / 2, Math.max(0.5, w - line), Math.max(0.5, h - line));
  pen.setLineDash([]);
}

function markTile(pen: Pen, scene: Scene, index: number, x: number, y: number, w: number, h: number, size: Size): void {
  const mark = scene.marks?.centers[index] ?? 0;
  if (mark === Mark.none) return;
  pen.strokeStyle = scene.palette.marks[mark - 1] ?? "";
  pen.lineWidth = 2.5;
  if (mark === Mark.removed) pen.setLineDash([6, 5]);
  roundRect(pen, x, y, w, h, Math.min(9, w * 0.06), size);
  pen.stroke();
  pen.setLineDash([]);
}
