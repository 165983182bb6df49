import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Descriptions, Popconfirm, Table, type TableColumnsType, Tabs, Tooltip } from "antd";
import { lazy, Suspense, useMemo } from "react";
import { useTranslation } from "react-i18next";
import { Link, useNavigate, useParams, useSearchParams } from "react-router";
import { call } from "../api";
import {
  Copyable,
  Elapsed,
  Fact,
  Fen,
  Loaded,
  Micros,
  Moment,
  Nothing,
  PageHead,
  Panel,
  StateTag,
  Tag,
} from "../components/bits";
import { StopButton } from "../components/JobTable";
import { LogViewer, replicaKey, runKey } from "../components/LogViewer";
import { PauseButton, PauseNote } from "../components/PauseButton";
import { Placement, useSaid } from "../components/Placement";
import { RunUse } from "../components/RunUse";
import { Timeline } from "../components/Timeline";
import { useReason } from "../components/useReason";
import { WriteOffButton } from "../components/WriteOff";
import type { Job, Replica } from "../gen/yunhe/jobs/v1/jobs_pb";
import { FailurePolicy, State, SuccessPolicy } from "../gen/yunhe/jobs/v1/jobs_pb";
import type { CostLine } from "../gen/yunhe/metering/v1/metering_pb";
import { type RunForecast, Wait_Cause } from "../gen/yunhe/scheduler/v1/scheduler_pb";
import { messageOf } from "../lib/errors";
import { formatBytes, formatCount, formatDuration, formatFen, formatMillis, NONE } from "../lib/format";
import { specToJson } from "../lib/jobform";
import { hasEnded } from "../lib/states";
import { useCenterNames, useExplain, useJob, useJobCost, useRuns } from "../queries";
import { useClients, useSession } from "../session";

const Terminal = lazy(() => import("../components/Terminal"));

export function JobDetail() {
  const { jobId = "" } = useParams();
  const job = useJob(jobId);
  const { t } = useTranslation();
  if (!job.data) {
    return (
      <>
        <PageHead title={jobId} back={{ to: "/jobs", label: t("nav.jobs") }} />
        <Panel>
          <Loaded query={job} rows={8}>
            {() => null}
          </Loaded>
        </Panel>
      </>
    );
  }
  return <Detail key={jobId} job={job.data} />;
}

// A job with few replicas has its timeline below them instead of on a tab of its own.
const FEW_REPLICAS = 20;

const TABS = ["replicas", "timeline", "use", "log", "terminal", "placement", "cost", "spec"] as const;
type Tab = (typeof TABS)[number];

function Detail({ job }: { job: Job }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const [params, setParams] = useSearchParams();
  const wanted = params.get("tab") as Tab | null;
  const few = job.replicas.length <= FEW_REPLICAS;
  const tab = wanted && TABS.includes(wanted) && !(few && wanted === "timeline") ? wanted : "replicas";
  const selected = params.get("replica") ?? "";
  const show = (next: Tab, replica = selected) =>
    setParams({ tab: next, ...(replica ? { replica } : {}) }, { replace: true, preventScrollReset: true });
  return (
    <>
      <PageHead
        title={job.spec?.name ?? job.jobId}
        back={{ to: "/jobs", label: t("nav.jobs") }}
        after={
          <>
            <StateTag state={job.state} /> <PauseNote job={job} />
          </>
        }
        sub={<Copyable text={job.jobId} />}
        extra={
          <div className="yh-row">
            {can("jobs.write") && (
              <Link to={`/jobs/new?from=${job.jobId}`}>
                <Button>{t("job.again")}</Button>
              </Link>
            )}
            <WriteOffButton job={job} />
            <PauseButton job={job} />
            <StopButton job={job} />
            <DeleteButton job={job} />
          </div>
        }
      />
      <Summary job={job} />
      <Panel flush className="yh-tabs">
        <Tabs
          activeKey={tab}
          onChange={(key) => show(key as Tab)}
          destroyOnHidden
          items={[
            {
              key: "replicas",
              label: t("job.tab.replicas"),
              children: (
                <>
                  <Replicas job={job} onLog={(replica) => show("log", replica)} />
                  {few && <Timeline job={job} />}
                </>
              ),
            },
            ...(few ? [] : [{ key: "timeline", label: t("job.tab.timeline"), children: <Timeline job={job} /> }]),
            { key: "use", label: t("job.tab.use"), children: <RunUse job={job} /> },
            {
              key: "log",
              label: t("job.tab.log"),
              children: <LogViewer job={job} selected={selected} onSelect={(replica) => show("log", replica)} />,
            },
            ...(can("jobs.write") && !hasEnded(job.state)
              ? [
                  {
                    key: "terminal",
                    label: t("job.tab.terminal"),
                    children: (
                      <Suspense fallback={null}>
                        <Terminal job={job} selected={selected} />
                      </Suspense>
                    ),
                  },
                ]
              : []),
            { key: "placement", label: t("job.tab.placement"), children: <PlacementTab jobId={job.jobId} /> },
            ...(can("metering.read")
              ? [{ key: "cost", label: t("job.tab.cost"), children: <CostTab job={job} /> }]
              : []),
            { key: "spec", label: t("job.tab.spec"), children: <SpecTab job={job} /> },
          ]}
        />
      </Panel>
    </>
  );
}

