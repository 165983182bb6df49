// A log as lines, built from pieces of bytes as they arrive.
//
// Offsets count bytes of the whole log, so a broken stream goes on where it
// stopped. At most MAX_LINES lines are kept: when more arrive, the oldest are
// dropped and counted.

export const MAX_LINES = 500_000;
// A line longer than this is shown in parts; it bounds the work per line.
const MAX_LINE_LENGTH = 20_000;

export class LogBuffer {
  /** Complete lines, then the unfinished last one if it is not empty. */
  readonly lines: string[] = [];
  /** Lines dropped from the front. */
  dropped = 0;
  /** Offset of the next byte wanted; undefined until the first piece. */
  next: bigint | undefined;
  /** Counts the changes, so that a view knows when to draw. */
  version = 0;

  private decoder = new TextDecoder("utf-8");
  private open = false;

  constructor(private readonly maxLines = MAX_LINES) {}

  /** Adds a piece. Bytes already known are skipped; a gap (rotated log) is accepted. */
  append(data: Uint8Array, offset: bigint): void {
    let bytes = data;
    if (this.next !== undefined && offset < this.next) {
      const known = this.next - offset;
      if (known >= BigInt(bytes.length)) return;
      bytes = bytes.subarray(Number(known));
    }
    this.next = offset + BigInt(data.length);
    this.push(this.decoder.decode(bytes, { stream: true }));
  }

  private push(text: string): void {
    if (text === "") return;
    const parts = text.split("\n");
    const first = parts[0] ?? "";
    if (this.open) this.lines[this.lines.length - 1] += first;
    else if (first !== "" || parts.length > 1) this.lines.push(first);
    for (let i = 1; i < parts.length; i++) {
      const part = parts[i] ?? "";
      if (i < parts.length - 1 || part !== "") this.lines.push(part);
    }
    const last = parts[parts.length - 1] ?? "";
    this.open = last !== "" || (parts.length === 1 && this.open);
    this.splitLong(parts.length);
    const excess = this.lines.length - this.maxLines;
    if (excess > 0) {
      this.lines.splice(0, excess);
      this.dropped += excess;
    }
    this.version++;
  }

  private splitLong(recent: number): void {
    for (let i = Math.max(0, this.lines.length - recent - 1); i < this.lines.length; i++) {
      const line = this.lines[i] ?? "";
      if (line.length <= MAX_LINE_LENGTH) continue;
      this.lines.splice(i, 1, line.slice(0, MAX_LINE_LENGTH), line.slice(MAX_LINE_LENGTH));
    }
  }
}

/** Indices of the lines that contain text, ignoring case, from a line on. */
export function findLines(lines: readonly string[], text: string, from = 0): number[] {
  const found: number[] = [];
  if (text === "") return found;
  const wanted = text.toLowerCase();
  for (let i = from; i < lines.length; i++) {
    if (
      plain(lines[i] ?? "")
        .toLowerCase()
        .includes(wanted)
    )
      found.push(i);
  }
  return found;
}

/** A stretch of a line in one style. */
export interface Span {
  text: string;
  /** ANSI color 0 to 15. */
  color?: number;
  bold?: boolean;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are control characters
const ESCAPE = /\u001b(?:\[([0-9;?]*)([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\^_])/g;

/** What a terminal would leave of a line on screen: the text after the last carriage return, with its colors. */
export function renderLine(raw: string): Span[] {
  const line = lastOverwrite(raw);
  if (!line.includes("\u001b")) return line === "" ? [] : [{ text: line }];
  const spans: Span[] = [];
  let style: Omit<Span, "text"> = {};
  let at = 0;
  for (const match of line.matchAll(ESCAPE)) {
    if (match.index > at) spans.push({ text: line.slice(at, match.index), ...style });
    at = match.index + match[0].length;
    if (match[2] === "m") style = nextStyle(style, match[1] ?? "");
  }
  if (at < line.length) spans.push({ text: line.slice(at), ...style });
  return spans;
}

/** A line without colors, as it is searched. */
export function plain(raw: string): string {
  const line = lastOverwrite(raw);
  return line.includes("\u001b") ? line.replace(ESCAPE, "") : line;
}

function lastOverwrite(raw: string): string {
  const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
  const cut = line.lastIndexOf("\r");
  return cut < 0 ? line : line.slice(cut + 1);
}

function nextStyle(style: Omit<Span, "text">, codes: string): Omit<Span, "text"> {
  const next = { ...style };
  const list = codes === "" ? [0] : codes.split(";").map(Number);
  for (let i = 0; i < list.length; i++) {
    const code = list[i] ?? 0;
    if (code === 0) {
      next.color = undefined;
      next.bold = undefined;
    } else if (code === 1) next.bold = true;
    else if (code === 22) next.bold = undefined;
    else if (code >= 30 && code <= 37) next.color = code - 30;
    else if (code >= 90 && code <= 97) next.color = code - 90 + 8;
    else if (code === 39) next.color = undefined;
    else if (code === 38 || code === 48) i += list[i + 1] === 5 ? 2 : 4; // 256 and true colors are not drawn
  }
  return next;
}
