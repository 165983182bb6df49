import { DeploymentUnitOutlined, SwapOutlined } from "@ant-design/icons";
import { clone } from "@bufbuild/protobuf";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Descriptions, Popconfirm, Table } from "antd";
import { useCallback, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useParams } from "react-router";
import { call } from "../api";
import { AccessReportView } from "../components/AccessBits";
import {
  CenterTag,
  Copyable,
  Fact,
  Fen,
  Labels,
  Loaded,
  Moment,
  Nothing,
  PageHead,
  Panel,
  PluginTag,
  UseBar,
} from "../components/bits";
import { RangeChart, WindowSwitch } from "../components/Chart";
import { JobTable } from "../components/JobTable";
import { MeasurementCard } from "../components/MeasurementCard";
import { NodeTable } from "../components/NodeTable";
import { type Center, CenterSchema, NodeState } from "../gen/yunhe/registry/v1/registry_pb";
import { messageOf } from "../lib/errors";
import { formatBytes, formatCount, formatGiB, formatMiB, NONE } from "../lib/format";
import { NO_FILTER } from "../lib/joblist";
import { type NodeFilter, nodeStateOf } from "../lib/nodes";
import { servingOf } from "../lib/plugins";
import { quantityText } from "../lib/specs";
import { useCenter, useJobs, usePlugin, usePlugins, useSpecs } from "../queries";
import { useClients, useSession } from "../session";
import { AccountsPanel } from "./center/Accounts";
import { StandingPanel } from "./center/Standing";
import { MaintenanceOf } from "./control/MaintenanceList";

export function CenterDetail() {
  const { t } = useTranslation();
  const { centerId = "" } = useParams();
  const { can } = useSession();
  const center = useCenter(centerId);
  const c = center.data;
  return (
    <>
      <PageHead
        title={c?.name || centerId}
        back={{ to: "/centers", label: t("nav.centers") }}
        after={c && <CenterTag status={c.status} drained={c.drained} />}
        sub={<Copyable text={centerId} />}
        extra={
          c && (
            <div className="yh-row">
              <Link to={`/topology?v=${encodeURIComponent(`center:${centerId}`)}`}>
                <Button icon={<DeploymentUnitOutlined aria-hidden />}>{t("nav.topology")}</Button>
              </Link>
              <Link to={`/network?tab=paths&end=${encodeURIComponent(`center:${centerId}`)}`}>
                <Button icon={<SwapOutlined aria-hidden />}>{t("network.paths")}</Button>
              </Link>
              {can("registry.write") && <DrainButton center={c} />}
            </div>
          )
        }
      />
      <Loaded query={center} rows={10}>
        {(data) => (
          <>
            <div className="yh-grid-3">
              <UsePanel center={data} />
              <FactsPanel center={data} />
              <MorePanel center={data} />
            </div>
            <MaintenanceOf centerId={data.aiCenterId} />
            {can("adapters.read") && <Connection center={data} />}
            <StandingPanel center={data} />
            {can("adapters.read") && <AccountsPanel center={data} />}
            {data.nodes && <NodesHere center={data} />}
            {can("monitor.read") && <Charts id={data.aiCenterId} />}
            {can("monitor.read") && <MeasuredCharts id={data.aiCenterId} />}
            <AccessPanel id={data.aiCenterId} />
            <MeasurementCard centerId={data.aiCenterId} />
            <Offers id={data.aiCenterId} />
            <JobsHere id={data.aiCenterId} />
          </>
        )}
      </Loaded>
    </>
  );
}

