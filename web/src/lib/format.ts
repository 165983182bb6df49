// Numbers, money and times as people read them. Money and counts are integers
// (bigint) and stay integers: no float ever holds an amount.
import type { Timestamp } from "@bufbuild/protobuf/wkt";

/** What is shown where there is nothing to show. */
export const NONE = "–";

function group(digits: string): string {
  return digits.replace(/\B(?=(\d{3})+$)/g, ",");
}

function decimal(value: bigint, places: number): string {
  const negative = value < 0n;
  const digits = (negative ? -value : value).toString().padStart(places + 1, "0");
  const whole = group(digits.slice(0, digits.length - places));
  return `${negative ? "−" : ""}¥${whole}.${digits.slice(digits.length - places)}`;
}

/** Fen (0.01 CNY) as yuan with two decimals: 123456n is "¥1,234.56". */
export function formatFen(fen: bigint): string {
  return decimal(fen, 2);
}

/** Micro-yuan as yuan with six decimals: 1500n is "¥0.001500". */
export function formatMicros(micros: bigint): string {
  return decimal(micros, 6);
}

/** "12.34" or "12" yuan as fen, undefined if it is not an amount of whole fen. */
export function parseYuan(text: string): bigint | undefined {
  const match = /^(\d{1,13})(?:\.(\d{1,2}))?$/.exec(text.trim().replace(/^¥/, "").replaceAll(",", ""));
  if (!match) return undefined;
  return BigInt(match[1] ?? "0") * 100n + BigInt((match[2] ?? "").padEnd(2, "0"));
}

/** Fen as a plain decimal for input fields: 1250n is "12.50". */
export function fenToInput(fen: bigint): string {
  return `${fen / 100n}.${(fen % 100n).toString().padStart(2, "0")}`;
}

/** An integer with thousands separated. */
export function formatCount(n: bigint | number): string {
  const text = typeof n === "bigint" ? n.toString() : Math.round(n).toString();
  return text.startsWith("-") ? `−${group(text.slice(1))}` : group(text);
}

/** Part of total in percent, 0 to 100; 0 if there is no total. */
export function percent(part: bigint | number, total: bigint | number): number {
  const whole = Number(total);
  if (whole <= 0) return 0;
  return Math.min(100, Math.max(0, (Number(part) / whole) * 100));
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] as const;

/** Bytes in binary units with three significant digits: 1536n is "1.5 KiB". */
export function formatBytes(bytes: bigint | number): string {
  let value = Number(bytes);
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  const text = unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2).replace(/\.?0+$/, "");
  return `${text} ${UNITS[unit]}`;
}

/** MB (2^20 bytes), as the standard's tables count memory. */
export function formatMiB(mib: bigint | number): string {
  return formatBytes(Number(mib) * 1024 * 1024);
}

/** GB (2^30 bytes), as the standard's tables count storage. */
export function formatGiB(gib: bigint | number): string {
  return formatBytes(Number(gib) * 1024 * 1024 * 1024);
}

/** Cores with at most two decimals: 1.984 is "1.98". */
export function formatCores(cores: bigint | number): string {
  return String(Math.round(Number(cores) * 100) / 100);
}

/** Microseconds as milliseconds: 1234n is "1.23 ms". */
export function formatMillis(micros: bigint): string {
  const ms = Number(micros) / 1000;
  if (ms >= 100) return `${formatCount(ms)} ms`;
  return `${ms.toFixed(ms >= 10 ? 1 : 2)} ms`;
}

/** A duration in microseconds: "840 ms", "12.3 s", "4 m 05 s", "2 h 13 m", "3 d 04 h". */
export function formatDuration(micros: bigint | number): string {
  const ms = Math.max(0, Number(micros) / 1000);
  if (ms < 1000) return `${ms < 10 && ms > 0 ? ms.toFixed(1) : ms.toFixed(0)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  const two = (n: number) => n.toString().padStart(2, "0");
  if (s < 3600) return `${Math.floor(s / 60)} m ${two(s % 60)} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${two(Math.floor((s % 3600) / 60))} m`;
  return `${Math.floor(s / 86_400)} d ${two(Math.floor((s % 86_400) / 3600))} h`;
}

/** Milliseconds since 1970 UTC, undefined for an unset time. */
export function millis(t: Timestamp | undefined): number | undefined {
  if (!t || (t.seconds === 0n && t.nanos === 0)) return undefined;
  return Number(t.seconds) * 1000 + Math.floor(t.nanos / 1_000_000);
}

/** Microseconds between two times; to is now if it is unset, undefined if from is. */
export function microsBetween(from: Timestamp | undefined, to: Timestamp | undefined, now: number): number | undefined {
  const start = micros(from);
  if (start === undefined) return undefined;
  return Math.max(0, (micros(to) ?? now * 1000) - start);
}

function micros(t: Timestamp | undefined): number | undefined {
  if (!t || (t.seconds === 0n && t.nanos === 0)) return undefined;
  return Number(t.seconds) * 1_000_000 + Math.floor(t.nanos / 1000);
}

const two = (n: number) => n.toString().padStart(2, "0");

/** "2026-11-21 14:03:07" in the viewer's zone. */
export function formatTime(ms: number): string {
  const d = new Date(ms);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${formatClock(ms)}`;
}

/** "14:03:07" in the viewer's zone. */
export function formatClock(ms: number): string {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** "11-21 14:03:07" in the viewer's zone: for tables, where the year is clear. */
export function formatShortTime(ms: number, now: number): string {
  const d = new Date(ms);
  if (d.getFullYear() !== new Date(now).getFullYear()) return formatTime(ms);
  return `${two(d.getMonth() + 1)}-${two(d.getDate())} ${formatClock(ms)}`;
}

/** "2026-11-21T06:03:07.123Z". */
export function formatUTC(ms: number): string {
  return new Date(ms).toISOString();
}

/** Kubernetes quantity of memory or storage in bytes ("2Gi"), undefined if it is none. */
export function parseQuantity(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$/.exec(text.trim());
  if (!match) return undefined;
  return Number(match[1]) * (SCALE[match[2] ?? ""] ?? 1);
}

const SCALE: Record<string, number> = {
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  Ki: 1024,
  Mi: 1024 ** 2,
  Gi: 1024 ** 3,
  Ti: 1024 ** 4,
  Pi: 1024 ** 5,
};
