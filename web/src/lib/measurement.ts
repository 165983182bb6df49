// Indicators and their values, as people read them.
import type {
  Indicator,
  IndicatorKind,
  MeasuredNode,
  Measurement,
  MeasurementRun,
  Value,
} from "../gen/yunhe/measurement/v1/measurement_pb";
import { Decision, Origin, RunState } from "../gen/yunhe/measurement/v1/measurement_pb";
import { formatBytes, NONE } from "./format";

/** A number with about four digits. */
export function figure(v: number): string {
  const size = Math.abs(v);
  if (size === 0) return "0";
  if (size >= 1000) return Math.round(v).toLocaleString("en-US");
  if (size >= 10) return v.toFixed(1).replace(/\.0$/, "");
  return Number(v.toPrecision(3)).toString();
}

/** A number of an indicator with its unit. */
export function amount(unit: string, v: number): string {
  switch (unit) {
    case "bytes":
      return formatBytes(v);
    case "ratio":
      return `${(100 * v).toFixed(1)}%`;
    case "":
      return figure(v);
    default:
      return `${figure(v)} ${unit}`;
  }
}

/** What a value says. */
export function valueText(indicator: Indicator | undefined, v: Value): string {
  return v.text || amount(indicator?.unit ?? "", v.number);
}

/** An indicator's title in a language. */
export function titleOf(indicator: Indicator | undefined, id: string, language: string): string {
  if (!indicator) return id;
  return language.startsWith("zh") ? indicator.titleZh : indicator.title;
}

/** Values of a kind, in the order of the indicators, those of the whole center first. */
export function valuesOf(m: Measurement, indicators: Indicator[], kind: IndicatorKind): Value[] {
  const place = new Map(indicators.map((x, i) => [x.indicatorId, i]));
  const kinds = new Map(indicators.map((x) => [x.indicatorId, x.kind]));
  return m.values
    .filter((v) => kinds.get(v.indicatorId) === kind)
    .sort((a, b) => (place.get(a.indicatorId) ?? 0) - (place.get(b.indicatorId) ?? 0));
}

/** The center's peak rates, each precision by itself. */
export function peaksOf(m: Measurement, indicators: Indicator[]): { precision: string; value: number; unit: string }[] {
  const out = [];
  for (const x of indicators) {
    if (!x.indicatorId.startsWith("accelerator.peak.")) continue;
    const v = m.values.find((y) => y.indicatorId === x.indicatorId && y.node === "" && y.part === "");
    if (v) out.push({ precision: x.precision, value: v.number, unit: x.unit });
  }
  return out;
}

type OriginWord = "declared" | "reported" | "measured" | "derived" | "operator" | "unknown";
const ORIGINS: Record<number, OriginWord> = {
  [Origin.DECLARED]: "declared",
  [Origin.REPORTED]: "reported",
  [Origin.MEASURED]: "measured",
  [Origin.DERIVED]: "derived",
};
/** The word of an origin in the texts. */
export const originWord = (o: Origin): OriginWord => ORIGINS[o] ?? "unknown";

type StateWord = "waiting" | "running" | "succeeded" | "failed" | "refused" | "unknown";
const STATES: Record<number, StateWord> = {
  [RunState.WAITING]: "waiting",
  [RunState.RUNNING]: "running",
  [RunState.SUCCEEDED]: "succeeded",
  [RunState.FAILED]: "failed",
  [RunState.REFUSED]: "refused",
};
/** The word of a run's state in the texts. */
export const stateWord = (s: RunState): StateWord => STATES[s] ?? "unknown";

/** Where the factor in use is from. */
export const fromWord = (from: string): OriginWord =>
  from === "declared" || from === "measured" || from === "operator" ? from : "unknown";

/** How good a run's state is. */
export function stateToneOf(s: RunState): "active" | "good" | "bad" {
  if (s === RunState.SUCCEEDED) return "good";
  return s === RunState.FAILED || s === RunState.REFUSED ? "bad" : "active";
}

type DecisionWord = "awaited" | "accepted" | "rejected" | "replaced";
const DECISIONS: Record<number, DecisionWord> = {
  [Decision.AWAITED]: "awaited",
  [Decision.ACCEPTED]: "accepted",
  [Decision.REJECTED]: "rejected",
  [Decision.REPLACED]: "replaced",
};
/** The word of a decision in the texts; nothing if there is none to make. */
export const decisionWord = (d: Decision): DecisionWord | undefined => DECISIONS[d];

/** Whether a run has not ended. */
export const isOpen = (r: MeasurementRun): boolean => r.state === RunState.WAITING || r.state === RunState.RUNNING;

/** Whether somebody has to decide about a run. */
export const awaitsDecision = (r: MeasurementRun): boolean => r.decision === Decision.AWAITED;

/** When a node is measured next: it is, as soon as there is room, later, or never. */
export function dueWord(n: MeasuredNode, now: number): "open" | "now" | "later" | "none" {
  if (n.open) return "open";
  if (!n.dueAt) return "none";
  return Number(n.dueAt.seconds) * 1000 > now ? "later" : "now";
}

/** 1000 times a number by another, as "1.57×"; nothing if either is not known. */
export function ratioText(permille: bigint): string {
  return permille > 0n ? `${(Number(permille) / 1000).toFixed(2)}×` : NONE;
}
