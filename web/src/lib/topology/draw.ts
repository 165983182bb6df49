// One frame of the view on a canvas. Only what is on the screen is visited:
// tiles are found by where they are, cells of a tile by their row and column.
// What would be smaller than a few pixels is drawn as one.
import type { Camera, Size } from "./camera";
import { boxOf, toScreen, toWorld } from "./camera";
import { drawTile, TITLES_FROM_PX } from "./drawtile";
import type { Frame } from "./layout";
import type { Link, Target } from "./model";
import type { Box } from "./pack";
import { type Area, type Pen, roundRect, type Stats, type Text } from "./pen";
import type { Scene } from "./scene";

/** Links are labelled if there are at most this many of them in view. */
const LABELED_LINKS = 14;
/** More than this many are drawn faintly. */
const CROWD = 150;

/** Draws a frame and says how much that was. */
export function draw(pen: Pen, scene: Scene, camera: Camera, size: Size, text: Text, hover?: Target): Stats {
  const stats: Stats = { tiles: 0, cells: 0, cards: 0, links: 0, texts: 0 };
  pen.clearRect(0, 0, size.width, size.height);
  text.begin(pen, stats);
  const [x0, y0] = toWorld(camera, size, 0, 0);
  const [x1, y1] = toWorld(camera, size, size.width, size.height);
  const area = { x0, y0, x1, y1 };
  const { layout } = scene;
  for (const g of layout.outerFirst) {
    const frame = layout.frames[g];
    if (frame && meets(frame, area)) drawFrame(pen, scene, camera, size, text, g, frame);
  }
  const tiles: number[] = [];
  layout.index.meets(x0, y0, x1, y1, (i) => {
    tiles.push(i);
    return undefined;
  });
  tiles.sort((a, b) => a - b);
  const links = linksInView(scene, tiles, area);
  const chosen = scene.selected && linksAt(scene, scene.selected);
  for (const i of links) drawLink(pen, scene, camera, size, i, chosen ? (chosen.has(i) ? 1 : 0.18) : fade(links.size));
  stats.links = links.size;
  for (const i of tiles) {
    stats.tiles++;
    drawTile(pen, scene, camera, size, text, i, area, stats);
  }
  if (chosen) for (const i of chosen) if (links.has(i)) drawLink(pen, scene, camera, size, i, 1);
  const labeled = chosen ? [...links].filter((i) => chosen.has(i)) : links.size <= LABELED_LINKS ? [...links] : [];
  const taken: Box[] = [];
  for (const i of labeled.slice(0, 40)) labelLink(pen, scene, camera, size, text, i, taken);
  outline(pen, scene, camera, size, hover, 1.5, scene.palette.muted);
  outline(pen, scene, camera, size, scene.selected, 2.5, scene.palette.accent);
  return stats;
}

function fade(count: number): number {
  return count > CROWD ? Math.max(0.12, (0.6 * CROWD) / count) : 0.75;
}

function meets(b: Box, area: Area): boolean {
  return b.x < area.x1 && b.x + b.w > area.x0 && b.y < area.y1 && b.y + b.h > area.y0;
}

function drawFrame(pen: Pen, scene: Scene, camera: Camera, size: Size, text: Text, g: number, frame: Frame): void {
  const { palette, graph, words } = scene;
  const group = graph.groups[g];
  if (!group) return;
  const [x, y] = toScreen(camera, size, frame.x, frame.y);
  const [w, h] = [frame.w * camera.k, frame.h * camera.k];
  if (frame.depth > 0) {
    pen.fillStyle = palette.group[Math.min(frame.depth, palette.group.length - 1)] ?? palette.tile;
    roundRect(pen, x, y, w, h, Math.min(18, 6 * camera.k), size);
    pen.fill();
    pen.strokeStyle = palette.line;
    pen.lineWidth = 1;
    pen.stroke();
    const header = frame.header * camera.k;
    const px = Math.min(15, Math.max(8, header * 0.62));
    if (header >= TITLES_FROM_PX) {
      const left = Math.max(x + 10, 8);
      text.draw(group.name, left, y + header / 2 + 2, {
        px,
        color: palette.muted,
        width: x + w - left - 10,
        bold: true,
      });
    }
  }
  if (frame.hub) drawHub(pen, scene, camera, size, text, frame.hub, frame.depth === 0 ? words.network : group.name);
}

