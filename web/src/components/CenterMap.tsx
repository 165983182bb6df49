// Where the centers are, by longitude and latitude: own drawing, no map tiles,
// no borders. The ring around a point is the CPU in use; its color the status.
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { type Center, CenterStatus } from "../gen/yunhe/registry/v1/registry_pb";
import { percent } from "../lib/format";
import { labelSides, plot } from "../lib/geo";
import { useWidth } from "./useWidth";

const HEIGHT = 368;
const RADIUS = 11;

export function CenterMap({ centers }: { centers: Center[] }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [box, width] = useWidth<HTMLElement>();
  const located = useMemo(
    () => centers.filter((c) => c.geometry && (c.geometry.longitude || c.geometry.latitude)),
    [centers],
  );
  const { points, meridians, parallels } = useMemo(
    () =>
      plot(
        located.map((c) => ({
          id: c.aiCenterId,
          longitude: c.geometry?.longitude ?? 0,
          latitude: c.geometry?.latitude ?? 0,
        })),
        width,
        HEIGHT,
        72,
      ),
    [located, width],
  );
  const sides = useMemo(
    () =>
      labelSides(
        points,
        located.map((c) => ({ width: textWidth(c.name || c.aiCenterId), height: 28 })),
        RADIUS + 5,
        width,
      ),
    [points, located, width],
  );
  const hidden = centers.length - located.length;
  return (
    <figure ref={box} className="yh-map">
      <svg width={width} height={HEIGHT} aria-label={t("overview.map")}>
        <defs>
          <pattern id="yh-dots" width="10" height="10" patternUnits="userSpaceOnUse">
            <circle cx="5" cy="5" r="0.8" className="yh-map-dot" />
          </pattern>
        </defs>
        <rect width={width} height={HEIGHT} rx="6" fill="url(#yh-dots)" />
        {meridians.map((m) => (
          <g key={m.degrees} className="yh-map-grid">
            <line x1={m.at} x2={m.at} y1={0} y2={HEIGHT} />
            {m.at < width - 36 && (
              <text x={m.at + 4} y={HEIGHT - 6}>{`${Math.abs(m.degrees)}°${m.degrees < 0 ? "W" : "E"}`}</text>
            )}
          </g>
        ))}
        {parallels.map((p) => (
          <g key={p.degrees} className="yh-map-grid">
            <line y1={p.at} y2={p.at} x1={0} x2={width} />
            <text x={6} y={p.at - 4}>{`${Math.abs(p.degrees)}°${p.degrees < 0 ? "S" : "N"}`}</text>
          </g>
        ))}
        {located.map((center, i) => {
          const point = points[i];
          if (!point) return null;
          return (
            <MapPoint
              key={center.aiCenterId}
              center={center}
              x={point.x}
              y={point.y}
              side={sides[i] ?? "right"}
              onOpen={() => void navigate(`/centers/${encodeURIComponent(center.aiCenterId)}`)}
            />
          );
        })}
      </svg>
      <figcaption className="yh-legend">
        <span className="yh-tone-good">
          <i /> {t("center.available")}
        </span>
        <span className="yh-tone-warn">
          <i /> {t("center.drained")}
        </span>
        <span className="yh-tone-bad">
          <i /> {t("center.unavailable")}
        </span>
        <span className="yh-tone-neutral">
          <i /> {t("center.unknown")}
        </span>
        <span className="yh-grow" />
        <span>{hidden > 0 ? t("overview.mapHidden", { count: hidden }) : t("overview.mapRing")}</span>
      </figcaption>
    </figure>
  );
}

function MapPoint(props: {
  center: Center;
  x: number;
  y: number;
  side: "right" | "left" | "top" | "bottom";
  onOpen: () => void;
}) {
  const { t } = useTranslation();
  const { center, x, y, side } = props;
  const m = center.monitoring;
  const load = m ? percent(m.cpuUsed, m.cpuUsed + m.cpuFree) : 0;
  const name = center.name || center.aiCenterId;
  const running = m?.runningTaskNum ?? 0n;
  const summary = t("overview.mapPoint", { name, load: load.toFixed(0), running: Number(running) });
  const circumference = 2 * Math.PI * RADIUS;
  const offset = RADIUS + 6;
  const anchor = side === "right" ? "start" : side === "left" ? "end" : "middle";
  const labelX = side === "right" ? x + offset : side === "left" ? x - offset : x;
  const labelY = side === "top" ? y - offset - 16 : side === "bottom" ? y + offset + 10 : y - 2;
  return (
    <a
      href={`/centers/${encodeURIComponent(center.aiCenterId)}`}
      className={`yh-map-point yh-tone-${tone(center)}`}
      aria-label={summary}
      onClick={(e) => {
        if (e.metaKey || e.ctrlKey || e.shiftKey) return;
        e.preventDefault();
        props.onOpen();
      }}
    >
      <title>{summary}</title>
      <circle cx={x} cy={y} r={RADIUS + 5} className="yh-map-halo" />
      <circle cx={x} cy={y} r={RADIUS} className="yh-map-track" />
      {load > 0 && (
        <circle
          cx={x}
          cy={y}
          r={RADIUS}
          className="yh-map-ring"
          strokeDasharray={`${(load / 100) * circumference} ${circumference}`}
          transform={`rotate(-90 ${x} ${y})`}
        />
      )}
      <circle cx={x} cy={y} r={RADIUS - 5} className="yh-map-core" />
      <text x={labelX} y={labelY} textAnchor={anchor} className="yh-map-name">
        {name}
      </text>
      <text x={labelX} y={labelY + 13} textAnchor={anchor} className="yh-map-load">
        {t("overview.mapLoad", { load: load.toFixed(0), running: Number(running) })}
      </text>
    </a>
  );
}

function tone(center: Center): "good" | "warn" | "bad" | "neutral" {
  if (center.drained) return "warn";
  if (center.status === CenterStatus.AVAILABLE) return "good";
  return center.status === CenterStatus.UNAVAILABLE ? "bad" : "neutral";
}

// Close enough to keep labels apart: wide characters count double.
function textWidth(text: string): number {
  let width = 0;
  for (const c of text) width += c.charCodeAt(0) > 0x2e80 ? 12 : 6.6;
  // The line below the name has about this width.
  return Math.max(92, width);
}
