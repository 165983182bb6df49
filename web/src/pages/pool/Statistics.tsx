// What was used of the pool, and by whom; reports of it as files.
import { useMutation, useQuery } from "@tanstack/react-query";
import { App, Button, Segmented, Table, type TableColumnsType } from "antd";
import { lazy, Suspense, useState } from "react";
import { useTranslation } from "react-i18next";
import { call, saveFile } from "../../api";
import { Loaded, Moment, Nothing } from "../../components/bits";
import {
  ExportPoolReportRequest_Format,
  ExportPoolReportRequest_Kind,
  type PoolQueueing,
  type PoolReason,
  type PoolStatistics,
  type PoolUse,
} from "../../gen/yunhe/pool/v1/operation_pb";
import { messageOf } from "../../lib/errors";
import { formatCount, formatMillis } from "../../lib/format";
import { shares, stampOf, wattHours } from "../../lib/poolops";
import { useClients } from "../../session";

const LineChart = lazy(() => import("../../components/LineChart"));

const HOUR = 3_600_000;
const SPANS = { day: 24 * HOUR, week: 7 * 24 * HOUR, month: 30 * 24 * HOUR } as const;
type Span = keyof typeof SPANS;

const KINDS = [
  { name: "resources", kind: ExportPoolReportRequest_Kind.RESOURCES },
  { name: "tasks", kind: ExportPoolReportRequest_Kind.TASKS },
  { name: "operation", kind: ExportPoolReportRequest_Kind.OPERATION },
] as const;

const FORMATS = [
  { name: "CSV", format: ExportPoolReportRequest_Format.CSV },
  { name: "HTML", format: ExportPoolReportRequest_Format.HTML },
  { name: "PDF", format: ExportPoolReportRequest_Format.PDF },
] as const;

export function Statistics() {
  const { t, i18n } = useTranslation();
  const { message } = App.useApp();
  const { poolOps } = useClients();
  const [span, setSpan] = useState<Span>("day");
  const [kind, setKind] = useState<(typeof KINDS)[number]>(KINDS[0]);
  const from = () => stampOf(Date.now() - SPANS[span]);
  const query = useQuery({
    queryKey: ["pool", "statistics", span],
    queryFn: ({ signal }) => poolOps.getPoolStatistics({ from: from() }, call(signal)),
    refetchInterval: 15_000,
  });
  const write = useMutation({
    mutationFn: (format: ExportPoolReportRequest_Format) =>
      poolOps.exportPoolReport(
        { kind: kind.kind, format, from: from(), language: i18n.language.startsWith("zh") ? "zh" : "en" },
        call(),
      ),
    onSuccess: (f) => saveFile(new Blob([new Uint8Array(f.content)], { type: f.contentType }), f.name),
    onError: (e) => void message.error(messageOf(e)),
  });
  return (
    <>
      <div className="yh-tab-actions">
        <Segmented
          value={span}
          onChange={setSpan}
          options={(Object.keys(SPANS) as Span[]).map((value) => ({ value, label: t(`poolops.last.${value}`) }))}
        />
        <Segmented
          value={kind.name}
          onChange={(name) => setKind(KINDS.find((k) => k.name === name) ?? KINDS[0])}
          options={KINDS.map((k) => ({ value: k.name, label: t(`poolops.reports.${k.name}`) }))}
        />
        {FORMATS.map((f) => (
          <Button key={f.name} loading={write.isPending} onClick={() => write.mutate(f.format)}>
            {`${t("poolops.export")} ${f.name}`}
          </Button>
        ))}
      </div>
      <Loaded query={query} rows={6}>
        {(s) => (
          <div className="yh-pad" data-testid="pool-statistics">
            {kind.name === "resources" && <Uses title={t("poolops.devices")} list={s.devices} shared />}
            {kind.name === "tasks" && <Tasks statistics={s} />}
            {kind.name === "operation" && <OverTime statistics={s} />}
          </div>
        )}
      </Loaded>
    </>
  );
}

const hours = (n: bigint, per = 1) => (Number(n) / per / 3600).toFixed(3);
const ofPercent = (n: number) => `${n.toFixed(1)} %`;

