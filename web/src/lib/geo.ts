// Where points go on the schematic map. Plate carrée with the longitude
// shortened by the cosine of the middle latitude: shapes keep their look at
// the scale of a country. No borders are drawn anywhere.

export interface Place {
  id: string;
  longitude: number;
  latitude: number;
}

export interface Placed {
  id: string;
  x: number;
  y: number;
}

export interface Plot {
  points: Placed[];
  /** Lines of equal longitude and latitude, with their place on the plot. */
  meridians: { degrees: number; at: number }[];
  parallels: { degrees: number; at: number }[];
}

// Never zoom in further than this: one center in view is still on a map.
const MIN_SPAN_DEGREES = 8;

/** Fits the places into a box with a margin. */
export function plot(places: Place[], width: number, height: number, margin: number): Plot {
  if (places.length === 0) return { points: [], meridians: [], parallels: [] };
  const longitudes = places.map((p) => p.longitude);
  const latitudes = places.map((p) => p.latitude);
  const midLat = (Math.min(...latitudes) + Math.max(...latitudes)) / 2;
  const midLon = (Math.min(...longitudes) + Math.max(...longitudes)) / 2;
  const shorten = Math.max(0.2, Math.cos((midLat * Math.PI) / 180));
  const spanX = Math.max(MIN_SPAN_DEGREES, Math.max(...longitudes) - Math.min(...longitudes)) * shorten;
  const spanY = Math.max(MIN_SPAN_DEGREES * shorten, Math.max(...latitudes) - Math.min(...latitudes));
  const scale = Math.min((width - 2 * margin) / spanX, (height - 2 * margin) / spanY);
  const x = (longitude: number) => width / 2 + (longitude - midLon) * shorten * scale;
  const y = (latitude: number) => height / 2 - (latitude - midLat) * scale;
  return {
    points: places.map((p) => ({ id: p.id, x: x(p.longitude), y: y(p.latitude) })),
    meridians: lines(midLon, width / (2 * shorten * scale), 180).map((degrees) => ({ degrees, at: x(degrees) })),
    parallels: lines(midLat, height / (2 * scale), 90).map((degrees) => ({ degrees, at: y(degrees) })),
  };
}

// Round degrees within half of the middle, four to nine of them.
function lines(middle: number, half: number, limit: number): number[] {
  const step = [1, 2, 5, 10, 15, 30, 45].find((s) => (2 * half) / s <= 9) ?? 60;
  const found: number[] = [];
  for (let d = Math.ceil((middle - half) / step) * step; d <= middle + half; d += step) {
    if (Math.abs(d) <= limit) found.push(d);
  }
  return found;
}

export type Side = "right" | "left" | "top" | "bottom";

/** For each point the side on which its label overlaps the others least and stays inside the width. */
export function labelSides(
  points: Placed[],
  sizes: { width: number; height: number }[],
  gap: number,
  width: number,
): Side[] {
  const taken: Box[] = points.map((p) => ({ left: p.x - gap, top: p.y - gap, right: p.x + gap, bottom: p.y + gap }));
  return points.map((p, i) => {
    const size = sizes[i] ?? { width: 0, height: 0 };
    let best: Side = "right";
    let bestOverlap = Number.POSITIVE_INFINITY;
    let bestBox: Box | undefined;
    for (const side of ["right", "left", "bottom", "top"] as const) {
      const box = labelBox(p, size, gap, side);
      const outside = Math.max(0, -box.left) + Math.max(0, box.right - width);
      const overlap = taken.reduce(
        (sum, other, j) => (j === i ? sum : sum + overlapOf(box, other)),
        outside * size.height * 2,
      );
      if (overlap < bestOverlap) {
        best = side;
        bestOverlap = overlap;
        bestBox = box;
      }
    }
    if (bestBox) taken.push(bestBox);
    return best;
  });
}

interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

function labelBox(p: Placed, size: { width: number; height: number }, gap: number, side: Side): Box {
  const { width, height } = size;
  const left = side === "right" ? p.x + gap : side === "left" ? p.x - gap - width : p.x - width / 2;
  const top = side === "bottom" ? p.y + gap : side === "top" ? p.y - gap - height : p.y - height / 2;
  return { left, top, right: left + width, bottom: top + height };
}

function overlapOf(a: Box, b: Box): number {
  const w = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  return w > 0 && h > 0 ? w * h : 0;
}
