// The time of the view: how much changed when, a point or two on it, and what
// plays it.
import { CaretRightOutlined, PauseOutlined } from "@ant-design/icons";
import { Button, Select, Slider, Tooltip } from "antd";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { ChangeDensity } from "../../gen/yunhe/topology/v1/topology_pb";
import { formatCount, formatShortTime } from "../../lib/format";

/** Periods to look back, in milliseconds; 0: all that is kept. */
export const PERIODS = [900_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000, 0] as const;
export const SPEEDS = [0.5, 1, 2, 4] as const;
const HEIGHT = 34;

export interface TimeLineProps {
  from: number;
  to: number;
  density: ChangeDensity | undefined;
  /** The moment shown; undefined: now. */
  at: number | undefined;
  /** The earlier of two that are compared. */
  base: number | undefined;
  playing: boolean;
  loading: boolean;
  speed: number;
  period: number;
  onAt: (at: number | undefined) => void;
  onBase: (base: number | undefined) => void;
  onPlay: () => void;
  onPause: () => void;
  onSpeed: (speed: number) => void;
  onPeriod: (period: number) => void;
}

export function TimeLine(props: TimeLineProps) {
  const { t } = useTranslation();
  const { from, to, at, base } = props;
  const now = Date.now();
  const time = (ms: number) => formatShortTime(ms, now);
  const span = Math.max(1, to - from);
  const step = Math.max(1, Math.round(span / 1000));
  const last = at ?? to;
  const compare = base !== undefined;
  const marks = useMemo(() => [0, 0.5, 1].map((share) => ({ share, at: from + share * (to - from) })), [from, to]);
  return (
    <section className="yh-topo-time" aria-label={t("topology.history")}>
      <div className="yh-topo-time-buttons">
        <Tooltip title={t(props.playing ? "topology.pause" : "topology.play")}>
          <Button
            shape="circle"
            type={props.playing ? "primary" : "default"}
            data-testid="play"
            loading={props.loading}
            disabled={compare}
            aria-label={t(props.playing ? "topology.pause" : "topology.play")}
            icon={props.playing ? <PauseOutlined /> : <CaretRightOutlined />}
            onClick={props.playing ? props.onPause : props.onPlay}
          />
        </Tooltip>
        <Select
          size="small"
          variant="borderless"
          aria-label={t("topology.speed")}
          value={props.speed}
          onChange={props.onSpeed}
          options={SPEEDS.map((s) => ({ value: s, label: `${s}×` }))}
        />
      </div>
      <div className="yh-topo-time-line">
        <Bars density={props.density} />
        {compare ? (
          <Slider
            range
            min={from}
            max={to}
            step={step}
            value={[Math.max(from, base), last]}
            onChange={([b, a]) => {
              props.onBase(b);
              props.onAt(a !== undefined && a < to ? a : undefined);
            }}
            tooltip={{ formatter: (v) => time(v ?? to) }}
            ariaLabelForHandle={[t("topology.earlier"), t("topology.later")]}
          />
        ) : (
          <Slider
            min={from}
            max={to}
            step={step}
            included={false}
            value={Math.max(from, last)}
            onChange={(v) => props.onAt(v < to ? v : undefined)}
            tooltip={{ formatter: (v) => time(v ?? to) }}
            ariaLabelForHandle={t("topology.time")}
            ariaValueTextFormatterForHandle={(v) => time(v)}
          />
        )}
        <div className="yh-topo-time-marks yh-num" aria-hidden>
          {marks.map((m) => (
            <span key={m.share} style={{ left: `${m.share * 100}%` }}>
              {time(m.at)}
            </span>
          ))}
        </div>
      </div>
      <div className="yh-topo-time-buttons">
        <Select
          size="small"
          className="yh-topo-period"
          aria-label={t("topology.period")}
          value={props.period}
          onChange={props.onPeriod}
          options={PERIODS.map((p) => ({ value: p, label: t(`topology.periods.${p}`) }))}
        />
        <Button
          size="small"
          data-testid="compare"
          type={compare ? "primary" : "default"}
          aria-pressed={compare}
          onClick={() => props.onBase(compare ? undefined : from + span * 0.5)}
        >
          {t("topology.compare")}
        </Button>
        <Button
          size="small"
          data-testid="now"
          type={at === undefined && !props.playing ? "primary" : "default"}
          aria-pressed={at === undefined && !props.playing}
          onClick={() => props.onAt(undefined)}
        >
          {t("topology.now")}
        </Button>
      </div>
    </section>
  );
}

// How much changed in each part of the period, as bars; the highest is the most there was.
function Bars({ density }: { density: ChangeDensity | undefined }) {
  const { t } = useTranslation();
  const count = density?.added.length ?? 0;
  const totals = Array.from({ length: count }, (_, i) =>
    Number((density?.added[i] ?? 0n) + (density?.changed[i] ?? 0n) + (density?.removed[i] ?? 0n)),
  );
  const most = Math.max(1, ...totals);
  const all = totals.reduce((a, b) => a + b, 0);
  // Few changes next to very many are still seen.
  const high = (n: number) => (n === 0 ? 0 : Math.max(2, (Math.sqrt(n) / Math.sqrt(most)) * HEIGHT));
  return (
    <svg
      className="yh-topo-bars"
      viewBox={`0 0 ${Math.max(1, count)} ${HEIGHT}`}
      preserveAspectRatio="none"
      height={HEIGHT}
      role="img"
      aria-label={t("topology.density", { count: all, shown: formatCount(all) })}
    >
      {barsOf(density, totals, high).map((b) => (
        <rect key={b.id} x={b.x} y={b.y} width={0.8} height={b.height} className={`yh-mark-${b.kind}`} />
      ))}
    </svg>
  );
}

interface Bar {
  id: string;
  kind: "added" | "changed" | "removed";
  x: number;
  y: number;
  height: number;
}

function barsOf(density: ChangeDensity | undefined, totals: number[], high: (n: number) => number): Bar[] {
  const bars: Bar[] = [];
  totals.forEach((total, i) => {
    let y = HEIGHT;
    for (const kind of ["added", "changed", "removed"] as const) {
      const height = total === 0 ? 0 : (Number(density?.[kind][i] ?? 0n) / total) * high(total);
      y -= height;
      if (height > 0) bars.push({ id: `${kind}${i}`, kind, x: i + 0.1, y, height });
    }
  });
  return bars;
}