function Summary({ job }: { job: Job }) {
  const { t } = useTranslation();
  const reason = useReason();
  const say = useSaid();
  const centerName = useCenterNames();
  return (
    <Panel>
      {(job.message || job.reason) && (
        <p className={`yh-job-message${job.replicasFailed > 0 ? " yh-job-message-bad" : ""}`}>
          {job.reason && <b>{reason(job.reason)}</b>} {say(job.message)}
        </p>
      )}
      {waits(job) && <WaitsFor job={job} />}
      <div className="yh-facts">
        <Fact label={t("job.cost")} hint={hasEnded(job.state) ? t("job.costFinal") : t("job.costSoFar")}>
          <span className="yh-num yh-strong" data-testid="job-cost">
            {formatFen(job.costFen)}
          </span>
        </Fact>
        <Fact label={t("job.schedulingTime")} hint={t("overview.timeHint")}>
          <span className="yh-num">
            {job.schedulingMicroseconds > 0n ? formatMillis(job.schedulingMicroseconds) : NONE}
          </span>
        </Fact>
        <Fact label={t("job.duration")}>
          <Elapsed from={job.startedAt} to={job.endedAt} ended={hasEnded(job.state)} />
        </Fact>
        <Fact label={t("job.replicas")}>
          <span className="yh-num">
            {job.replicasSucceeded} / {job.replicasTotal}
          </span>
          {job.replicasFailed > 0 && (
            <small className="yh-bad"> {t("job.failedCount", { count: job.replicasFailed })}</small>
          )}
        </Fact>
        <Fact label={t("job.centers")} hint={job.centerIds.join(", ")}>
          <span className="yh-cut">{job.centerIds.map(centerName).join(", ") || NONE}</span>
        </Fact>
        <Fact label={t("job.user")}>
          {job.createdUser || job.userName} <small>{job.tenantId}</small>
        </Fact>
        <Fact label={t("job.created")}>
          <Moment at={job.createdAt} />
        </Fact>
        <Fact label={t("job.ended")}>
          <Moment at={job.endedAt} />
        </Fact>
      </div>
      {job.spec?.desc && <p className="yh-job-desc">{job.spec.desc}</p>}
    </Panel>
  );
}

/** Dispatching: it may wait for its shares of the accelerator pool. */
const WAITING = new Set([State.QUEUED, State.SCHEDULING, State.DISPATCHING]);

function waits(job: Job): boolean {
  return !hasEnded(job.state) && (job.state === State.QUEUED || job.replicas.some((r) => WAITING.has(r.state)));
}

const CAUSES = {
  [Wait_Cause.UNSPECIFIED]: "other",
  [Wait_Cause.ROOM]: "room",
  [Wait_Cause.ORDER]: "order",
  [Wait_Cause.QUOTA]: "quota",
  [Wait_Cause.RESERVATION]: "reservation",
  [Wait_Cause.WINDOW]: "window",
  [Wait_Cause.DEPENDENCY]: "dependency",
  [Wait_Cause.TIME]: "time",
  [Wait_Cause.PAUSED]: "paused",
  [Wait_Cause.RESTART]: "restart",
  [Wait_Cause.NEAR_JOB]: "nearJob",
  [Wait_Cause.GANG]: "gang",
  [Wait_Cause.BUDGET]: "budget",
  [Wait_Cause.POOL]: "pool",
} as const;