function DrainButton({ center }: { center: Center }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { registry } = useClients();
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: (drained: boolean) => {
      const next = clone(CenterSchema, center);
      next.drained = drained;
      return registry.updateCenter({ center: next }, call());
    },
    onSuccess: (now, drained) => {
      void message.success(t(drained ? "center.drainDone" : "center.undrainDone"));
      client.setQueryData(["centers", center.aiCenterId], now);
      void client.invalidateQueries({ queryKey: ["centers"] });
    },
    onError: (error) => void message.error(messageOf(error)),
  });
  const drain = !center.drained;
  return (
    // Once the center is another, a question that is still open asks what nobody was asked.
    <Popconfirm
      key={String(drain)}
      title={t(drain ? "center.drainTitle" : "center.undrainTitle", { name: center.name })}
      description={t(drain ? "center.drainHelp" : "center.undrainHelp")}
      okText={t(drain ? "center.drain" : "center.undrain")}
      okButtonProps={{ danger: drain }}
      onConfirm={() => change.mutateAsync(drain).catch(() => undefined)}
    >
      <Button danger={drain} type={drain ? "default" : "primary"} loading={change.isPending} data-testid="drain">
        {t(drain ? "center.drain" : "center.undrain")}
      </Button>
    </Popconfirm>
  );
}

function UsePanel({ center: c }: { center: Center }) {
  const { t } = useTranslation();
  const m = c.monitoring;
  const r = c.resources;
  const bars = [
    { key: "cpu", label: t("resource.cpu"), used: m?.cpuUsed, total: r?.cpu, format: formatCount },
    { key: "memory", label: t("resource.memory"), used: m?.memoryUsed, total: r?.memory, format: formatMiB },
    { key: "storage", label: t("resource.storage"), used: m?.storageUsed, total: r?.storage, format: formatGiB },
    { key: "gpu", label: t("resource.gpu"), used: m?.gpuUsed, total: r?.gpu, format: formatCount },
    { key: "npu", label: t("resource.npu"), used: m?.npuUsed, total: r?.npu, format: formatCount },
    { key: "mlu", label: t("resource.mlu"), used: m?.mluUsed, total: r?.mlu, format: formatCount },
    {
      key: "define",
      label: t("resource.userDefine"),
      used: m?.defineresUsed,
      total: r?.userDefine,
      format: formatCount,
    },
  ].filter((b) => (b.total ?? 0n) > 0n);
  return (
    <Panel title={t("center.use")} extra={<Moment at={m?.measuredAt} />}>
      <div className="yh-bars">
        {bars.map((b) => (
          <div key={b.key}>
            <span>{b.label}</span>
            <UseBar label={b.label} used={b.used ?? 0n} total={b.total ?? 0n} format={b.format} />
          </div>
        ))}
      </div>
      <Descriptions
        size="small"
        column={1}
        className="yh-after-bars"
        items={[
          { key: "running", label: t("center.running"), children: m ? formatCount(m.runningTaskNum) : NONE },
          { key: "waiting", label: t("center.waiting"), children: m ? formatCount(m.waitingTaskNum) : NONE },
          {
            key: "busy",
            label: t("center.cpuBusy"),
            children: m ? `${(Number(m.cpuBusyPermille) / 10).toFixed(1)}%` : NONE,
          },
          { key: "memoryBusy", label: t("center.memoryBusy"), children: m ? formatMiB(m.memoryBusy) : NONE },
        ]}
      />
    </Panel>
  );
}

function FactsPanel({ center: c }: { center: Center }) {
  const { t } = useTranslation();
  return (
    <Panel title={t("center.facts")}>
      <Descriptions
        size="small"
        column={1}
        items={[
          { key: "region", label: t("center.region"), children: c.region || NONE },
          {
            key: "place",
            label: t("center.place"),
            children: c.geometry ? placeText(c.geometry.longitude, c.geometry.latitude) : NONE,
          },
          { key: "grade", label: t("center.grade"), children: `${c.securityGrade} / 5` },
          {
            key: "performance",
            label: t("center.performance"),
            children: c.performance > 0n ? t("center.performanceValue", { value: formatCount(c.performance) }) : NONE,
          },
          {
            key: "speeds",
            label: t("center.speeds"),
            children:
              c.speeds.length > 0
                ? c.speeds.map((s) => (
                    <div key={`${s.kind} ${s.precision}`} className="yh-num">
                      {t(s.measured ? "center.speedMeasured" : "center.speedPublished", {
                        of: `${s.kind} ${s.precision}`,
                        value: formatCount(s.milli),
                      })}
                    </div>
                  ))
                : NONE,
          },
          { key: "adapter", label: t("center.adapter"), children: c.adapter || NONE },
          { key: "created", label: t("center.created"), children: <Moment at={c.createdAt} long /> },
          { key: "updated", label: t("center.updated"), children: <Moment at={c.updatedAt} long /> },
          { key: "seen", label: t("center.lastSeen"), children: <Moment at={c.lastSeenAt} long /> },
        ]}
      />
    </Panel>
  );
}