/** Amounts by name; shared: beside what there was. */
function Uses({
  title,
  list,
  shared,
  times,
}: {
  title: string;
  list: PoolUse[];
  shared?: boolean;
  /** The names are times. */
  times?: boolean;
}) {
  const { t } = useTranslation();
  const column = (label: string, of: (u: PoolUse) => string) => ({
    title: label,
    key: label,
    width: 120,
    align: "right" as const,
    render: (_: unknown, u: PoolUse) => <span className="yh-num">{of(u)}</span>,
  });
  const columns: TableColumnsType<PoolUse> = [
    {
      title,
      key: "name",
      width: 220,
      ellipsis: true,
      render: (_, u) => <b>{times ? <Moment at={stampOf(Date.parse(u.name))} /> : u.name}</b>,
    },
    ...(shared
      ? [
          column(t("poolops.lent"), (u) => ofPercent(shares(u).lent)),
          column(t("poolops.busy"), (u) => ofPercent(shares(u).busy)),
          column(t("poolops.memoryLent"), (u) => ofPercent(shares(u).memory)),
          column(t("poolops.memoryUsed"), (u) => ofPercent(shares(u).used)),
        ]
      : [column(t("poolops.busy"), (u) => formatMillis(u.deviceMicros / 1000n))]),
    column(t("poolops.deviceHours"), (u) => hours(u.computeLent, 100)),
    column(t("poolops.sliceHours"), (u) => hours(u.sliceSeconds)),
    ...(shared ? [column(t("poolops.energy"), (u) => wattHours(u.energyMillijoules))] : []),
    column(t("poolops.sliceEnergy"), (u) => wattHours(u.sliceEnergyMillijoules)),
  ];
  return (
    <Table
      size="small"
      rowKey="name"
      columns={columns}
      dataSource={list}
      pagination={false}
      scroll={{ x: 900 }}
      locale={{ emptyText: <Nothing text={t("poolops.noUse")} /> }}
    />
  );
}

function Tasks({ statistics: s }: { statistics: PoolStatistics }) {
  const { t } = useTranslation();
  const number = (label: string, of: (q: PoolQueueing) => string) => ({
    title: label,
    key: label,
    align: "right" as const,
    render: (_: unknown, q: PoolQueueing) => <span className="yh-num">{of(q)}</span>,
  });
  const queueing: TableColumnsType<PoolQueueing> = [
    { title: t("poolops.queueing"), key: "group", render: (_, q) => <b>{q.groupId}</b> },
    number(t("poolops.requested"), (q) => formatCount(q.requested)),
    number(t("poolops.placed"), (q) => formatCount(q.placed)),
    number(t("poolops.ended"), (q) => formatCount(q.ended)),
    number(t("poolops.failed"), (q) => formatCount(q.failed)),
    number(t("poolops.meanWait"), (q) => formatMillis(q.meanWaitMs)),
    number(t("poolops.maxWait"), (q) => formatMillis(q.maxWaitMs)),
  ];
  const reasons: TableColumnsType<PoolReason> = [
    { title: t("poolops.reasons"), key: "reason", ellipsis: true, render: (_, r) => r.reason },
    {
      title: t("poolops.count"),
      key: "count",
      width: 120,
      align: "right",
      render: (_, r) => <span className="yh-num">{formatCount(r.count)}</span>,
    },
  ];
  const empty = { emptyText: <Nothing text={t("poolops.noUse")} /> };
  return (
    <>
      <Table
        size="small"
        rowKey="groupId"
        columns={queueing}
        dataSource={s.queueing}
        pagination={false}
        locale={empty}
      />
      <Uses title={t("poolops.groups")} list={s.groups} />
      <Uses title={t("poolops.users")} list={s.users} />
      <Table size="small" rowKey="reason" columns={reasons} dataSource={s.reasons} pagination={false} locale={empty} />
    </>
  );
}

function OverTime({ statistics: s }: { statistics: PoolStatistics }) {
  const { t } = useTranslation();
  const points = (of: (u: PoolUse) => number) => s.times.map((u): [number, number] => [Date.parse(u.name), of(u)]);
  return (
    <>
      {s.times.length > 1 && (
        <Suspense>
          <LineChart
            label={t("poolops.overTime")}
            height={280}
            start={Number(s.from?.seconds ?? 0n) * 1000}
            end={Number(s.to?.seconds ?? 0n) * 1000}
            format={ofPercent}
            max={100}
            lines={[
              { name: t("poolops.lent"), points: points((u) => shares(u).lent) },
              { name: t("poolops.busy"), points: points((u) => shares(u).busy) },
              { name: t("poolops.memoryLent"), points: points((u) => shares(u).memory) },
            ]}
          />
        </Suspense>
      )}
      <Uses title={t("poolops.overTime")} list={s.times} shared times />
    </>
  );
}
