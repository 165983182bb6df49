// The network as one picture, from the whole down to a card, now or at any
// time of its history.
import { CompressOutlined, MinusOutlined, PlusOutlined, SearchOutlined } from "@ant-design/icons";
import { Alert, AutoComplete, Breadcrumb, Button, Input, Select, Spin, Tooltip } from "antd";
import { useCallback, useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useSearchParams } from "react-router";
import { PageHead, Problem } from "../components/bits";
import { Detail, useLevelName } from "../components/topology/Detail";
import { InViewList } from "../components/topology/InViewList";
import { HealthLegend, HealthMark, MarkLegend, ScaleLegend } from "../components/topology/Legend";
import { useBindings, useDensity, useDifference, useGraph, useValues } from "../components/topology/queries";
import { TimeLine } from "../components/topology/TimeLine";
import { type CanvasHandle, type Rest, TopologyCanvas } from "../components/topology/TopologyCanvas";
import { usePlayback } from "../components/topology/usePlayback";
import { Level } from "../gen/yunhe/topology/v1/topology_pb";
import { formatCount, formatTime } from "../lib/format";
import { pathTo } from "../lib/topology/camera";
import { formatFigure, formatSeconds } from "../lib/topology/figures";
import { type InView, inView, search } from "../lib/topology/inview";
import { type Layout, layOut, type Memory, sameShape } from "../lib/topology/layout";
import {
  countAll,
  EMPTY_GRAPH,
  type Graph,
  healthName,
  healthOf,
  nameOf,
  sameTarget,
  type Target,
  targetOf,
  vertexId,
} from "../lib/topology/model";
import { DARK, LIGHT } from "../lib/topology/palette";
import { markChanges, withPlaces } from "../lib/topology/replay";
import { Mark, type Marks, Scene, type Words } from "../lib/topology/scene";
import type { Values } from "../lib/topology/view";
import { usePrefs } from "../prefs";

/** Bars of the time line. */
const BUCKETS = 160;
/** "Now" of the time line moves on this often. */
const CLOCK_MS = 10_000;
const DEFAULT_PERIOD = 3_600_000;

