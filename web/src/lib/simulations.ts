// What simulations say, as the console shows it.
import { SimulationState } from "../gen/yunhe/simulations/v1/simulations_pb";
import { formatCount, formatDuration } from "./format";
import type { Tone } from "./states";

export const SIMULATION_STATES: Record<
  SimulationState,
  { word: "unknown" | "waiting" | "running" | "done" | "failed" | "canceled" | "interrupted"; tone: Tone }
> = {
  [SimulationState.UNSPECIFIED]: { word: "unknown", tone: "neutral" },
  [SimulationState.WAITING]: { word: "waiting", tone: "waiting" },
  [SimulationState.RUNNING]: { word: "running", tone: "active" },
  [SimulationState.DONE]: { word: "done", tone: "good" },
  [SimulationState.FAILED]: { word: "failed", tone: "bad" },
  [SimulationState.CANCELED]: { word: "canceled", tone: "neutral" },
  [SimulationState.INTERRUPTED]: { word: "interrupted", tone: "bad" },
};

/** Whether nothing comes any more. */
export function simulationEnded(state: SimulationState): boolean {
  return state > SimulationState.RUNNING;
}

/** A figure with its unit: times as people say them. */
export function formatMeasure(unit: string, value: number): string {
  if (unit === "s") return formatDuration(value * 1e6);
  const digits = Number.isInteger(value) || Math.abs(value) >= 1000 ? 0 : Math.abs(value) >= 10 ? 1 : 3;
  const text = digits === 0 ? formatCount(Math.round(value)) : value.toFixed(digits);
  return unit ? `${text} ${unit}` : text;
}

/** The part of the JSON report that the charts draw. */
export interface SimulationReport {
  results: {
    name: string;
    seconds: number;
    series: { at: number; allocation_percent: number; waiting: number }[];
    waiting_percentiles: number[];
  }[];
}

/** What of a policy's name can be opened: "gold@3" is policy gold. */
export function policyOf(name: string): string | undefined {
  return /^([a-z][a-z0-9-]*)@\d+( \/ .*)?$/.exec(name)?.[1];
}
