import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Alert, App, Button, Popconfirm, Segmented, Table, Tooltip } from "antd";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call, newRequestId } from "../api";
import {
  type Indicator,
  IndicatorKind,
  type Measurement,
  type MeasurementRun,
  Scope,
} from "../gen/yunhe/measurement/v1/measurement_pb";
import { messageOf } from "../lib/errors";
import { formatCount, NONE } from "../lib/format";
import {
  amount,
  awaitsDecision,
  decisionWord,
  figure,
  fromWord,
  isOpen,
  originWord,
  peaksOf,
  stateToneOf,
  stateWord,
  titleOf,
  valuesOf,
  valueText,
} from "../lib/measurement";
import { useIndicators } from "../queries";
import { useClients, useSession } from "../session";
import { Fact, Loaded, Moment, Nothing, Panel } from "./bits";
import { NodeScheduleCard } from "./NodeScheduleCard";

const KINDS = [
  { word: "static", kind: IndicatorKind.STATIC },
  { word: "dynamic", kind: IndicatorKind.DYNAMIC },
  { word: "combined", kind: IndicatorKind.COMBINED },
] as const;

/** While the benchmark runs it is looked at this often. */
const OPEN_MS = 2_000;
const CALM_MS = 10_000;

/** What is known of a center by the scheme of indicators, and its benchmark. */
export function MeasurementCard({ centerId }: { centerId: string }) {
  const { t } = useTranslation();
  const { measurement } = useClients();
  const { can } = useSession();
  const indicators = useIndicators();
  const picture = useQuery({
    queryKey: ["measurement", centerId],
    queryFn: ({ signal }) => measurement.getMeasurement({ aiCenterId: centerId }, call(signal)),
    refetchInterval: (q) => (q.state.data?.runs.some(isOpen) ? OPEN_MS : CALM_MS),
  });
  return (
    <Panel
      title={t("measurement.title")}
      extra={
        <div className="yh-row">
          <Link to={`/compare?c=${encodeURIComponent(centerId)}`}>{t("measurement.compare")}</Link>
          {can("registry.write") && picture.data && <RunButtons m={picture.data} />}
        </div>
      }
    >
      <Loaded query={indicators} rows={4}>
        {(list) => (
          <Loaded query={picture} rows={8}>
            {(m) => <Picture m={m} indicators={list} />}
          </Loaded>
        )}
      </Loaded>
    </Panel>
  );
}

function RunButtons({ m }: { m: Measurement }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { measurement } = useClients();
  const client = useQueryClient();
  const open = m.runs.some(isOpen);
  const start = useMutation({
    mutationFn: (scope: Scope) =>
      measurement.runMeasurement({ aiCenterId: m.aiCenterId, scope, requestId: newRequestId() }, call()),
    onSuccess: () => client.invalidateQueries({ queryKey: ["measurement", m.aiCenterId] }),
    onError: (error) => void message.error(messageOf(error)),
  });
  return (
    <>
      <Popconfirm
        title={t("measurement.runTitle")}
        description={t("measurement.runHelp")}
        okText={t("measurement.run")}
        onConfirm={() => start.mutateAsync(Scope.MACHINE).catch(() => undefined)}
        disabled={open}
      >
        <Button type="primary" loading={open || start.isPending} data-testid="measure">
          {t(open ? "measurement.running" : "measurement.run")}
        </Button>
      </Popconfirm>
      <Tooltip title={t("measurement.devicesHelp")}>
        <Button disabled={open} onClick={() => start.mutate(Scope.DEVICES)}>
          {t("measurement.devices")}
        </Button>
      </Tooltip>
    </>
  );
}

