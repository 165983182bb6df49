import { Segmented, Skeleton } from "antd";
import { lazy, Suspense, useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useRange } from "../queries";
import { Nothing, Problem } from "./bits";
import type { Line } from "./LineChart";

const LineChart = lazy(() => import("./LineChart"));

/** A PromQL expression as lines over the last seconds. */
export function RangeChart(props: {
  query: string;
  windowSeconds: number;
  height: number;
  format: (value: number) => string;
  max?: number;
  bytes?: boolean;
  whole?: boolean;
  label: string;
  /** Names a series by its labels. */
  nameOf: (labels: Record<string, string>) => string;
}) {
  const { t } = useTranslation();
  const range = useRange(props.query, props.windowSeconds);
  const { nameOf } = props;
  const lines = useMemo<Line[]>(
    () =>
      (range.data?.series ?? [])
        .map((s) => ({
          name: nameOf(s.labels),
          points: s.points.map((p): [number, number] => [Number(p.at), p.value]),
        }))
        .sort((a, b) => (a.name < b.name ? -1 : 1)),
    [range.data, nameOf],
  );
  if (range.error && !range.data) return <Problem error={range.error} retry={() => void range.refetch()} />;
  if (!range.data)
    return <Skeleton.Node active style={{ width: "100%", height: props.height }} classNames={{ root: "yh-wide" }} />;
  if (lines.length === 0) {
    return (
      <div className="yh-chart-empty" style={{ height: props.height }}>
        <Nothing text={t("chart.empty")} />
      </div>
    );
  }
  return (
    <Suspense fallback={<div style={{ height: props.height }} />}>
      <LineChart
        lines={lines}
        start={firstShown(lines, range.data.start, range.data.end)}
        end={range.data.end}
        height={props.height}
        format={props.format}
        max={props.max}
        bytes={props.bytes}
        whole={props.whole}
        label={props.label}
      />
    </Suspense>
  );
}

// Where samples began late in the period, the axis begins with them.
function firstShown(lines: Line[], start: number, end: number): number {
  const first = Math.min(...lines.map((line) => line.points[0]?.[0] ?? end));
  if (first < start + (end - start) / 2) return start;
  return Math.max(start, Math.min(first - (end - first) * 0.04, end - 120_000));
}

const WINDOWS = [900, 3600, 21_600, 86_400] as const;

/** How far back a chart looks. */
export function WindowSwitch({ value, onChange }: { value: number; onChange: (seconds: number) => void }) {
  const { t } = useTranslation();
  return (
    <Segmented
      size="small"
      aria-label={t("chart.window")}
      value={value}
      onChange={onChange}
      options={WINDOWS.map((w) => ({ value: w, label: t(`chart.windows.${w}`) }))}
    />
  );
}
