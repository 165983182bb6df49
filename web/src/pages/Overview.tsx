import { PlusOutlined } from "@ant-design/icons";
import { Button, Segmented } from "antd";
import { useCallback, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { Fact, Loaded, Nothing, PageHead, Panel, StateTag, UseBar } from "../components/bits";
import { CenterMap } from "../components/CenterMap";
import { RangeChart, WindowSwitch } from "../components/Chart";
import { JobTable } from "../components/JobTable";
import { type Center, CenterStatus } from "../gen/yunhe/registry/v1/registry_pb";
import { formatBytes, formatCount, formatFen, formatMiB, formatMillis, NONE } from "../lib/format";
import { NO_FILTER } from "../lib/joblist";
import { STATES, stateName } from "../lib/states";
import { useCenterNames, useCenters, useJobStats, useJobs, useSchedulingStats } from "../queries";
import { useSession } from "../session";

export function Overview() {
  const { t } = useTranslation();
  const { can } = useSession();
  const centers = useCenters();
  return (
    <>
      <PageHead
        title={t("nav.overview")}
        extra={
          can("jobs.write") && (
            <Link to="/jobs/new">
              <Button type="primary" icon={<PlusOutlined />}>
                {t("jobs.submit")}
              </Button>
            </Link>
          )
        }
      />
      <div className="yh-tiles">
        <CenterTile centers={centers.data} />
        <ComputeTile centers={centers.data} />
        <JobTile />
        <CostTile />
        {can("scheduler.read") && <SchedulingTile />}
      </div>
      <div className="yh-grid-2">
        {can("monitor.read") && <UseChart />}
        <Panel
          title={t("overview.network")}
          className="yh-panel-map"
          extra={<Link to="/topology">{t("nav.topology")}</Link>}
        >
          <Loaded query={centers} rows={8}>
            {(list) => (list.length > 0 ? <CenterMap centers={list} /> : <Nothing text={t("centers.none")} />)}
          </Loaded>
        </Panel>
      </div>
      <LatestJobs />
    </>
  );
}

function CenterTile({ centers }: { centers: Center[] | undefined }) {
  const { t } = useTranslation();
  const available = centers?.filter((c) => c.status === CenterStatus.AVAILABLE && !c.drained).length;
  const drained = centers?.filter((c) => c.drained).length ?? 0;
  const other = (centers?.length ?? 0) - (available ?? 0) - drained;
  return (
    <Link to="/centers" className="yh-tile">
      <h2>{t("overview.centers")}</h2>
      <div className="yh-tile-figure yh-num" data-testid="centers-available">
        {centers ? available : NONE}
        <small>/ {centers ? centers.length : NONE}</small>
      </div>
      <div className="yh-tile-note">
        {drained + other === 0
          ? t("overview.centersAll")
          : [
              drained > 0 && t("overview.centersDrained", { count: drained }),
              other > 0 && t("overview.centersDown", { count: other }),
            ]
              .filter(Boolean)
              .join(" · ")}
      </div>
    </Link>
  );
}

function ComputeTile({ centers }: { centers: Center[] | undefined }) {
  const { t } = useTranslation();
  const sum = (pick: (c: Center) => bigint) => (centers ?? []).reduce((s, c) => s + pick(c), 0n);
  const accelerators = sum((c) => (c.resources ? c.resources.gpu + c.resources.npu + c.resources.mlu : 0n));
  return (
    <div className="yh-tile yh-tile-wide">
      <h2>{t("overview.compute")}</h2>
      <div className="yh-tile-bars">
        <div>
          <span>{t("resource.cpu")}</span>
          <UseBar
            label={t("resource.cpu")}
            used={sum((c) => c.monitoring?.cpuUsed ?? 0n)}
            total={sum((c) => c.resources?.cpu ?? 0n)}
            format={formatCount}
          />
        </div>
        <div>
          <span>{t("resource.memory")}</span>
          <UseBar
            label={t("resource.memory")}
            used={sum((c) => c.monitoring?.memoryUsed ?? 0n)}
            total={sum((c) => c.resources?.memory ?? 0n)}
            format={formatMiB}
          />
        </div>
        {accelerators > 0n && (
          <div>
            <span>{t("resource.accelerators")}</span>
            <UseBar
              label={t("resource.accelerators")}
              used={sum((c) =>
                c.monitoring ? c.monitoring.gpuUsed + c.monitoring.npuUsed + c.monitoring.mluUsed : 0n,
              )}
              total={accelerators}
              format={formatCount}
            />
          </div>
        )}
      </div>
    </div>
  );
}

function JobTile() {
  const { t } = useTranslation();
  const { data } = useJobStats();
  const counts = STATES.map((state) => ({ state, count: data?.jobsByState[stateName(state)] ?? 0n })).filter(
    (c) => c.count > 0n,
  );
  const total = counts.reduce((s, c) => s + c.count, 0n);
  return (
    <Link to="/jobs" className="yh-tile yh-tile-wide">
      <h2>{t("overview.jobs")}</h2>
      <div className="yh-tile-figure yh-num">{data ? formatCount(total) : NONE}</div>
      <ul className="yh-tile-states">
        {counts.map(({ state, count }) => (
          <li key={state}>
            <StateTag state={state} /> <b className="yh-num">{formatCount(count)}</b>
          </li>
        ))}
        {data && counts.length === 0 && <li>{t("jobs.none")}</li>}
      </ul>
    </Link>
  );
}

function CostTile() {
  const { t } = useTranslation();
  const { data } = useJobStats();
  return (
    <Link to="/usage" className="yh-tile">
      <h2>{t("overview.cost")}</h2>
      <div className="yh-tile-figure yh-num" data-testid="cost-24h">
        {data ? formatFen(data.costFen24h) : NONE}
      </div>
      <div className="yh-tile-note">
        {t("overview.runs", { count: Number(data?.runs24h ?? 0n), shown: formatCount(data?.runs24h ?? 0n) })}
      </div>
    </Link>
  );
}

function SchedulingTile() {
  const { t } = useTranslation();
  const { data } = useSchedulingStats();
  const some = data && data.jobsScheduled > 0n;
  return (
    <div className="yh-tile yh-tile-wide">
      <h2>{t("overview.scheduling")}</h2>
      <div className="yh-tile-facts">
        <Fact label={t("overview.throughput")} hint={t("overview.throughputHint")}>
          <span className="yh-num">{some ? throughputText(data.throughputPerSecond) : NONE}</span>
          {some && <small> {t("overview.perSecond")}</small>}
        </Fact>
        <Fact label={t("overview.p50")} hint={t("overview.timeHint")}>
          <span className="yh-num">{some ? formatMillis(data.schedulingP50Microseconds) : NONE}</span>
        </Fact>
        <Fact label={t("overview.p99")} hint={t("overview.timeHint")}>
          <span className="yh-num">{some ? formatMillis(data.schedulingP99Microseconds) : NONE}</span>
        </Fact>
        <Fact label={t("overview.waiting")}>
          <span className="yh-num">{data ? formatCount(data.queued) : NONE}</span>
        </Fact>
      </div>
    </div>
  );
}

function throughputText(perSecond: number): string {
  return perSecond < 100 ? perSecond.toFixed(1) : formatCount(perSecond);
}

const MEASURES = {
  cpu: "100 * yunhe_center_cpu_used_milli / yunhe_center_cpu_total_milli",
  busy: "yunhe_center_cpu_busy_permille / 10",
  memory: "yunhe_center_memory_used_bytes",
  running: "yunhe_center_running",
} as const;
type Measure = keyof typeof MEASURES;

const percentText = (value: number) => `${value.toFixed(value < 10 && value > 0 ? 1 : 0)}%`;
const FORMAT: Record<Measure, (value: number) => string> = {
  cpu: percentText,
  busy: percentText,
  memory: (value) => formatBytes(value),
  running: (value) => formatCount(value),
};

function UseChart() {
  const { t } = useTranslation();
  const [measure, setMeasure] = useState<Measure>("cpu");
  const [window, setWindow] = useState(3600);
  const name = useCenterNames();
  const nameOf = useCallback((labels: Record<string, string>) => name(labels.center ?? ""), [name]);
  return (
    <Panel
      title={t("overview.use")}
      extra={
        <div className="yh-row">
          <Segmented
            size="small"
            aria-label={t("overview.use")}
            value={measure}
            onChange={setMeasure}
            options={(Object.keys(MEASURES) as Measure[]).map((m) => ({ value: m, label: t(`chart.measure.${m}`) }))}
          />
          <WindowSwitch value={window} onChange={setWindow} />
        </div>
      }
    >
      <RangeChart
        query={MEASURES[measure]}
        windowSeconds={window}
        height={368}
        format={FORMAT[measure]}
        bytes={measure === "memory"}
        whole={measure === "running"}
        max={measure === "cpu" || measure === "busy" ? 100 : undefined}
        nameOf={nameOf}
        label={t("overview.use")}
      />
    </Panel>
  );
}

function LatestJobs() {
  const { t } = useTranslation();
  const jobs = useJobs(NO_FILTER, 8);
  const latest = useMemo(() => jobs.data?.pages[0]?.jobs.slice(0, 8), [jobs.data]);
  return (
    <Panel title={t("overview.latest")} extra={<Link to="/jobs">{t("overview.allJobs")}</Link>} flush>
      <Loaded query={{ ...jobs, data: latest }}>{(list) => <JobTable jobs={list} compact />}</Loaded>
    </Panel>
  );
}