export function Topology() {
  const { t } = useTranslation();
  const { theme, language } = usePrefs();
  const palette = theme === "dark" ? DARK : LIGHT;
  const [params, setParams] = useSearchParams();
  const change = useCallback(
    (values: Record<string, string | undefined>) =>
      setParams(
        (before) => {
          const next = new URLSearchParams(before);
          for (const [name, value] of Object.entries(values)) {
            if (value) next.set(name, value);
            else next.delete(name);
          }
          return next;
        },
        { replace: true, preventScrollReset: true },
      ),
    [setParams],
  );
  const at = timeOf(params.get("at"));
  const base = timeOf(params.get("base"));
  const bindingId = params.get("by") ?? "";
  const selectedId = params.get("v") ?? "";

  const playback = usePlayback(useCallback((end: number) => change({ at: String(Math.round(end)) }), [change]));
  const playing = playback.state !== "idle";
  const live = useGraph(undefined);
  const past = useGraph(at, at !== undefined && !playing);
  const current = playing ? playback.graph : at === undefined ? live.data : past.data;
  // What was shown stays until there is something else to show.
  const last = useRef<Graph>(EMPTY_GRAPH);
  if (current) last.current = current;
  const clock = useClock(at === undefined && !playing);
  const difference = useDifference(playing ? undefined : base, at ?? clock);
  const { graph, marks } = useMemo(() => {
    const now = withPlaces(current ?? last.current, live.data ?? EMPTY_GRAPH);
    return base !== undefined && !playing && difference.data
      ? markChanges(now, difference.data.changes)
      : { graph: now, marks: undefined };
  }, [current, live.data, base, playing, difference.data]);

  const bindings = useBindings();
  const drawable = (bindings.data ?? []).filter((b) => b.level !== Level.LINK);
  const binding = drawable.find((b) => b.bindingId === bindingId);
  const { values } = useValues(binding && !playing ? bindingId : "", marks ? undefined : graph, at);
  const layout = useLayout(graph);
  const selected = useMemo(() => (selectedId ? targetOf(selectedId, graph) : undefined), [selectedId, graph]);
  const [only, setOnly] = useState<number>();
  const words = useMemo<Words>(
    () => ({
      nodes: (count) => t("topology.nodesCount", { count, shown: formatCount(count) }),
      resources: t("topology.levels.resources"),
      network: t("topology.levels.network"),
      latency: formatSeconds,
      value: (value) => formatFigure(value, binding?.unit ?? ""),
    }),
    [t, binding?.unit],
  );
  const scene = useMemo(
    () => new Scene(graph, layout, palette, words, values, marks, selected, only),
    [graph, layout, palette, words, values, marks, selected, only],
  );

  const canvas = useRef<CanvasHandle>(null);
  const [rest, setRest] = useState<Rest>();
  const view = useMemo<InView | undefined>(
    () => (rest ? inView(graph, layout, rest.camera, rest.size) : undefined),
    [graph, layout, rest],
  );
  const totals = useMemo(() => countAll(graph), [graph]);
  const levelName = useLevelName();
  const name = (target: Target) => nameOf(target, graph) || levelName(target, graph);
  const select = (target: Target | undefined) => change({ v: target && vertexId(target, graph) });
  const open = (target: Target) => {
    select(target.level === "network" ? undefined : target);
    canvas.current?.flyTo(target);
  };

  const [period, setPeriod] = useState(DEFAULT_PERIOD);
  const [speed, setSpeed] = useState(1);
  const [from, to] = periodOf(period, clock, graph.historyFrom, at, base);
  const density = useDensity(from, to, BUCKETS);
  // Before history there is nothing to ask for.
  const kept = (time: number) => Math.round(Math.max(time, graph.historyFrom ?? time));
  const play = () => playback.play(kept(at !== undefined && at < to - (to - from) / 200 ? at : from), to, speed);
  const setAt = (next: number | undefined) => {
    if (playing) playback.pause();
    change({ at: next === undefined ? undefined : String(kept(next)) });
  };
  const error = playback.error ?? (at === undefined ? live.error : past.error) ?? difference.error;
  const shownAt = playing ? playback.at : at;
  // What is selected in a view that is still of another time may not be there.
  const isAbsent = selected?.level === "center" && graph.centers[selected.index]?.absent;
  const waiting = isAbsent || (at !== undefined && past.isPlaceholderData);
  const isRemoved = !!marks && !!selected && markOfTarget(selected, marks) === Mark.removed;
  return (
    <div className="yh-topo">
      <PageHead
        title={t("nav.topology")}
        sub={
          <span data-testid="topology-totals">
            {t("topology.totals", {
              centers: formatCount(totals.centers),
              nodes: formatCount(totals.nodes.reduce((a, b) => a + b, 0)),
              cards: formatCount(totals.cards),
            })}
          </span>
        }
        after={
          shownAt !== undefined && (
            <span className="yh-state yh-tone-warn" data-testid="as-of">
              <i aria-hidden />
              {t("topology.asOf", { time: formatTime(shownAt) })}
            </span>
          )
        }
        extra={
          <div className="yh-row">
            <Search graph={graph} near={view?.focus} name={name} levelName={levelName} onOpen={open} />
            <Select
              className="yh-w-200"
              aria-label={t("topology.colorBy")}
              data-testid="color-by"
              value={binding ? bindingId : ""}
              onChange={(by) => change({ by })}
              disabled={playing || marks !== undefined}
              options={[
                { value: "", label: t("topology.healthTitle") },
                ...drawable.map((b) => ({
                  value: b.bindingId,
                  label: `${(language === "zh" && b.titleZh) || b.title || b.bindingId}`,
                })),
              ]}
            />
          </div>
        }
      />
      {error ? <Problem error={error} /> : null}
      {graph.hidden.resources + graph.hidden.links > 0 && (
        <Alert
          type="info"
          showIcon
          title={t("topology.leftOut", {
            resources: formatCount(graph.hidden.resources),
            links: formatCount(graph.hidden.links),
          })}
        />
      )}
      <div className="yh-topo-frame">
        <div className="yh-topo-main">
          <div className="yh-topo-bar">
            <Breadcrumb
              items={pathTo(view?.focus, graph).map((target, i, path) => ({
                key: `${target.level}${target.index}/${target.node}/${target.card}`,
                title:
                  i === path.length - 1 && path.length > 1 ? (
                    <b aria-current="location">{name(target)}</b>
                  ) : (
                    <Button
                      type="link"
                      size="small"
                      className="yh-link-cell"
                      onClick={() => (i === 0 ? canvas.current?.home() : canvas.current?.flyTo(target))}
                    >
                      {i === 0 ? t("topology.levels.network") : name(target)}
                    </Button>
                  ),
              }))}
            />
          </div>
          <div className="yh-topo-canvas">
            {graph === EMPTY_GRAPH && !error && <Spin className="yh-page-spin" />}
            <TopologyCanvas
              ref={canvas}
              scene={scene}
              label={t("topology.canvas")}
              describedBy="yh-topo-help"
              onSelect={select}
              onRest={setRest}
              tip={(target) => (
                <>
                  <b>{name(target)}</b>
                  <small>{levelName(target, graph)}</small>
                  <span>
                    <HealthMark health={healthOf(target, graph)} palette={palette} />{" "}
                    {t(`topology.health.${healthName(healthOf(target, graph))}`)}
                    {values ? ` · ${formatFigure(measured(target, values, graph), binding?.unit ?? "")}` : ""}
                  </span>
                </>
              )}
            />
            <div className="yh-topo-key">
              {marks && difference.data ? (
                <MarkLegend {...difference.data} />
              ) : values && binding ? (
                <ScaleLegend
                  binding={binding}
                  title={(language === "zh" && binding.titleZh) || binding.title}
                  palette={palette}
                />
              ) : (
                <HealthLegend counts={totals.nodes} palette={palette} only={only} onOnly={setOnly} />
              )}
            </div>
            <div className="yh-topo-zoom">
              <Tooltip title={t("topology.zoomIn")} placement="left">
                <Button
                  icon={<PlusOutlined />}
                  aria-label={t("topology.zoomIn")}
                  onClick={() => canvas.current?.zoom(1.8)}
                />
              </Tooltip>
              <Tooltip title={t("topology.zoomOut")} placement="left">
                <Button
                  icon={<MinusOutlined />}
                  aria-label={t("topology.zoomOut")}
                  onClick={() => canvas.current?.zoom(1 / 1.8)}
                />
              </Tooltip>
              <Tooltip title={t("topology.all")} placement="left">
                <Button
                  icon={<CompressOutlined />}
                  aria-label={t("topology.all")}
                  onClick={() => canvas.current?.home()}
                />
              </Tooltip>
            </div>
            <p id="yh-topo-help" className="yh-topo-help">
              {t("topology.help")}
            </p>
            <p className="yh-topo-said" role="status">
              {view?.focus ? `${levelName(view.focus, graph)}: ${name(view.focus)}` : ""}
            </p>
          </div>
          <TimeLine
            from={from}
            to={to}
            density={density.data}
            at={shownAt}
            base={base}
            playing={playback.state === "playing"}
            loading={playback.state === "loading"}
            speed={speed}
            period={period}
            onAt={setAt}
            onBase={(b) => change({ base: b === undefined ? undefined : String(kept(b)) })}
            onPlay={play}
            onPause={playback.pause}
            onSpeed={(s) => {
              setSpeed(s);
              playback.setSpeed(s);
            }}
            onPeriod={(p) => {
              setPeriod(p);
              change({ at: undefined, base: undefined });
            }}
          />
        </div>
        <aside className="yh-topo-side" aria-label={t("topology.side")}>
          {selected && !playing && !waiting ? (
            <Detail
              graph={graph}
              target={selected}
              at={isRemoved ? base : at}
              palette={palette}
              onFly={() => canvas.current?.flyTo(selected)}
              onClose={() => select(undefined)}
              onAt={setAt}
            />
          ) : (
            view && (
              <InViewList
                graph={graph}
                view={view}
                palette={palette}
                value={(target) => (values ? formatFigure(measured(target, values, graph), binding?.unit ?? "") : "")}
                valueTitle={values ? (language === "zh" && binding?.titleZh) || binding?.title || "" : ""}
                onOpen={open}
              />
            )
          )}
        </aside>
      </div>
    </div>
  );
}

