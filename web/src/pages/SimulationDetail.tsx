// One simulation: how far it is, what its results come to, over time, and
// event by event with the decisions.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Alert, App, Button, Input, Popconfirm, Progress, Select, Table, type TableColumnsType } from "antd";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useNavigate, useParams } from "react-router";
import { call } from "../api";
import { Fact, Loaded, Moment, PageHead, Panel, Tag } from "../components/bits";
import { PagedTable, usePaged } from "../components/Pager";
import { Placement } from "../components/Placement";
import {
  type Simulation,
  type SimulationEvent,
  type SimulationMeasure,
  SimulationState,
} from "../gen/yunhe/simulations/v1/simulations_pb";
import { messageOf } from "../lib/errors";
import { formatCount, formatDuration } from "../lib/format";
import { formatMeasure, policyOf, SIMULATION_STATES, type SimulationReport, simulationEnded } from "../lib/simulations";
import { useCenterNames } from "../queries";
import { useClients, useSession } from "../session";
import { source } from "./Simulations";

const LineChart = lazy(() => import("../components/LineChart"));

export function SimulationDetail() {
  const { simulationId = "" } = useParams();
  const { simulations } = useClients();
  const client = useQueryClient();
  const key = useMemo(() => ["simulation", simulationId], [simulationId]);
  const query = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => simulations.getSimulation({ simulationId }, call(signal)),
  });
  const ended = query.data ? simulationEnded(query.data.state) : true;
  // The platform tells of every change; a watch that breaks is begun anew.
  useEffect(() => {
    if (ended) return;
    const stop = new AbortController();
    const watch = async () => {
      while (!stop.signal.aborted) {
        try {
          for await (const m of simulations.watchSimulation({ simulationId }, { signal: stop.signal }))
            if (m.simulation) client.setQueryData(key, m.simulation);
          return;
        } catch {
          await new Promise((again) => setTimeout(again, 2000));
        }
      }
    };
    void watch();
    return () => stop.abort();
  }, [ended, simulations, simulationId, client, key]);
  return <Loaded query={query}>{(s) => <Whole s={s} />}</Loaded>;
}

function Whole({ s }: { s: Simulation }) {
  const { t } = useTranslation();
  const state = SIMULATION_STATES[s.state];
  return (
    <>
      <PageHead
        title={s.title || t(`simulation.sources.${source(s)}`)}
        sub={s.simulationId}
        back={{ to: "/simulations", label: t("nav.simulations") }}
        extra={<Actions s={s} />}
      />
      {s.message && (
        <Alert
          type={s.state === SimulationState.FAILED ? "error" : "info"}
          showIcon
          className="yh-problem"
          title={s.message}
        />
      )}
      <Panel>
        <div className="yh-facts">
          <Fact label={t("simulation.state")}>
            <Tag tone={state.tone} text={t(`simulation.states.${state.word}`)} />
          </Fact>
          <Fact label={t("simulation.of")}>{t(`simulation.sources.${source(s)}`)}</Fact>
          <Fact label={t("simulation.places")}>{formatCount(s.places)}</Fact>
          <Fact label={t("simulation.jobs")}>{formatCount(s.jobs)}</Fact>
          <Fact label={t("common.created")}>
            <Moment at={s.createdAt} />
          </Fact>
          {s.runs > 1 && <Fact label={t("simulation.runs")}>{formatCount(s.runs)}</Fact>}
        </div>
        {!simulationEnded(s.state) && (
          <Progress percent={Math.floor(s.progressPermille / 10)} aria-label={t("simulation.progress")} />
        )}
      </Panel>
      {s.measures.length > 0 && (
        <>
          <Panel title={t("simulation.measures")} flush>
            <Measures s={s} />
          </Panel>
          <Charts simulationId={s.simulationId} />
          <Panel title={t("simulation.events")} flush>
            <Events s={s} />
          </Panel>
        </>
      )}
    </>
  );
}

