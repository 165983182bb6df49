// Lines over time, drawn by ECharts. Loaded only by pages that show one.
import { LineChart as Lines } from "echarts/charts";
import { GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import { type EChartsType, init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { useEffect, useRef } from "react";
import { formatClock, formatDuration, formatTime } from "../lib/format";
import { byteScale } from "../lib/scale";
import { usePrefs } from "../prefs";
import { FONT, SERIES } from "../theme";

export interface Line {
  name: string;
  /** Milliseconds since 1970 and value. */
  points: [number, number][];
}

interface ChartProps {
  lines: Line[];
  start: number;
  end: number;
  height: number;
  format: (value: number) => string;
  max?: number;
  /** Values are bytes: the axis is marked in powers of 1024. */
  bytes?: boolean;
  /** Values are counts: no marks between whole numbers. */
  whole?: boolean;
  /** Times are since the beginning, not of the day. */
  elapsed?: boolean;
  label: string;
}

use([Lines, GridComponent, LegendComponent, TooltipComponent, CanvasRenderer]);

export default function LineChart({
  lines,
  start,
  end,
  height,
  format,
  max,
  bytes,
  whole,
  elapsed,
  label,
}: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<EChartsType>(undefined);
  const { theme } = usePrefs();

  useEffect(() => {
    if (!box.current) return;
    const made = init(box.current);
    chart.current = made;
    const observer = new ResizeObserver(() => made.resize());
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      made.dispose();
      chart.current = undefined;
    };
  }, []);

  useEffect(() => {
    const scale = bytes ? byteScale(Math.max(1 << 20, ...lines.flatMap((l) => l.points.map((p) => p[1])))) : undefined;
    const narrow = (box.current?.clientWidth ?? 0) < 480;
    const dark = theme === "dark";
    const text = dark ? "#93a1b3" : "#667488";
    const rule = dark ? "#1f2a38" : "#e9edf2";
    chart.current?.setOption(
      {
        animation: false,
        color: [...SERIES],
        textStyle: { fontFamily: FONT },
        grid: {
          left: 8,
          right: 14,
          top: 12,
          bottom: lines.length > 1 ? 34 : 6,
          outerBoundsMode: "same",
          outerBoundsContain: "axisLabel",
        },
        legend: {
          show: lines.length > 1,
          type: "scroll",
          bottom: 0,
          icon: "roundRect",
          itemWidth: 12,
          itemHeight: 3,
          textStyle: { color: text, fontSize: 12 },
          pageTextStyle: { color: text },
          pageIconColor: text,
        },
        tooltip: {
          trigger: "axis",
          confine: true,
          backgroundColor: dark ? "#18212d" : "#fff",
          borderColor: dark ? "#2d3a4b" : "#dfe5ec",
          textStyle: { color: dark ? "#e4eaf2" : "#17202c", fontSize: 12 },
          axisPointer: { lineStyle: { color: text, type: "dashed" } },
          valueFormatter: (value: unknown) => (typeof value === "number" ? format(value) : ""),
        },
        xAxis: {
          type: "time",
          min: start,
          max: end,
          splitNumber: narrow ? 3 : 7,
          axisLine: { lineStyle: { color: rule } },
          axisTick: { show: false },
          splitLine: { show: false },
          axisLabel: {
            color: text,
            fontSize: 11,
            hideOverlap: true,
            formatter: (at: number) =>
              elapsed
                ? formatDuration(at * 1000)
                : end - start > 86_400_000
                  ? formatTime(at).slice(5, 16)
                  : formatClock(at).slice(0, 5),
          },
          axisPointer: {
            label: {
              formatter: ({ value }: { value: number }) => (elapsed ? formatDuration(value * 1000) : formatTime(value)),
            },
          },
        },
        yAxis: {
          type: "value",
          min: 0,
          minInterval: whole ? 1 : undefined,
          max: scale?.max ?? max,
          interval: scale?.step ?? (max === undefined ? undefined : max / 4),
          splitNumber: 4,
          axisLabel: { color: text, fontSize: 11, formatter: (value: number) => format(value) },
          splitLine: { lineStyle: { color: rule } },
        },
        series: lines.map((line) => ({
          type: "line",
          name: line.name,
          data: line.points,
          showSymbol: line.points.length === 1,
          symbolSize: 5,
          lineStyle: { width: 1.8 },
          areaStyle: lines.length === 1 ? { opacity: 0.12 } : undefined,
          emphasis: { focus: "series" },
        })),
      },
      { notMerge: true },
    );
  }, [lines, start, end, theme, format, max, bytes, whole, elapsed]);

  return <div ref={box} style={{ height }} role="img" aria-label={label} />;
}