function drawHub(pen: Pen, scene: Scene, camera: Camera, size: Size, text: Text, hub: Box, name: string): void {
  const { palette } = scene;
  const [x, y] = toScreen(camera, size, hub.x + hub.w / 2, hub.y + hub.h / 2);
  const r = (hub.w / 2) * camera.k * 0.7;
  pen.fillStyle = palette.tile;
  pen.strokeStyle = palette.accent;
  pen.lineWidth = Math.max(1.5, r * 0.08);
  pen.beginPath();
  pen.arc(x, y, r, 0, 2 * Math.PI);
  pen.fill();
  pen.stroke();
  // Three points joined to one: a network.
  pen.lineWidth = Math.max(1, r * 0.06);
  pen.beginPath();
  for (let i = 0; i < 3; i++) {
    const angle = -Math.PI / 2 + (i * 2 * Math.PI) / 3;
    pen.moveTo(x, y);
    pen.lineTo(x + Math.cos(angle) * r * 0.52, y + Math.sin(angle) * r * 0.52);
  }
  pen.stroke();
  pen.fillStyle = palette.accent;
  for (let i = -1; i < 3; i++) {
    const angle = -Math.PI / 2 + (i * 2 * Math.PI) / 3;
    const at = i < 0 ? 0 : r * 0.52;
    pen.beginPath();
    pen.arc(x + Math.cos(angle) * at, y + Math.sin(angle) * at, r * (i < 0 ? 0.2 : 0.14), 0, 2 * Math.PI);
    pen.fill();
  }
  if (r >= 12) {
    text.draw(name, x, y + r + 9, {
      px: Math.min(13, Math.max(9, r * 0.5)),
      color: palette.text,
      width: r * 5,
      center: true,
    });
  }
}

// Links of what is in view: a link both of whose ends are elsewhere says nothing here.
function linksInView(scene: Scene, tiles: readonly number[], area: Area): Set<number> {
  const found = new Set<number>();
  if (scene.graph.links.length === 0) return found;
  for (const t of tiles) for (const l of scene.links(scene.graph.centers[t]?.id ?? "")) found.add(l);
  for (const g of scene.layout.outerFirst) {
    const hub = scene.layout.frames[g]?.hub;
    if (hub && meets(hub, area)) for (const l of scene.links(scene.graph.groups[g]?.id ?? "")) found.add(l);
  }
  return found;
}

function linksAt(scene: Scene, target: Target): Set<number> | undefined {
  const id =
    target.level === "center" || target.level === "node" || target.level === "card"
      ? scene.graph.centers[target.index]?.id
      : scene.graph.groups[target.index]?.id;
  const links = id === undefined ? [] : scene.links(id);
  return links.length ? new Set(links) : undefined;
}

/** The box at which a link ends. */
function endBox(scene: Scene, id: string): Box | undefined {
  const center = scene.centerOf(id);
  if (center !== undefined) return scene.layout.tiles[center];
  const group = scene.groupOf(id);
  return group === undefined ? undefined : scene.layout.frames[group]?.hub;
}

interface Curve {
  x0: number;
  y0: number;
  cx: number;
  cy: number;
  x1: number;
  y1: number;
}

/** The way of a link on the screen, from edge to edge of what it connects. */
export function curveOf(scene: Scene, camera: Camera, size: Size, link: Link): Curve | undefined {
  const a = endBox(scene, link.from);
  const b = endBox(scene, link.to);
  if (!a || !b) return undefined;
  const [ax, ay] = toScreen(camera, size, a.x + a.w / 2, a.y + a.h / 2);
  const [bx, by] = toScreen(camera, size, b.x + b.w / 2, b.y + b.h / 2);
  const bend = ((hash(link.id) & 1) === 0 ? 1 : -1) * (0.07 + ((hash(link.id) >> 1) & 7) * 0.008);
  const cx = (ax + bx) / 2 - (by - ay) * bend;
  const cy = (ay + by) / 2 + (bx - ax) * bend;
  const [x0, y0] = leave(ax, ay, (a.w * camera.k) / 2, (a.h * camera.k) / 2, cx, cy);
  const [x1, y1] = leave(bx, by, (b.w * camera.k) / 2, (b.h * camera.k) / 2, cx, cy);
  return { x0, y0, cx, cy, x1, y1 };
}

