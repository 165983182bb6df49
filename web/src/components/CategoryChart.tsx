// Lines over a few named steps, drawn by ECharts. Loaded only by pages that show one.
import { LineChart as Lines } from "echarts/charts";
import { GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import { type EChartsType, init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { useEffect, useRef } from "react";
import { usePrefs } from "../prefs";
import { FONT, SERIES } from "../theme";

use([Lines, GridComponent, LegendComponent, TooltipComponent, CanvasRenderer]);

export default function CategoryChart(props: {
  ticks: string[];
  lines: { name: string; values: number[]; hollow: boolean[] }[];
  label: string;
  height?: number;
}) {
  const { ticks, lines, label, height = 280 } = props;
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
    const dark = theme === "dark";
    const text = dark ? "#93a1b3" : "#667488";
    const rule = dark ? "#1f2a38" : "#e9edf2";
    const paper = dark ? "#111823" : "#fff";
    chart.current?.setOption(
      {
        animation: false,
        color: [...SERIES],
        textStyle: { fontFamily: FONT },
        grid: { left: 8, right: 14, top: 12, bottom: 34, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
        legend: {
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
        },
        xAxis: {
          type: "category",
          data: ticks,
          axisLine: { lineStyle: { color: rule } },
          axisTick: { show: false },
          axisLabel: { color: text, fontSize: 11 },
        },
        yAxis: {
          type: "value",
          min: 0,
          minInterval: 1,
          axisLabel: { color: text, fontSize: 11 },
          splitLine: { lineStyle: { color: rule } },
        },
        series: lines.map((line, i) => ({
          type: "line",
          name: line.name,
          symbol: "circle",
          symbolSize: 8,
          data: line.values.map((value, k) => ({
            value,
            itemStyle: line.hollow[k] ? { color: paper, borderColor: SERIES[i % SERIES.length], borderWidth: 2 } : {},
          })),
        })),
      },
      { notMerge: true },
    );
  }, [ticks, lines, theme]);

  const said = lines.map((l) => `${l.name}: ${l.values.join(", ")}`).join("; ");
  return <div ref={box} style={{ height }} role="img" aria-label={`${label} (${ticks.join(", ")}): ${said}`} />;
}