function Picture({ m, indicators }: { m: Measurement; indicators: Indicator[] }) {
  const { t } = useTranslation();
  return (
    <>
      <div className="yh-row yh-measured">
        <Fact label={t("measurement.factor")} hint={t("measurement.factorHelp")}>
          {m.performance > 0n ? formatCount(m.performance) : NONE}
        </Fact>
        <Fact label={t("measurement.from")}>
          {m.performance > 0n ? t(`measurement.origins.${fromWord(m.performanceFrom)}`) : NONE}
        </Fact>
        {["service.computing", "service.storage", "service.network"].map((id) => (
          <Combined key={id} m={m} indicator={indicators.find((x) => x.indicatorId === id)} />
        ))}
      </div>
      {m.runs.filter(awaitsDecision).map((r) => (
        <Decide key={r.runId} run={r} />
      ))}
      <div className="yh-grid-2">
        <Shares m={m} indicators={indicators} />
        <Peaks m={m} indicators={indicators} />
      </div>
      <Values m={m} indicators={indicators} />
      {m.notes.length > 0 && (
        <ul className="yh-muted yh-notes">
          {m.notes.map((n) => (
            <li key={n}>{n}</li>
          ))}
        </ul>
      )}
      <History m={m} />
      <NodeScheduleCard centerId={m.aiCenterId} />
    </>
  );
}

function Combined({ m, indicator }: { m: Measurement; indicator: Indicator | undefined }) {
  const { i18n } = useTranslation();
  const v = m.values.find((x) => x.indicatorId === indicator?.indicatorId);
  if (!indicator || !v) return null;
  return (
    <Fact label={titleOf(indicator, "", i18n.language)} hint={indicator.source}>
      {figure(v.number)}
    </Fact>
  );
}

/** A run somebody has to decide about. */
function Decide({ run }: { run: MeasurementRun }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { measurement } = useClients();
  const { can } = useSession();
  const client = useQueryClient();
  const decide = useMutation({
    mutationFn: (accept: boolean) => measurement.decideMeasurementRun({ runId: run.runId, accept }, call()),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ["measurement", run.aiCenterId] });
      await client.invalidateQueries({ queryKey: ["centers"] });
    },
    onError: (error) => void message.error(messageOf(error)),
  });
  return (
    <Alert
      type="info"
      showIcon
      className="yh-problem"
      title={
        run.scope === Scope.DEVICES
          ? t("measurement.awaitsSpeeds")
          : t("measurement.awaits", { factor: formatCount(run.performance) })
      }
      action={
        can("registry.write") && (
          <div className="yh-row">
            <Button size="small" type="primary" loading={decide.isPending} onClick={() => decide.mutate(true)}>
              {t("measurement.accept")}
            </Button>
            <Button size="small" disabled={decide.isPending} onClick={() => decide.mutate(false)}>
              {t("measurement.reject")}
            </Button>
          </div>
        )
      }
    />
  );
}

/** A figure as a bar; the mark is the reference, or the largest. */
function Bar({ part, label, text }: { part: number; label: string; text: string }) {
  const width = Math.min(100, Math.max(0, 100 * part));
  return (
    <div>
      <span>{label}</span>
      <div className="yh-use yh-tone-active">
        <div className="yh-use-text">
          <span className="yh-num">{text}</span>
        </div>
        <div className="yh-use-bar" role="img" aria-label={`${label}: ${text}`}>
          <div style={{ width: `${width}%` }} />
        </div>
      </div>
    </div>
  );
}

/** What the measured factor is made of: full width is twice the reference machine. */
function Shares({ m, indicators }: { m: Measurement; indicators: Indicator[] }) {
  const { t, i18n } = useTranslation();
  const by = useMemo(() => new Map(indicators.map((x) => [x.indicatorId, x])), [indicators]);
  return (
    <div>
      <h3>{t("measurement.shares")}</h3>
      {m.shares.length === 0 && <Nothing text={t("measurement.never")} />}
      <div className="yh-bars yh-bars-wide">
        {m.shares.map((s) => {
          const x = by.get(s.indicatorId);
          const unit = x?.unit ?? "";
          const value = amount(unit, s.value) + (s.perCore ? ` ${t("measurement.perCore")}` : "");
          return (
            <Bar
              key={s.indicatorId}
              part={Number(s.score) / 2000}
              label={titleOf(x, s.indicatorId, i18n.language)}
              text={t("measurement.share", { score: formatCount(s.score), value, weight: s.weight.toString() })}
            />
          );
        })}
      </div>
    </div>
  );
}