// Where the way from the middle of a box to a point leaves the box.
function leave(x: number, y: number, halfWidth: number, halfHeight: number, tx: number, ty: number): [number, number] {
  const [dx, dy] = [tx - x, ty - y];
  const t = Math.min(
    1,
    dx === 0 ? Infinity : halfWidth / Math.abs(dx),
    dy === 0 ? Infinity : halfHeight / Math.abs(dy),
  );
  return [x + dx * t, y + dy * t];
}

function hash(text: string): number {
  let h = 2_166_136_261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16_777_619);
  return h >>> 0;
}

/** Kinds of link that run over lines others use, too, are dashed. */
const SHARED = new Set([4, 6]);
/** A path that is measured and not declared is dotted. */
const PATH = 7;

function drawLink(pen: Pen, scene: Scene, camera: Camera, size: Size, index: number, alpha: number): void {
  const link = scene.graph.links[index];
  const curve = link && curveOf(scene, camera, size, link);
  if (!link || !curve) return;
  const plain = link.health === 0 || link.health === 1;
  pen.globalAlpha = plain ? alpha * 0.8 : Math.max(alpha, 0.5);
  pen.strokeStyle =
    link.health === 0 ? scene.palette.muted : (scene.palette.health[link.health] ?? scene.palette.muted);
  pen.lineWidth = widthOf(link);
  pen.setLineDash(SHARED.has(link.kind) ? [7, 5] : link.kind === PATH ? [2, 4] : []);
  pen.lineCap = "round";
  pen.beginPath();
  pen.moveTo(curve.x0, curve.y0);
  pen.quadraticCurveTo(curve.cx, curve.cy, curve.x1, curve.y1);
  pen.stroke();
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

// 1 Gb/s and less is thin, 400 Gb/s and more is thick.
function widthOf(link: Link): number {
  if (link.bandwidth === undefined) return 1.4;
  return Math.min(3.6, Math.max(1.2, 1.2 + Math.log10(link.bandwidth / 1e9) * 0.9));
}

function labelLink(pen: Pen, scene: Scene, camera: Camera, size: Size, text: Text, index: number, taken: Box[]): void {
  const link = scene.graph.links[index];
  const curve = link && curveOf(scene, camera, size, link);
  if (!link || !curve || link.latency === undefined) return;
  const value = scene.words.latency(link.latency);
  // The first place along the way at which no tile and no other label is.
  for (const t of [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74]) {
    const x = (1 - t) ** 2 * curve.x0 + 2 * (1 - t) * t * curve.cx + t * t * curve.x1;
    const y = (1 - t) ** 2 * curve.y0 + 2 * (1 - t) * t * curve.cy + t * t * curve.y1;
    if (x < 20 || y < 12 || x > size.width - 20 || y > size.height - 12) continue;
    const w = text.width(value, 11) + 12;
    const [wx0, wy0] = toWorld(camera, size, x - w / 2, y - 9);
    const [wx1, wy1] = toWorld(camera, size, x + w / 2, y + 9);
    if (!scene.selected && scene.layout.index.meets(wx0, wy0, wx1, wy1, () => true)) continue;
    const box = { x: x - w / 2, y: y - 9, w, h: 18 };
    if (taken.some((b) => box.x < b.x + b.w && b.x < box.x + w && box.y < b.y + b.h && b.y < box.y + 18)) continue;
    taken.push(box);
    pen.fillStyle = scene.palette.tile;
    pen.strokeStyle = scene.palette.tileLine;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.roundRect(box.x, box.y, w, 18, 9);
    pen.fill();
    pen.stroke();
    text.draw(value, x, y, { px: 11, color: scene.palette.text, width: w, center: true });
    return;
  }
}

function outline(
  pen: Pen,
  scene: Scene,
  camera: Camera,
  size: Size,
  target: Target | undefined,
  width: number,
  color: string,
): void {
  const box = target && boxOf(target, scene.graph, scene.layout);
  if (!target || !box || (target.level === "network" && width < 2)) return;
  const [x, y] = toScreen(camera, size, box.x, box.y);
  const [w, h] = [box.w * camera.k, box.h * camera.k];
  const grow = target.level === "center" ? 2 : 0;
  pen.strokeStyle = color;
  pen.lineWidth = width;
  roundRect(pen, x - grow, y - grow, w + 2 * grow, h + 2 * grow, Math.min(9, w * 0.06), size);
  pen.stroke();
}