function markOfTarget(target: Target, marks: Marks): number {
  if (target.node !== undefined) return marks.nodes[target.index]?.[target.node] ?? Mark.none;
  return target.level === "center" ? (marks.centers[target.index] ?? Mark.none) : Mark.none;
}

function timeOf(text: string | null): number | undefined {
  const ms = Number(text);
  return text && Number.isFinite(ms) && ms > 0 ? ms : undefined;
}

function measured(target: Target, values: Values, graph: Graph): number {
  if (target.level !== "center" && target.level !== "node" && target.level !== "card") {
    return values.others.get(vertexId(target, graph)) ?? Number.NaN;
  }
  const of = values.centers[target.index];
  const nodes = graph.centers[target.index]?.nodes;
  if (!of || !nodes) return Number.NaN;
  if (target.node === undefined) return of.value;
  if (target.card === undefined) return of.nodes[target.node] ?? Number.NaN;
  return of.cards[(nodes.cardStart[target.node] ?? 0) + target.card] ?? Number.NaN;
}

/** The present time in milliseconds, renewed now and then. */
function useClock(running: boolean): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => setNow(Date.now()), CLOCK_MS);
    return () => clearInterval(timer);
  }, [running]);
  return now;
}

// What the time line shows: the period up to now, or around the times at hand if they are before it.
function periodOf(
  period: number,
  now: number,
  historyFrom: number | undefined,
  at: number | undefined,
  base: number | undefined,
): [number, number] {
  const first = historyFrom ?? now - DEFAULT_PERIOD;
  let from = period === 0 ? first : now - period;
  from = Math.max(from, Math.min(first, now - 60_000));
  for (const time of [at, base]) if (time !== undefined) from = Math.min(from, time);
  return [from, Math.max(now, from + 1000)];
}

