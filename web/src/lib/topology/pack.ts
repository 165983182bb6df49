// Where boxes go next to each other: each as near to where it wants to be as
// is free, in the order given. A box never moves for one that comes later, so
// what joins does not shuffle what was there.

export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

/** A box to place. Without a wish it goes to the middle. */
export interface Wish {
  w: number;
  h: number;
  x?: number;
  y?: number;
}

/** Boxes stand on this grid, in units of the world. */
export const GRID = 4;
/** Between boxes. */
export const GAP = 8;
/** Views are wider than high; so is what is packed without wishes. */
const ASPECT = 1.6;
/** More than this many are put in rows: looking for the nearest free place takes the square of their number. */
const SEARCH_LIMIT = 240;

const snap = (n: number) => Math.round(n / GRID) * GRID;

/** Boxes found by where they are. */
export class BoxIndex {
  private readonly cells = new Map<number, number[]>();
  private readonly seen: Uint32Array;
  private turn = 0;

  constructor(
    readonly boxes: readonly Box[],
    private readonly size: number,
    capacity = boxes.length,
  ) {
    this.seen = new Uint32Array(capacity);
    for (let i = 0; i < boxes.length; i++) this.add(i);
  }

  add(i: number): void {
    const b = this.boxes[i];
    if (!b) return;
    for (let cy = Math.floor(b.y / this.size); cy <= Math.floor((b.y + b.h) / this.size); cy++) {
      for (let cx = Math.floor(b.x / this.size); cx <= Math.floor((b.x + b.w) / this.size); cx++) {
        const key = keyOf(cx, cy);
        const list = this.cells.get(key);
        if (list) list.push(i);
        else this.cells.set(key, [i]);
      }
    }
  }

  /** Calls visit once with each box that meets the area, until it returns true; says whether it did. */
  meets(x0: number, y0: number, x1: number, y1: number, visit: (i: number) => boolean | undefined): boolean {
    this.turn++;
    for (let cy = Math.floor(y0 / this.size); cy <= Math.floor(y1 / this.size); cy++) {
      for (let cx = Math.floor(x0 / this.size); cx <= Math.floor(x1 / this.size); cx++) {
        for (const i of this.cells.get(keyOf(cx, cy)) ?? []) {
          if (this.seen[i] === this.turn) continue;
          this.seen[i] = this.turn;
          const b = this.boxes[i];
          if (b && b.x < x1 && b.x + b.w > x0 && b.y < y1 && b.y + b.h > y0 && visit(i)) return true;
        }
      }
    }
    return false;
  }
}

const keyOf = (cx: number, cy: number) => (cx + 32_768) * 65_536 + (cy + 32_768);

/** Places the boxes; answers one for each, around the origin. */
export function pack(wishes: readonly Wish[]): Box[] {
  return wishes.length > SEARCH_LIMIT ? rows(wishes) : nearest(wishes);
}

function nearest(wishes: readonly Wish[]): Box[] {
  const placed: Box[] = [];
  const index = new BoxIndex(placed, 64, wishes.length);
  for (const wish of wishes) {
    const { w, h } = wish;
    const x = snap((wish.x ?? 0) - w / 2);
    const y = snap((wish.y ?? 0) - h / 2);
    let best: { x: number; y: number; far: number } | undefined;
    const consider = (cx: number, cy: number) => {
      const far = ((cx - x) / ASPECT) ** 2 + (cy - y) ** 2;
      if (best && (far - best.far || cy - best.y || cx - best.x) >= 0) return;
      if (!index.meets(cx - GAP + 1, cy - GAP + 1, cx + w + GAP - 1, cy + h + GAP - 1, () => true)) {
        best = { x: cx, y: cy, far };
      }
    };
    consider(x, y);
    // Where it is not free, the nearest free place touches something.
    for (let i = 0; i < placed.length && best?.far !== 0; i++) {
      const b = placed[i] as Box;
      for (const side of [b.x - GAP - w, b.x + b.w + GAP]) {
        consider(side, y);
        consider(side, b.y);
        consider(side, b.y + b.h - h);
      }
      for (const side of [b.y - GAP - h, b.y + b.h + GAP]) {
        consider(x, side);
        consider(b.x, side);
        consider(b.x + b.w - w, side);
      }
    }
    // Beside the outermost box there is always room.
    const { x: px, y: py } = best ?? { x, y };
    placed.push({ x: px, y: py, w, h });
    index.add(placed.length - 1);
  }
  return placed;
}

// In rows of about equal width: from north to south if places are wished for,
// in order otherwise; within a row from west to east.
function rows(wishes: readonly Wish[]): Box[] {
  const order = wishes.map((_, i) => i);
  const at = (i: number) => wishes[i] as Wish;
  order.sort((a, b) => (at(a).y ?? 0) - (at(b).y ?? 0) || a - b);
  const area = wishes.reduce((sum, w) => sum + (w.w + GAP) * (w.h + GAP), 0);
  const width = Math.sqrt(area * ASPECT);
  const boxes: Box[] = new Array(wishes.length);
  let y = 0;
  for (let start = 0; start < order.length; ) {
    let end = start;
    let taken = 0;
    while (end < order.length && (taken === 0 || taken + at(order[end] as number).w <= width)) {
      taken += at(order[end] as number).w + GAP;
      end++;
    }
    const row = order.slice(start, end).sort((a, b) => (at(a).x ?? 0) - (at(b).x ?? 0) || a - b);
    let x = 0;
    let height = 0;
    for (const i of row) {
      boxes[i] = { x, y, w: at(i).w, h: at(i).h };
      x += at(i).w + GAP;
      height = Math.max(height, at(i).h);
    }
    y += height + GAP;
    start = end;
  }
  return boxes;
}

/** The box around all; a point at the origin if there are none. */
export function around(boxes: readonly Box[]): Box {
  if (boxes.length === 0) return { x: 0, y: 0, w: 0, h: 0 };
  let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const b of boxes) {
    x0 = Math.min(x0, b.x);
    y0 = Math.min(y0, b.y);
    x1 = Math.max(x1, b.x + b.w);
    y1 = Math.max(y1, b.y + b.h);
  }
  return { x: x0, y: y0, w: x1 - x0, h: y1 - y0 };
}
