// Figures of the topology for people.
import { formatBytes } from "../format";

/** A value of a unit as the platform names it. */
export function formatFigure(value: number, unit: string): string {
  if (!Number.isFinite(value)) return "–";
  switch (unit) {
    case "ratio":
      return `${(value * 100).toFixed(value < 0.1 && value > 0 ? 1 : 0)}%`;
    case "seconds":
      return formatSeconds(value);
    case "bytes":
      return formatBytes(value);
    case "bytes/second":
    case "bytes per second":
      return `${formatBytes(value)}/s`;
    case "bits/second":
    case "bits per second":
      return formatBits(value);
    default:
      return `${plain(value)}${unit ? ` ${unit}` : ""}`;
  }
}

export function formatSeconds(seconds: number): string {
  if (seconds >= 1) return `${plain(seconds)} s`;
  if (seconds >= 1e-3) return `${plain(seconds * 1e3)} ms`;
  return `${plain(seconds * 1e6)} µs`;
}

const BITS = ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"];

export function formatBits(bits: number): string {
  let value = bits;
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < BITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${plain(value)} ${BITS[unit]}`;
}

// Three significant digits without an exponent.
function plain(value: number): string {
  const size = Math.abs(value);
  const digits = size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return String(Number(value.toFixed(digits)));
}