function placeText(longitude: number, latitude: number): string {
  return `${Math.abs(longitude).toFixed(4)}° ${longitude < 0 ? "W" : "E"}, ${Math.abs(latitude).toFixed(4)}° ${latitude < 0 ? "S" : "N"}`;
}

function MorePanel({ center: c }: { center: Center }) {
  const { t } = useTranslation();
  const watts = (milli: bigint) => t("center.wattsPerCore", { watts: (Number(milli) / 1000).toString() });
  return (
    <Panel title={t("center.energy")}>
      <Descriptions
        size="small"
        column={1}
        items={[
          {
            key: "static",
            label: t("center.staticPower"),
            children: c.power ? watts(c.power.staticMilliwattsPerCpu) : NONE,
          },
          {
            key: "active",
            label: t("center.activePower"),
            children: c.power ? watts(c.power.activeMilliwattsPerCpu) : NONE,
          },
          {
            key: "now",
            label: t("center.powerNow"),
            children:
              c.power && c.monitoring
                ? t("center.watts", {
                    watts: formatCount(Number(c.power.activeMilliwattsPerCpu * c.monitoring.cpuUsed) / 1000),
                  })
                : NONE,
          },
          {
            key: "labels",
            label: t("center.labels"),
            children: <Labels labels={c.labels} />,
          },
        ]}
      />
    </Panel>
  );
}

/** The plug-in the center comes through, and how its connection is. */
function Connection({ center: c }: { center: Center }) {
  const { t } = useTranslation();
  const plugins = usePlugins();
  if (c.adapter === "") return null;
  const there = plugins.data?.some((p) => p.name === c.adapter);
  return (
    <Panel
      title={t("center.connection")}
      extra={there && <Link to={`/plugins/${encodeURIComponent(c.adapter)}`}>{c.adapter}</Link>}
    >
      <Loaded query={plugins} rows={1}>
        {() =>
          there ? <Serving center={c} /> : <span className="yh-muted">{t("center.noPlugin", { name: c.adapter })}</span>
        }
      </Loaded>
    </Panel>
  );
}

function Serving({ center: c }: { center: Center }) {
  const { t } = useTranslation();
  const plugin = usePlugin(c.adapter);
  return (
    <Loaded query={plugin} rows={1}>
      {(p) => {
        const serving = servingOf(p.list, c.aiCenterId);
        if (!serving) return <span className="yh-muted">{t("center.noInstance", { name: p.name })}</span>;
        const { instance: i, standby } = serving;
        return (
          <>
            <div className="yh-facts">
              <Fact label={t("plugin.state")}>
                <PluginTag state={i.state} />
              </Fact>
              <Fact label={t("plugin.since")}>
                <Moment at={i.changedAt} long />
              </Fact>
              <Fact label={t("plugin.version")}>{i.version || NONE}</Fact>
              <Fact label={t("center.joined")}>
                <Moment at={i.createdAt} long />
              </Fact>
              {i.endpoint && (
                <Fact label={t("plugin.endpoint")}>
                  <code>{i.endpoint}</code>
                </Fact>
              )}
              {standby > 0 && <Fact label={t("plugin.states.standby")}>{formatCount(standby)}</Fact>}
            </div>
            {i.message && (
              <p className={`yh-job-message yh-message-below${i.state === "up" ? "" : " yh-job-message-bad"}`}>
                {i.message}
              </p>
            )}
          </>
        );
      }}
    </Loaded>
  );
}