function Actions({ s }: { s: Simulation }) {
  const { t } = useTranslation();
  const { simulations } = useClients();
  const { can } = useSession();
  const { message } = App.useApp();
  const client = useQueryClient();
  const navigate = useNavigate();
  const failed = (e: unknown) => void message.error(messageOf(e));
  const cancel = useMutation({
    mutationFn: () => simulations.cancelSimulation({ simulationId: s.simulationId }, call()),
    onSuccess: (next) => client.setQueryData(["simulation", s.simulationId], next),
    onError: failed,
  });
  const remove = useMutation({
    mutationFn: () => simulations.deleteSimulation({ simulationId: s.simulationId }, call()),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ["simulations"] });
      void navigate("/simulations");
    },
    onError: failed,
  });
  const report = useMutation({
    mutationFn: () => simulations.getSimulationReport({ simulationId: s.simulationId, format: "html" }, call()),
    onSuccess: (res) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([new Uint8Array(res.content)], { type: res.contentType }));
      link.download = `${s.simulationId}.html`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    },
    onError: failed,
  });
  return (
    <div className="yh-row">
      {s.measures.length > 0 && (
        <Button loading={report.isPending} onClick={() => report.mutate()} data-testid="simulation-report">
          {t("simulation.report")}
        </Button>
      )}
      {can("jobs.write") &&
        (simulationEnded(s.state) ? (
          <Popconfirm
            title={t("simulation.deleteTitle")}
            description={t("simulation.deleteHelp")}
            okText={t("common.delete")}
            okButtonProps={{ danger: true }}
            onConfirm={() => remove.mutateAsync().catch(() => undefined)}
          >
            <Button danger>{t("common.delete")}</Button>
          </Popconfirm>
        ) : (
          <Popconfirm
            title={t("simulation.cancelTitle")}
            description={t("simulation.cancelHelp")}
            onConfirm={() => cancel.mutateAsync().catch(() => undefined)}
          >
            <Button loading={cancel.isPending}>{t("simulation.cancel")}</Button>
          </Popconfirm>
        ))}
    </div>
  );
}

function Measures({ s }: { s: Simulation }) {
  const { t } = useTranslation();
  const columns: TableColumnsType<SimulationMeasure> = [
    { title: t("simulation.measure"), key: "title", fixed: "left", width: 220, render: (_, m) => m.title },
    ...s.compared.map((name) => {
      const policy = policyOf(name);
      return {
        title: policy ? (
          <Link to={`/policies/${policy}`} title={t("simulation.issue")}>
            {name}
          </Link>
        ) : (
          name
        ),
        key: name,
        align: "right" as const,
        width: 180,
        render: (_: unknown, m: SimulationMeasure) => {
          const f = m.figures.find((f) => f.name === name);
          if (!f) return "–";
          const text = formatMeasure(m.unit, f.value);
          return (
            <span className="yh-num" title={f.best ? t("simulation.best") : undefined}>
              {f.best ? <b>{text} ★</b> : text}
            </span>
          );
        },
      };
    }),
  ];
  return (
    <Table
      size="small"
      rowKey="measureId"
      columns={columns}
      dataSource={s.measures}
      pagination={false}
      scroll={{ x: 220 + 180 * s.compared.length }}
      data-testid="simulation-measures"
    />
  );
}