/** What the scheduler says a job waits for, and when it may start. */
function WaitsFor({ job }: { job: Job }) {
  const { t } = useTranslation();
  const say = useSaid();
  const { data } = useExplain(job.jobId);
  if (!data || data.waits.length === 0) return null;
  return (
    <div className="yh-waits" data-testid="waits">
      <ul>
        {data.waits.map((w) => (
          <li key={`${w.taskIndex}/${w.cause}/${w.message}`}>
            <Tag tone="waiting" text={t(`job.waits.${CAUSES[w.cause as keyof typeof CAUSES] ?? "other"}`)} />{" "}
            {w.taskIndex >= 0 && <b>{job.spec?.tasks[w.taskIndex]?.name} </b>}
            {say(w.message)}
            {w.replicas > 1 && <span className="yh-muted"> · {t("job.waitingReplicas", { count: w.replicas })}</span>}
            {w.until && (
              <span className="yh-muted">
                {" "}
                · {t("job.notBefore")} <Moment at={w.until} />
              </span>
            )}
          </li>
        ))}
      </ul>
      <p>
        {t("job.estimatedStart")}:{" "}
        {data.estimatedStart ? <Moment at={data.estimatedStart} /> : <span>{t("job.notKnown")}</span>}
        {data.estimateBasis && <span className="yh-muted"> · {say(data.estimateBasis)}</span>}
      </p>
      {data.runForecast && <Forecast of={data.runForecast} />}
    </div>
  );
}

/** How long a run will hold its room. */
function Forecast({ of: f }: { of: RunForecast }) {
  const { t } = useTranslation();
  const say = useSaid();
  const time = (seconds: bigint) => formatDuration(seconds * 1_000_000n);
  const more = [
    t("job.forecastHigh", { time: time(f.highSeconds) }),
    ...(f.statedSeconds > 0n && f.runs > 0 ? [t("job.forecastStated", { time: time(f.statedSeconds) })] : []),
    say(f.basis),
  ];
  return (
    <p data-testid="run-forecast">
      {t("job.forecast")}: <span className="yh-num">{time(f.medianSeconds)}</span>
      <span className="yh-muted"> · {more.join(" · ")}</span>
    </p>
  );
}

function DeleteButton({ job }: { job: Job }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const { jobs } = useClients();
  const { message } = App.useApp();
  const client = useQueryClient();
  const navigate = useNavigate();
  const remove = useMutation({
    mutationFn: () => jobs.deleteJob({ jobId: job.jobId }, call()),
    onSuccess: () => {
      client.removeQueries({ queryKey: ["jobs"] });
      void message.success(t("job.deleted"));
      void navigate("/jobs");
    },
    onError: (error) => void message.error(messageOf(error)),
  });
  if (!hasEnded(job.state) || !can("jobs.write")) return null;
  return (
    <Popconfirm
      title={t("job.deleteTitle")}
      description={t("job.deleteHelp")}
      okText={t("common.delete")}
      okButtonProps={{ danger: true }}
      onConfirm={() => remove.mutateAsync().catch(() => undefined)}
    >
      <Button>{t("common.delete")}</Button>
    </Popconfirm>
  );
}

/** Columns of what is told alike of every run. */
function useRunColumns() {
  const { t } = useTranslation();
  return {
    started: { title: t("replica.started"), key: "started", width: 116, render: (_, r) => <Moment at={r.startedAt} /> },
    duration: {
      title: t("job.duration"),
      key: "duration",
      width: 80,
      align: "right",
      render: (_, r) => <Elapsed from={r.startedAt} to={r.endedAt} ended={hasEnded(r.state)} />,
    },
    exit: {
      title: t("replica.exit"),
      key: "exit",
      width: 64,
      align: "right",
      render: (_, r) => <span className="yh-num">{hasEnded(r.state) && r.startedAt ? r.exitCode : NONE}</span>,
    },
    cost: {
      title: t("job.cost"),
      key: "cost",
      width: 110,
      align: "right",
      render: (_, r) => <Micros micros={r.costMicros} />,
    },
  } satisfies Record<string, TableColumnsType<Replica>[number]>;
}