function NodesHere({ center: c }: { center: Center }) {
  const { t } = useTranslation();
  const [filter, setFilter] = useState<NodeFilter>({
    centerId: c.aiCenterId,
    state: NodeState.UNSPECIFIED,
    model: "",
    labels: [],
  });
  const nodes = c.nodes;
  return (
    <Panel
      title={t("nav.nodes")}
      flush
      extra={
        nodes && (
          <span className="yh-muted" data-testid="node-summary">
            {t("node.summary", {
              count: Number(nodes.total),
              total: formatCount(nodes.total),
              ready: formatCount(nodes.ready),
              notReady: formatCount(nodes.notReady),
              drained: formatCount(nodes.drained),
            })}
          </span>
        )
      }
    >
      <NodeTable
        fixed
        filter={filter}
        centers={[c]}
        onChange={({ state, model, label }) =>
          setFilter((now) => ({
            ...now,
            ...(state === undefined ? {} : { state: nodeStateOf(state) }),
            ...(model === undefined ? {} : { model }),
            ...(label === undefined ? {} : { labels: label }),
          }))
        }
      />
    </Panel>
  );
}

// A center's ID is set by its operator: quote it for PromQL.
function selector(id: string): string {
  return `{center="${id.replace(/[\\"]/g, "\\$&").replaceAll("\n", "\\n")}"}`;
}

function Charts({ id }: { id: string }) {
  const { t } = useTranslation();
  const [window, setWindow] = useState(3600);
  const which = selector(id);
  const named = useCallback(
    (labels: Record<string, string>) =>
      labels.kind === "waiting"
        ? t("center.waiting")
        : labels.kind === "busy"
          ? t("chart.measure.busy")
          : labels.kind === "running"
            ? t("center.running")
            : t("chart.measure.cpu"),
    [t],
  );
  const memoryName = useCallback(() => t("resource.memory"), [t]);
  const percentText = (value: number) => `${value.toFixed(value < 10 && value > 0 ? 1 : 0)}%`;
  return (
    <Panel title={t("center.history")} extra={<WindowSwitch value={window} onChange={setWindow} />}>
      <div className="yh-charts-3">
        <div>
          <h3>{t("resource.cpu")}</h3>
          <RangeChart
            query={`label_replace(100 * yunhe_center_cpu_used_milli${which} / yunhe_center_cpu_total_milli${which}, "kind", "held", "", "") or label_replace(yunhe_center_cpu_busy_permille${which} / 10, "kind", "busy", "", "")`}
            windowSeconds={window}
            height={200}
            format={percentText}
            max={100}
            nameOf={named}
            label={t("resource.cpu")}
          />
        </div>
        <div>
          <h3>{t("resource.memory")}</h3>
          <RangeChart
            query={`yunhe_center_memory_used_bytes${which}`}
            windowSeconds={window}
            height={200}
            format={formatBytes}
            bytes
            nameOf={memoryName}
            label={t("resource.memory")}
          />
        </div>
        <div>
          <h3>{t("center.replicas")}</h3>
          <RangeChart
            query={`label_replace(yunhe_center_running${which}, "kind", "running", "", "") or label_replace(yunhe_center_waiting${which}, "kind", "waiting", "", "")`}
            windowSeconds={window}
            height={200}
            format={formatCount}
            whole
            nameOf={named}
            label={t("center.replicas")}
          />
        </div>
      </div>
    </Panel>
  );
}

function AccessPanel({ id }: { id: string }) {
  const { t } = useTranslation();
  const { can } = useSession();
  if (!can("adapters.read")) return null;
  return (
    <Panel title={t("nav.access")}>
      <AccessReportView resourceId={`center:${id}`} />
    </Panel>
  );
}