function Charts({ simulationId }: { simulationId: string }) {
  const { t } = useTranslation();
  const { simulations } = useClients();
  const query = useQuery({
    queryKey: ["simulationReport", simulationId],
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: async ({ signal }) => {
      const res = await simulations.getSimulationReport({ simulationId, format: "json" }, call(signal));
      return JSON.parse(new TextDecoder().decode(res.content)) as SimulationReport;
    },
  });
  const drawn = useMemo(() => {
    const results = query.data?.results ?? [];
    const lines = (of: (p: SimulationReport["results"][number]["series"][number]) => number) =>
      results.map((r) => ({ name: r.name, points: r.series.map((p): [number, number] => [p.at * 1000, of(p)]) }));
    return {
      end: Math.max(1, ...results.map((r) => r.seconds)) * 1000,
      held: lines((p) => p.allocation_percent),
      queue: lines((p) => p.waiting),
    };
  }, [query.data]);
  return (
    <Panel title={t("simulation.charts")}>
      <Loaded query={query}>
        {() => (
          <Suspense fallback={<div style={{ height: 480 }} />}>
            <h3 className="yh-small-title">{t("simulation.held")}</h3>
            <LineChart
              lines={drawn.held}
              start={0}
              end={drawn.end}
              elapsed
              height={220}
              max={100}
              format={(v) => `${v.toFixed(0)} %`}
              label={t("simulation.held")}
            />
            <h3 className="yh-small-title">{t("simulation.queue")}</h3>
            <LineChart
              lines={drawn.queue}
              start={0}
              end={drawn.end}
              elapsed
              whole
              height={220}
              format={formatCount}
              label={t("simulation.queue")}
            />
          </Suspense>
        )}
      </Loaded>
    </Panel>
  );
}

const WHATS = {
  arrives: "arrives",
  starts: "starts",
  ends: "ends",
  "taken back": "takenBack",
  "is dropped": "isDropped",
  "never fits": "neverFits",
  grows: "grows",
  "is interrupted": "isInterrupted",
  fails: "fails",
  "is repaired": "isRepaired",
  waits: "waits",
} as const;

function Events({ s }: { s: Simulation }) {
  const { t } = useTranslation();
  const { simulations } = useClients();
  const centerName = useCenterNames();
  const [name, setName] = useState(s.compared[0] ?? "");
  const [jobId, setJobId] = useState("");
  const paged = usePaged({
    key: ["simulationEvents", s.simulationId, name, jobId],
    fetchPage: async (pageToken, signal) => {
      const res = await simulations.listSimulationEvents(
        { simulationId: s.simulationId, name, jobId, pageSize: 50, pageToken },
        call(signal),
      );
      return { items: res.events, nextPageToken: res.nextPageToken };
    },
  });
  const columns: TableColumnsType<SimulationEvent> = [
    {
      title: t("simulation.when"),
      key: "at",
      width: 120,
      render: (_, e) => <span className="yh-num">{formatDuration(e.seconds * 1e6)}</span>,
    },
    {
      title: t("simulation.what"),
      key: "what",
      width: 140,
      render: (_, e) => {
        const word = WHATS[e.what as keyof typeof WHATS];
        return word ? t(`simulation.whats.${word}`) : e.what;
      },
    },
    {
      title: t("simulation.job"),
      key: "job",
      ellipsis: true,
      render: (_, e) =>
        e.jobId && (
          <Button type="link" size="small" className="yh-link" onClick={() => setJobId(e.jobId)}>
            {e.jobId}
          </Button>
        ),
    },
    {
      title: t("simulation.where"),
      key: "where",
      ellipsis: true,
      render: (_, e) =>
        Object.entries(e.places)
          .sort()
          .map(([id, n]) => (n > 1 ? `${centerName(id)} ×${n}` : centerName(id)))
          .join(", "),
    },
  ];
  return (
    <>
      <search className="yh-filters yh-row" aria-label={t("jobs.filters")}>
        <Select
          className="yh-w-200"
          aria-label={t("simulation.result")}
          value={name}
          onChange={setName}
          options={s.compared.map((value) => ({ value, label: value }))}
        />
        <Input.Search
          allowClear
          className="yh-w-320"
          key={jobId}
          defaultValue={jobId}
          placeholder={t("simulation.jobHelp")}
          aria-label={t("simulation.job")}
          onSearch={(text) => setJobId(text.trim())}
        />
      </search>
      <PagedTable
        paged={paged}
        rowKey={(e) => `${e.seconds} ${e.what} ${e.jobId} ${Object.keys(e.places).join()}`}
        columns={columns}
        data-testid="simulation-events"
        expandable={{
          rowExpandable: (e) => e.decision !== undefined,
          expandedRowRender: (e) => e.decision && <Placement decisions={[e.decision]} />,
        }}
        empty={t("simulation.noEvents")}
      />
    </>
  );
}
