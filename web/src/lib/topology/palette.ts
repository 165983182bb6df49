// Colors of the view. Those of health stay apart for people who see red and
// green, or blue and yellow, alike; trouble also has a sign of its own.

export interface Palette {
  /** By number of health. */
  health: readonly string[];
  /** What is measured, least first; the one after the last is for what is not measured. */
  scale: readonly string[];
  /** Behind text that stands on a color of health. */
  onHealth: readonly string[];
  group: readonly string[];
  tile: string;
  tileLine: string;
  line: string;
  text: string;
  muted: string;
  accent: string;
  /** Added, changed, removed. */
  marks: readonly [string, string, string];
}

/** How many colors what is measured is drawn in. */
export const STEPS = 24;

const LIGHT_HEALTH = ["#dfe4ea", "#8fd0c0", "#3b7ddd", "#e3a008", "#b3142b", "#6f7885", "#4b2a86"];
const DARK_HEALTH = ["#232c37", "#22766b", "#4c93ff", "#f5bd3d", "#ff6a5c", "#97a1ad", "#e0c8ff"];

// Even steps of lightness, blue to yellow.
const DARK_STOPS = ["#16324f", "#2b4a72", "#55638a", "#7c7b86", "#a5966f", "#d2b64f", "#ffe45c"];
const LIGHT_STOPS = ["#e9eff6", "#c9d8ea", "#9fb9d8", "#7494c4", "#4d6ba8", "#364480", "#231f52"];

export const LIGHT: Palette = {
  health: LIGHT_HEALTH,
  onHealth: ["#3b4653", "#10312a", "#ffffff", "#2b1e00", "#ffffff", "#ffffff", "#ffffff"],
  scale: [...ramp(LIGHT_STOPS, STEPS), "#f1f3f6"],
  group: ["#f4f6f9", "#eef2f7", "#e8edf4", "#e2e9f1"],
  tile: "#ffffff",
  tileLine: "#d8dfe8",
  line: "#ccd5e0",
  text: "#17202c",
  muted: "#66717f",
  accent: "#1f5fd0",
  marks: ["#0f8a5f", "#b26a00", "#b3142b"],
};

export const DARK: Palette = {
  health: DARK_HEALTH,
  onHealth: ["#aab6c4", "#d6f5ee", "#06152e", "#2b1e00", "#330500", "#10161d", "#20103a"],
  scale: [...ramp(DARK_STOPS, STEPS), "#1b232d"],
  group: ["#0b1017", "#0f151d", "#121a24", "#16202c"],
  tile: "#151e29",
  tileLine: "#263343",
  line: "#2b394a",
  text: "#e4eaf2",
  muted: "#8b98a8",
  accent: "#6aa3ff",
  marks: ["#4fd6a0", "#ffc266", "#ff8a80"],
};

function ramp(stops: readonly string[], steps: number): string[] {
  return Array.from({ length: steps }, (_, i) => {
    const at = (i / (steps - 1)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(at));
    return mix(stops[low] ?? "", stops[low + 1] ?? "", at - low);
  });
}

/** A color between two others. */
export function mix(from: string, to: string, share: number): string {
  const [a, b] = [channels(from), channels(to)];
  const hex = a.map((v, i) =>
    Math.round(v + ((b[i] ?? 0) - v) * share)
      .toString(16)
      .padStart(2, "0"),
  );
  return `#${hex.join("")}`;
}

export function channels(hex: string): number[] {
  return [1, 3, 5].map((i) => Number.parseInt(hex.slice(i, i + 2), 16));
}

/** Which color of the scale a value has. */
export function stepOf(value: number, low: number, high: number): number {
  if (!Number.isFinite(value)) return STEPS;
  const share = (value - low) / (high - low);
  return Math.min(STEPS - 1, Math.max(0, Math.floor(share * STEPS)));
}