function Replicas({ job, onLog }: { job: Job; onLog: (replica: string) => void }) {
  const { t } = useTranslation();
  const reason = useReason();
  const say = useSaid();
  const of = useRunColumns();
  const columns: TableColumnsType<Replica> = [
    {
      title: t("replica.task"),
      key: "task",
      ellipsis: true,
      width: 150,
      render: (_, r) => (
        <>
          <b>{job.spec?.tasks[r.taskIndex]?.name}</b> <span className="yh-muted">· {r.replicaIndex}</span>
          {r.attempt > 1 && <span className="yh-muted"> · {t("replica.run", { attempt: r.attempt })}</span>}
        </>
      ),
    },
    {
      title: t("job.state"),
      key: "state",
      width: 124,
      render: (_, r) => (
        <Tooltip title={say(r.message)}>
          <span>
            <StateTag state={r.state} />
            {r.reason && <small className="yh-reason">{reason(r.reason)}</small>}
          </span>
        </Tooltip>
      ),
    },
    {
      title: t("replica.center"),
      key: "center",
      ellipsis: true,
      width: 130,
      render: (_, r) =>
        r.aiCenterId ? (
          <Link to={`/centers/${encodeURIComponent(r.aiCenterId)}`}>{r.centerName || r.aiCenterId}</Link>
        ) : (
          NONE
        ),
    },
    of.started,
    { title: t("replica.ended"), key: "ended", width: 116, render: (_, r) => <Moment at={r.endedAt} /> },
    of.duration,
    of.exit,
    {
      title: t("replica.cpuTime"),
      key: "cpu",
      width: 82,
      align: "right",
      render: (_, r) => (
        <span className="yh-num">{r.cpuMicroseconds > 0n ? formatDuration(r.cpuMicroseconds) : NONE}</span>
      ),
    },
    {
      title: t("replica.memory"),
      key: "memory",
      width: 104,
      align: "right",
      render: (_, r) => (
        <span className="yh-num">{r.memoryPeakBytes > 0n ? formatBytes(r.memoryPeakBytes) : NONE}</span>
      ),
    },
    of.cost,
    {
      title: "",
      key: "log",
      width: 56,
      align: "right",
      render: (_, r) => (
        <Button size="small" type="link" onClick={() => onLog(replicaKey(r))} disabled={r.attempt === 0}>
          {t("job.tab.log")}
        </Button>
      ),
    },
  ];
  return (
    <Table
      size="small"
      rowKey={replicaKey}
      columns={columns}
      expandable={{
        rowExpandable: (r) => r.attempt > 1,
        expandedRowRender: (r) => <EarlierRuns jobId={job.jobId} replica={r} onLog={onLog} />,
      }}
      dataSource={job.replicas}
      tableLayout="fixed"
      scroll={{ x: 980 }}
      pagination={job.replicas.length > 50 ? { pageSize: 50, showSizeChanger: false, size: "small" } : false}
    />
  );
}

/** The runs of a replica before its latest, and why each ended. */
function EarlierRuns({ jobId, replica, onLog }: { jobId: string; replica: Replica; onLog: (run: string) => void }) {
  const { t } = useTranslation();
  const reason = useReason();
  const say = useSaid();
  const runs = useRuns(jobId, replica);
  const of = useRunColumns();
  const columns: TableColumnsType<Replica> = [
    { title: t("replica.runs"), key: "run", width: 90, render: (_, r) => t("replica.run", { attempt: r.attempt }) },
    of.exit,
    {
      title: t("replica.why"),
      key: "why",
      render: (_, r) => (
        <>
          {reason(r.reason)} <span className="yh-muted">{say(r.message)}</span>
        </>
      ),
    },
    {
      title: t("replica.center"),
      key: "center",
      ellipsis: true,
      width: 130,
      render: (_, r) => r.centerName || r.aiCenterId,
    },
    of.started,
    of.duration,
    of.cost,
    {
      title: "",
      key: "log",
      width: 56,
      align: "right",
      render: (_, r) => (
        <Button size="small" type="link" onClick={() => onLog(runKey(r, r.attempt))}>
          {t("job.tab.log")}
        </Button>
      ),
    },
  ];
  return (
    <Loaded query={runs} rows={2}>
      {(all) => (
        <Table
          size="small"
          rowKey={(r) => r.attemptId}
          columns={columns}
          dataSource={all.filter((r) => r.attempt < replica.attempt).reverse()}
          pagination={false}
        />
      )}
    </Loaded>
  );
}