/** The places of a graph: kept while its shape is the same. */
function useLayout(graph: Graph): Layout {
  const memory = useRef<Memory>(new Map());
  const made = useRef<{ graph: Graph; layout: Layout }>(undefined);
  if (!made.current || !sameShape(made.current.graph, graph)) {
    made.current = { graph, layout: layOut(graph, memory.current) };
  } else made.current.graph = graph;
  return made.current.layout;
}

function Search(props: {
  graph: Graph;
  /** What the view is about. */
  near: Target | undefined;
  name: (target: Target) => string;
  levelName: (target: Target, graph: Graph) => string;
  onOpen: (target: Target) => void;
}) {
  const { t } = useTranslation();
  const { graph, near } = props;
  const [text, setText] = useState("");
  const wanted = useDeferredValue(text);
  const found = useMemo(() => search(graph, wanted, near), [graph, wanted, near]);
  return (
    <AutoComplete
      className="yh-w-240"
      value={text}
      onChange={setText}
      onSelect={(id: string) => {
        const target = targetOf(id, graph);
        if (target) props.onOpen(target);
        setText("");
      }}
      options={found.map((target) => {
        const center = target.node === undefined ? undefined : graph.centers[target.index];
        return {
          value: vertexId(target, graph),
          label: (
            <span className="yh-topo-found">
              {props.name(target)}
              <small>{center?.name || props.levelName(target, graph)}</small>
            </span>
          ),
        };
      })}
    >
      <Input
        suffix={<SearchOutlined aria-hidden />}
        placeholder={t("topology.search")}
        aria-label={t("topology.search")}
        onPressEnter={() => {
          const first = found[0];
          if (first && sameTarget(first, targetOf(vertexId(first, graph), graph))) props.onOpen(first);
        }}
      />
    </AutoComplete>
  );
}