/** Peak rates, each precision by itself; they are never added. */
function Peaks({ m, indicators }: { m: Measurement; indicators: Indicator[] }) {
  const { t } = useTranslation();
  const peaks = peaksOf(m, indicators);
  const most = Math.max(...peaks.map((p) => p.value), 0);
  return (
    <div>
      <h3>{t("measurement.peaks")}</h3>
      {peaks.length === 0 && <Nothing text={t("measurement.noPeaks")} />}
      <div className="yh-bars">
        {peaks.map((p) => (
          <Bar key={p.precision} part={p.value / most} label={p.precision} text={amount(p.unit, p.value)} />
        ))}
      </div>
    </div>
  );
}

function Values({ m, indicators }: { m: Measurement; indicators: Indicator[] }) {
  const { t, i18n } = useTranslation();
  const [word, setWord] = useState<(typeof KINDS)[number]["word"]>("static");
  const by = useMemo(() => new Map(indicators.map((x) => [x.indicatorId, x])), [indicators]);
  const kind = KINDS.find((k) => k.word === word)?.kind ?? IndicatorKind.STATIC;
  const rows = useMemo(() => valuesOf(m, indicators, kind), [m, indicators, kind]);
  return (
    <>
      <Segmented
        value={word}
        onChange={setWord}
        options={KINDS.map((k) => ({ value: k.word, label: t(`measurement.kinds.${k.word}`) }))}
        data-testid="indicator-kind"
      />
      <Table
        size="small"
        rowKey={(v) => `${v.indicatorId}/${v.node}/${v.part}/${v.origin}`}
        dataSource={rows}
        pagination={rows.length > 20 ? { pageSize: 20 } : false}
        locale={{ emptyText: t("measurement.nothing") }}
        columns={[
          {
            title: t("measurement.indicator"),
            key: "indicator",
            render: (_, v) => {
              const x = by.get(v.indicatorId);
              return (
                <Tooltip title={x && `${x.source} · ${x.clause}`}>{titleOf(x, v.indicatorId, i18n.language)}</Tooltip>
              );
            },
          },
          { title: t("measurement.of"), key: "of", render: (_, v) => v.part || v.node || NONE },
          {
            title: t("measurement.value"),
            key: "value",
            align: "right",
            render: (_, v) => <span className="yh-num">{valueText(by.get(v.indicatorId), v)}</span>,
          },
          {
            title: t("measurement.origin"),
            key: "origin",
            render: (_, v) => t(`measurement.origins.${originWord(v.origin)}`),
          },
          { title: t("measurement.at"), key: "at", render: (_, v) => <Moment at={v.at} /> },
        ]}
      />
    </>
  );
}

function History({ m }: { m: Measurement }) {
  const { t } = useTranslation();
  return (
    <>
      <h3>{t("measurement.history")}</h3>
      <Table
        size="small"
        rowKey="runId"
        dataSource={m.runs}
        pagination={false}
        locale={{ emptyText: t("measurement.never") }}
        columns={[
          { title: t("measurement.when"), key: "when", render: (_, r) => <Moment at={r.createdAt} /> },
          {
            title: t("measurement.what"),
            key: "what",
            render: (_, r) => t(r.scope === Scope.DEVICES ? "measurement.devices" : "measurement.machine"),
          },
          {
            title: t("measurement.state"),
            key: "state",
            render: (_, r) => (
              <Tooltip title={r.message}>
                <span className={`yh-state yh-tone-${stateToneOf(r.state)}`}>
                  <i aria-hidden />
                  {t(`measurement.states.${stateWord(r.state)}`)}
                </span>
              </Tooltip>
            ),
          },
          {
            title: t("measurement.factor"),
            key: "factor",
            align: "right",
            render: (_, r) => <span className="yh-num">{r.performance > 0n ? formatCount(r.performance) : NONE}</span>,
          },
          {
            title: t("measurement.decision"),
            key: "decision",
            render: (_, r) => {
              const word = decisionWord(r.decision);
              return word ? t(`measurement.decisions.${word}`) : NONE;
            },
          },
          { title: t("measurement.by"), key: "by", render: (_, r) => r.requestedBy },
          {
            title: t("measurement.job"),
            key: "job",
            render: (_, r) => (r.jobId ? <Link to={`/jobs/${r.jobId}`}>{t("measurement.openJob")}</Link> : NONE),
          },
        ]}
      />
    </>
  );
}