// What the center measures of its paths, storage and network.
function MeasuredCharts({ id }: { id: string }) {
  const { t } = useTranslation();
  const [window, setWindow] = useState(3600);
  const which = selector(id).replace("{center=", "{ai_center_id=");
  const peer = useCallback((labels: Record<string, string>) => labels.peer ?? "", []);
  const way = useCallback(
    (labels: Record<string, string>) => t(labels.kind === "in" ? "access.in" : "access.out"),
    [t],
  );
  const charts = [
    {
      key: "latency",
      title: t("access.latency"),
      query: `1000 * yunhe_path_latency_seconds${which}`,
      format: (v: number) => `${v.toFixed(v < 10 ? 2 : 0)} ms`,
      nameOf: peer,
    },
    {
      key: "loss",
      title: t("access.loss"),
      query: `100 * yunhe_path_loss_ratio${which}`,
      format: (v: number) => `${v.toFixed(1)}%`,
      nameOf: peer,
    },
    {
      key: "storage",
      title: t("access.storageChart"),
      query: `label_replace(yunhe_storage_read_bytes_per_second${which}, "kind", "in", "", "") or label_replace(yunhe_storage_written_bytes_per_second${which}, "kind", "out", "", "")`,
      format: formatBytes,
      bytes: true,
      nameOf: way,
    },
  ];
  return (
    <Panel title={t("access.measured")} extra={<WindowSwitch value={window} onChange={setWindow} />}>
      <div className="yh-charts-3">
        {charts.map(({ key, title, ...chart }) => (
          <div key={key}>
            <h3>{title}</h3>
            <RangeChart {...chart} windowSeconds={window} height={200} label={title} />
          </div>
        ))}
      </div>
    </Panel>
  );
}

function Offers({ id }: { id: string }) {
  const { t } = useTranslation();
  const specs = useSpecs();
  const offers = useMemo(
    () =>
      specs.data?.flatMap((spec) => {
        const offer = spec.offers.find((o) => o.aiCenterId === id);
        return offer ? [{ spec, price: offer.price }] : [];
      }),
    [specs.data, id],
  );
  return (
    <Panel title={t("center.offers")} flush>
      <Loaded query={{ ...specs, data: offers }}>
        {(list) => (
          <Table
            size="small"
            rowKey={(o) => o.spec.resourceSpecId}
            dataSource={list}
            pagination={false}
            locale={{ emptyText: <Nothing text={t("center.noOffers")} /> }}
            columns={[
              {
                title: t("spec.name"),
                key: "name",
                render: (_, o) => (
                  <>
                    <b>{o.spec.resourceSpecName || o.spec.resourceSpecId}</b>{" "}
                    <code className="yh-muted">{o.spec.resourceSpecId}</code>
                  </>
                ),
              },
              { title: t("spec.quantity"), key: "quantity", render: (_, o) => quantityText(o.spec.resourceQuantity) },
              { title: t("spec.listPrice"), key: "list", align: "right", render: (_, o) => <Fen fen={o.spec.price} /> },
              { title: t("center.price"), key: "price", align: "right", render: (_, o) => <Fen fen={o.price} /> },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}

function JobsHere({ id }: { id: string }) {
  const { t } = useTranslation();
  const filter = useMemo(() => ({ ...NO_FILTER, centerId: id }), [id]);
  const jobs = useJobs(filter, 20);
  const rows = useMemo(() => jobs.data?.pages[0]?.jobs, [jobs.data]);
  return (
    <Panel
      title={t("center.jobs")}
      extra={<Link to={`/jobs?center=${encodeURIComponent(id)}`}>{t("overview.allJobs")}</Link>}
      flush
    >
      <Loaded query={{ ...jobs, data: rows }}>{(list) => <JobTable jobs={list} compact />}</Loaded>
    </Panel>
  );
}
