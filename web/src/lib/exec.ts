// The frames of a command's session: the first byte is a channel.

/** The protocol of a session, and how a key is sent with it: a page can set no header on a WebSocket. */
export const EXEC_PROTOCOL = "v1.exec.yunhe";

const INPUT = 0;
const OUTPUT = 1;
const ERRORS = 2;
const STATUS = 3;
const RESIZE = 4;

/** The protocol name that carries a key. */
export function keyProtocol(key: string): string {
  const bytes = new TextEncoder().encode(key);
  const base64 = btoa(String.fromCharCode(...bytes));
  return `base64url.bearer.authorization.yunhe.${base64.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

/** Where a command is run beside a replica, with a terminal. */
export function execPath(
  jobId: string,
  replica: { taskIndex: number; replicaIndex: number },
  command: string[],
  size: { columns: number; rows: number },
): string {
  const query = new URLSearchParams({ terminal: "true", columns: String(size.columns), rows: String(size.rows) });
  for (const part of command) query.append("command", part);
  return `/v1/jobs/${encodeURIComponent(jobId)}/tasks/${replica.taskIndex}/replicas/${replica.replicaIndex}/exec?${query}`;
}

function frame(channel: number, data: Uint8Array): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(data.length + 1);
  out[0] = channel;
  out.set(data, 1);
  return out;
}

/** At most this much input goes into one frame. */
const PIECE = 64 << 10;

/** What a person typed or pasted, as frames. */
export function inputFrames(text: string): Uint8Array<ArrayBuffer>[] {
  const bytes = new TextEncoder().encode(text);
  const frames: Uint8Array<ArrayBuffer>[] = [];
  for (let at = 0; at < bytes.length; at += PIECE) frames.push(frame(INPUT, bytes.subarray(at, at + PIECE)));
  return frames;
}

export function resizeFrame(columns: number, rows: number): Uint8Array<ArrayBuffer> {
  return frame(RESIZE, new TextEncoder().encode(JSON.stringify({ columns, rows })));
}

export type ExecMessage =
  | { kind: "output"; data: Uint8Array }
  | { kind: "status"; exitCode?: number; error?: string }
  | { kind: "unknown" };

/** What a frame of the platform says. */
export function readFrame(data: ArrayBuffer): ExecMessage {
  const bytes = new Uint8Array(data);
  const rest = bytes.subarray(1);
  switch (bytes[0]) {
    case OUTPUT:
    case ERRORS:
      return { kind: "output", data: rest };
    case STATUS:
      try {
        const status = JSON.parse(new TextDecoder().decode(rest)) as { exit_code?: number; error?: string };
        return { kind: "status", exitCode: status.exit_code, error: status.error };
      } catch {
        return { kind: "unknown" };
      }
    default:
      return { kind: "unknown" };
  }
}

/** A command line as its parts: blanks part, quotes keep together, a backslash keeps one character. */
export function splitCommand(line: string): string[] {
  const parts: string[] = [];
  let part = "";
  let begun = false;
  let quote = "";
  for (let i = 0; i < line.length; i++) {
    const c = line[i] as string;
    if (quote) {
      if (c === quote) quote = "";
      else part += c;
    } else if (c === "'" || c === '"') {
      quote = c;
      begun = true;
    } else if (c === "\\" && i + 1 < line.length) {
      part += line[++i];
      begun = true;
    } else if (/\s/.test(c)) {
      if (begun) parts.push(part);
      part = "";
      begun = false;
    } else {
      part += c;
      begun = true;
    }
  }
  if (begun) parts.push(part);
  return parts;
}
