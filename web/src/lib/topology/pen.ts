// What draws, and the strokes the drawing is made of.
import type { Size } from "./camera";
import { Health } from "./model";

/** How much a frame drew: what its time is spent on. */
export interface Stats {
  tiles: number;
  cells: number;
  cards: number;
  links: number;
  texts: number;
}

/** What a canvas offers that is used here; tests bring their own. */
export type Pen = Pick<
  CanvasRenderingContext2D,
  | "fillStyle"
  | "strokeStyle"
  | "lineWidth"
  | "globalAlpha"
  | "font"
  | "textAlign"
  | "textBaseline"
  | "lineCap"
  | "fillRect"
  | "strokeRect"
  | "clearRect"
  | "beginPath"
  | "moveTo"
  | "lineTo"
  | "quadraticCurveTo"
  | "arc"
  | "closePath"
  | "roundRect"
  | "fill"
  | "stroke"
  | "fillText"
  | "measureText"
  | "setLineDash"
  | "save"
  | "restore"
>;

export interface Area {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

/**
 * A rounded rectangle as a path. What reaches far beyond the screen is cut
 * off there: a rasterizer takes the whole of it otherwise.
 */
export function roundRect(pen: Pen, x: number, y: number, w: number, h: number, r: number, size: Size): void {
  const far = 64;
  const x0 = Math.max(x, -far);
  const y0 = Math.max(y, -far);
  const x1 = Math.min(x + w, size.width + far);
  const y1 = Math.min(y + h, size.height + far);
  pen.beginPath();
  if (x1 > x0 && y1 > y0) pen.roundRect(x0, y0, x1 - x0, y1 - y0, Math.max(0, r));
}

/** Adds the sign of a health to the path: what is well has none. */
export function sign(pen: Pen, health: number, x: number, y: number, r: number): void {
  switch (health) {
    case Health.down:
      pen.moveTo(x - r, y - r);
      pen.lineTo(x + r, y + r);
      pen.moveTo(x + r, y - r);
      pen.lineTo(x - r, y + r);
      break;
    case Health.warning:
      pen.moveTo(x, y - r);
      pen.lineTo(x, y + r * 0.25);
      pen.moveTo(x, y + r * 0.85);
      pen.lineTo(x, y + r);
      break;
    case Health.unknown:
      pen.moveTo(x - r, y);
      pen.lineTo(x + r, y);
      break;
    case Health.isolated:
      pen.moveTo(x - r * 0.5, y - r);
      pen.lineTo(x - r * 0.5, y + r);
      pen.moveTo(x + r * 0.5, y - r);
      pen.lineTo(x + r * 0.5, y + r);
      break;
  }
}

export interface TextStyle {
  px: number;
  color: string;
  /** What does not fit into this is cut off. */
  width: number;
  bold?: boolean;
  center?: boolean;
  right?: boolean;
}

/** Writes text; remembers how wide texts are. */
export class Text {
  private pen: Pen | undefined;
  private stats: Stats | undefined;
  private readonly widths = new Map<string, number>();
  private readonly cuts = new Map<string, string>();

  constructor(private readonly family: string) {}

  begin(pen: Pen, stats: Stats): void {
    this.pen = pen;
    this.stats = stats;
    pen.textBaseline = "middle";
  }

  width(text: string, px: number, bold = false): number {
    // Measured once at a fixed size: widths grow with it.
    const key = bold ? `b${text}` : `n${text}`;
    let width = this.widths.get(key);
    if (width === undefined) {
      if (!this.pen) return 0;
      if (this.widths.size > 50_000) this.widths.clear();
      this.pen.font = this.font(100, bold);
      width = this.pen.measureText(text).width / 100;
      this.widths.set(key, width);
    }
    return width * px;
  }

  draw(text: string, x: number, y: number, style: TextStyle): void {
    if (!this.pen || style.width < style.px * 1.2 || text === "") return;
    const px = Math.round(style.px * 2) / 2;
    const shown = this.cut(text, px, style);
    if (shown === "") return;
    this.pen.font = this.font(px, style.bold ?? false);
    this.pen.fillStyle = style.color;
    this.pen.textAlign = style.center ? "center" : style.right ? "right" : "left";
    this.pen.fillText(shown, x, y);
    if (this.stats) this.stats.texts++;
  }

  private cut(text: string, px: number, style: TextStyle): string {
    const full = this.width(text, px, style.bold);
    if (full <= style.width) return text;
    const room = Math.floor((text.length * (style.width - px * 0.7)) / full);
    if (room < 2) return "";
    const key = `${room}:${text}`;
    let cut = this.cuts.get(key);
    if (cut === undefined) {
      if (this.cuts.size > 20_000) this.cuts.clear();
      // Names of nodes differ at their ends.
      const tail = Math.min(Math.floor(room / 2), 6);
      cut = room < 6 ? `${text.slice(0, room - 1)}…` : `${text.slice(0, room - tail - 1)}…${text.slice(-tail)}`;
      this.cuts.set(key, cut);
    }
    return cut;
  }

  private font(px: number, bold: boolean): string {
    return `${bold ? "600 " : ""}${px}px ${this.family}`;
  }
}
