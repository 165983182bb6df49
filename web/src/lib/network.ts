// Paths, origins and links as the console shows them.
import { type Path, type PathFact, PathFact_Source } from "../gen/yunhe/network/v1/network_pb";
import { LinkState } from "../gen/yunhe/standing/v1/standing_pb";
import { formatCount } from "./format";
import type { Tone } from "./states";

/** What is known of a path, in the order it is shown. */
export const FACTS = ["latency", "jitter", "loss", "bandwidth", "fee"] as const;
export type Fact = (typeof FACTS)[number];

const NAMES: Readonly<Record<string, Fact>> = {
  latency_us: "latency",
  jitter_us: "jitter",
  loss_ppm: "loss",
  bandwidth_kbps: "bandwidth",
  fee_fen_per_gib: "fee",
};

export const factOf = (f: PathFact): Fact | undefined => NAMES[f.fact];

/** A fact with its unit: "18.2 ms", "0.05%", "10 Gbit/s", "¥0.30". */
export function factText(fact: Fact, value: bigint): string {
  const n = Number(value);
  switch (fact) {
    case "latency":
    case "jitter":
      return `${trim(n / 1000, n < 10_000 ? 3 : 1)} ms`;
    case "loss":
      return `${trim(n / 10_000, 4)}%`;
    case "bandwidth":
      return bitRate(n * 1000);
    case "fee":
      return `¥${(n / 100).toFixed(2)}`;
  }
}

function trim(n: number, digits: number): string {
  return Number(n.toFixed(digits)).toString();
}

/** Bits per second in the largest unit of which there is one: "2.5 Gbit/s". */
export function bitRate(bits: number): string {
  for (const [unit, of] of [
    ["T", 1e12],
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ] as const) {
    if (bits >= of) return `${trim(bits / of, 2)} ${unit}bit/s`;
  }
  return `${formatCount(bits)} bit/s`;
}

const SOURCES = {
  [PathFact_Source.UNSPECIFIED]: "unknown",
  [PathFact_Source.MEASURED]: "measured",
  [PathFact_Source.DECLARED]: "declared",
  [PathFact_Source.LINK]: "link",
  [PathFact_Source.RESOURCE]: "resource",
  [PathFact_Source.ESTIMATED]: "estimated",
} as const;
export const sourceName = (s: PathFact_Source) => SOURCES[s] ?? "unknown";

/** A fact of a path by its name. */
export const pathFact = (p: Path, fact: Fact) => p.facts.find((f) => factOf(f) === fact);

/** "center:gz-1" in its parts; undefined for "*" and what is no end. */
export function endOf(text: string): { kind: "center" | "region" | "origin"; id: string } | undefined {
  const at = text.indexOf(":");
  const kind = text.slice(0, at);
  return at > 0 && (kind === "center" || kind === "region" || kind === "origin")
    ? { kind, id: text.slice(at + 1) }
    : undefined;
}

/** Whether anything of a path was declared, and so may be forgotten. */
export const isDeclared = (p: Path) => p.note !== "" || p.facts.some((f) => f.source === PathFact_Source.DECLARED);

const LINKS = {
  [LinkState.UNSPECIFIED]: "unknown",
  [LinkState.CONNECTED]: "connected",
  [LinkState.SILENT]: "silent",
  [LinkState.LOST]: "lost",
  [LinkState.BACK]: "back",
} as const;
export const linkName = (s: LinkState) => LINKS[s] ?? "unknown";

export function linkTone(s: LinkState): Tone {
  switch (s) {
    case LinkState.CONNECTED:
      return "good";
    case LinkState.SILENT:
      return "warn";
    case LinkState.LOST:
      return "bad";
    case LinkState.BACK:
      return "active";
    default:
      return "neutral";
  }
}

/** Degrees of a place kept in millionths. */
export const degrees = (millionths: bigint) => Number(millionths) / 1e6;
/** Millionths of a degree that was typed. */
export const millionths = (degree: number) => BigInt(Math.round(degree * 1e6));
