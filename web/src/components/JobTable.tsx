// Jobs as a table: on the job list, the overview, and the page of a center.
import { Button, Popconfirm, Table, type TableColumnsType, Tooltip } from "antd";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Job } from "../gen/yunhe/jobs/v1/jobs_pb";
import { formatMillis, NONE } from "../lib/format";
import { hasEnded } from "../lib/states";
import { useCenterNames } from "../queries";
import { useSession } from "../session";
import { Elapsed, Fen, Moment, Nothing, StateTag } from "./bits";
import { useStopJob } from "./useStopJob";

export function JobTable({ jobs, compact, loading }: { jobs: Job[]; compact?: boolean; loading?: boolean }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const centerName = useCenterNames();
  const columns: TableColumnsType<Job> = [
    {
      title: t("job.name"),
      key: "name",
      ellipsis: true,
      width: 168,
      render: (_, job) => (
        <Link to={`/jobs/${job.jobId}`} className="yh-job-link">
          <b>{job.spec?.name}</b>
          {!compact && <small>{job.jobId}</small>}
        </Link>
      ),
    },
    {
      title: t("job.state"),
      key: "state",
      width: 104,
      render: (_, job) => (
        <Tooltip title={job.message}>
          <span>
            <StateTag state={job.state} />
          </span>
        </Tooltip>
      ),
    },
    { title: t("job.replicas"), key: "replicas", width: 98, render: (_, job) => <ReplicaBar job={job} /> },
    {
      title: t("job.centers"),
      key: "centers",
      ellipsis: true,
      width: compact ? 190 : 132,
      render: (_, job) => job.centerIds.map(centerName).join(", ") || <span className="yh-none">{NONE}</span>,
    },
    {
      title: t("job.user"),
      key: "user",
      width: 84,
      ellipsis: true,
      render: (_, job) => job.createdUser || job.userName,
    },
    { title: t("job.created"), key: "created", width: 120, render: (_, job) => <Moment at={job.createdAt} /> },
    {
      title: t("job.duration"),
      key: "duration",
      width: 86,
      align: "right",
      render: (_, job) => <Elapsed from={job.startedAt} to={job.endedAt} ended={hasEnded(job.state)} />,
    },
    {
      title: t("job.schedulingTime"),
      key: "scheduling",
      width: 86,
      align: "right",
      render: (_, job) => (
        <span className="yh-num">
          {job.schedulingMicroseconds > 0n ? formatMillis(job.schedulingMicroseconds) : NONE}
        </span>
      ),
    },
    { title: t("job.cost"), key: "cost", width: 78, align: "right", render: (_, job) => <Fen fen={job.costFen} /> },
  ];
  if (!compact && can("jobs.write")) {
    columns.push({
      title: "",
      key: "actions",
      width: 60,
      align: "right",
      render: (_, job) => <StopButton job={job} small />,
    });
  }
  return (
    <Table
      size="small"
      rowKey="jobId"
      columns={columns}
      dataSource={jobs}
      loading={loading}
      pagination={false}
      tableLayout="fixed"
      scroll={{ x: 940 }}
      locale={{ emptyText: <Nothing text={t("jobs.none")} /> }}
    />
  );
}

/** How many replicas are in which condition. */
function ReplicaBar({ job }: { job: Job }) {
  const { t } = useTranslation();
  const total = job.replicasTotal;
  const part = (n: number) => `${total > 0 ? (n / total) * 100 : 0}%`;
  const done = job.replicasSucceeded + job.replicasFailed + job.replicasStopped;
  const text = t("job.replicaSummary", {
    running: job.replicasRunning,
    succeeded: job.replicasSucceeded,
    failed: job.replicasFailed,
    stopped: job.replicasStopped,
    total,
  });
  return (
    <Tooltip title={text}>
      <div className="yh-replicas" role="img" aria-label={text}>
        <div className="yh-replicas-bar">
          <span className="yh-tone-good" style={{ width: part(job.replicasSucceeded) }} />
          <span className="yh-tone-active" style={{ width: part(job.replicasRunning) }} />
          <span className="yh-tone-bad" style={{ width: part(job.replicasFailed) }} />
          <span className="yh-tone-neutral" style={{ width: part(job.replicasStopped) }} />
        </div>
        <span className="yh-num">
          {done}/{total}
        </span>
      </div>
    </Tooltip>
  );
}

/** Stops a job after a question. Nothing is shown for jobs that have ended. */
export function StopButton({ job, small }: { job: Job; small?: boolean }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const stop = useStopJob();
  if (hasEnded(job.state) || !can("jobs.write")) return null;
  return (
    <Popconfirm
      title={t("job.stopTitle", { name: job.spec?.name ?? job.jobId })}
      description={t("job.stopHelp")}
      okText={t("job.stop")}
      okButtonProps={{ danger: true }}
      onConfirm={() => stop.mutateAsync(job.jobId).catch(() => undefined)}
    >
      <Button size={small ? "small" : "middle"} danger type={small ? "text" : "default"} data-testid="stop">
        {t("job.stop")}
      </Button>
    </Popconfirm>
  );
}