function PlacementTab({ jobId }: { jobId: string }) {
  const explain = useExplain(jobId);
  return (
    <div className="yh-pad">
      <Loaded query={explain} rows={8}>
        {({ decisions }) => <Placement decisions={decisions} />}
      </Loaded>
    </div>
  );
}

function CostTab({ job }: { job: Job }) {
  const { t } = useTranslation();
  const cost = useJobCost(job.jobId);
  const centerName = useCenterNames();
  const columns: TableColumnsType<CostLine> = [
    {
      title: t("replica.task"),
      key: "task",
      ellipsis: true,
      render: (_, { usage }) => (
        <>
          <b>{usage?.taskName}</b>{" "}
          <span className="yh-muted">
            · {usage?.replicaIndex} · {t("replica.run", { attempt: usage?.attempt ?? 1 })}
          </span>
        </>
      ),
    },
    {
      title: t("replica.center"),
      key: "center",
      ellipsis: true,
      render: (_, { usage }) => centerName(usage?.aiCenterId ?? ""),
    },
    {
      title: t("replica.spec"),
      key: "spec",
      width: 130,
      ellipsis: true,
      render: (_, { usage }) => usage?.resourceSpecId,
    },
    {
      title: t("cost.duration"),
      key: "duration",
      align: "right",
      width: 150,
      render: (_, { usage }) => <span className="yh-num">{formatCount(usage?.durationMicroseconds ?? 0n)} µs</span>,
    },
    {
      title: t("cost.price"),
      key: "price",
      align: "right",
      width: 120,
      render: (_, { usage }) => <span className="yh-num">{formatFen(usage?.price ?? 0n)}/h</span>,
    },
    {
      title: t("cost.rated"),
      key: "rated",
      align: "right",
      width: 130,
      render: (_, { usage }) => <Micros micros={usage?.costMicros ?? 0n} />,
    },
    { title: t("cost.posted"), key: "posted", align: "right", width: 110, render: (_, line) => <Fen fen={line.fen} /> },
  ];
  return (
    <Loaded query={cost}>
      {(data) => (
        <Table
          size="small"
          rowKey={(line) => line.usage?.attemptId ?? ""}
          columns={columns}
          dataSource={data.lines}
          tableLayout="fixed"
          pagination={data.lines.length > 100 ? { pageSize: 100, showSizeChanger: false, size: "small" } : false}
          locale={{ emptyText: <Nothing text={t("cost.none")} /> }}
          summary={() =>
            data.lines.length > 0 && (
              <Table.Summary.Row className="yh-total">
                <Table.Summary.Cell index={0} colSpan={5}>
                  {t("cost.total", { count: data.lines.length })} <span className="yh-muted">{t("cost.exact")}</span>
                </Table.Summary.Cell>
                <Table.Summary.Cell index={5} align="right">
                  <Micros micros={data.totalMicros} />
                </Table.Summary.Cell>
                <Table.Summary.Cell index={6} align="right">
                  <b data-testid="cost-total">
                    <Fen fen={data.totalFen} />
                  </b>
                </Table.Summary.Cell>
              </Table.Summary.Row>
            )
          }
        />
      )}
    </Loaded>
  );
}

function SpecTab({ job }: { job: Job }) {
  const { t } = useTranslation();
  const json = useMemo(() => (job.spec ? specToJson(job.spec) : ""), [job.spec]);
  const spec = job.spec;
  if (!spec) return null;
  return (
    <div className="yh-pad yh-spec">
      <Descriptions
        size="small"
        column={3}
        items={[
          { key: "priority", label: t("submit.priority"), children: spec.priority },
          {
            key: "success",
            label: t("submit.successPolicy"),
            children: t(spec.successPolicy === SuccessPolicy.ANY ? "submit.successAny" : "submit.successAll"),
          },
          {
            key: "failure",
            label: t("submit.failurePolicy"),
            children: t(spec.failurePolicy === FailurePolicy.ALL ? "submit.failureAll" : "submit.failureAny"),
          },
          { key: "retries", label: t("submit.maxRetries"), children: spec.maxRetries },
          { key: "gang", label: t("submit.gang"), children: t(spec.gang ? "common.yes" : "common.no") },
        ]}
      />
      <div className="yh-json-head">
        <h3>JSON</h3>
        <Copyable text={json}>
          <span />
        </Copyable>
      </div>
      <pre className="yh-json">{json}</pre>
    </div>
  );
}
