// What the runs of a job use now, and used before.
import { Table, type TableColumnsType } from "antd";
import { useCallback, useState } from "react";
import { useTranslation } from "react-i18next";
import type { Job } from "../gen/yunhe/jobs/v1/jobs_pb";
import type { RunFigures } from "../gen/yunhe/monitor/v1/monitor_pb";
import { formatBytes, formatCores } from "../lib/format";
import { hasEnded } from "../lib/states";
import { useCenterNames, useRunFigures } from "../queries";
import { useSession } from "../session";
import { Loaded, Moment, Nothing, UseBar } from "./bits";
import { RangeChart, WindowSwitch } from "./Chart";

// Of more replicas than these, the mean and the highest are drawn.
const MOST_LINES = 20;

// A figure that is older is not of now: gaps are drawn as gaps.
const AGE = "[45s]";

export function RunUse({ job }: { job: Job }) {
  const { t } = useTranslation();
  const { can } = useSession();
  return (
    <>
      {hasEnded(job.state) ? <p className="yh-pad yh-muted">{t("runUse.ended")}</p> : <Now jobId={job.jobId} />}
      {can("monitor.read") && <Curves job={job} />}
    </>
  );
}

function Now({ jobId }: { jobId: string }) {
  const { t } = useTranslation();
  const figures = useRunFigures(jobId);
  const centerName = useCenterNames();
  const columns: TableColumnsType<RunFigures> = [
    {
      title: t("replica.task"),
      key: "task",
      ellipsis: true,
      width: 160,
      render: (_, r) => (
        <>
          <b>{r.taskName}</b> <span className="yh-muted">· {r.replicaIndex}</span>
        </>
      ),
    },
    {
      title: t("replica.center"),
      key: "center",
      ellipsis: true,
      width: 160,
      render: (_, r) => centerName(r.aiCenterId),
    },
    {
      title: t("runUse.cpu"),
      key: "cpu",
      width: 220,
      render: (_, r) => (
        <Share used={r.cpuCores} reserved={r.reservedCpuCores} format={formatCores} label={t("runUse.cpu")} calm />
      ),
    },
    {
      title: t("runUse.memory"),
      key: "memory",
      width: 220,
      render: (_, r) => (
        <Share used={r.memoryBytes} reserved={r.reservedMemoryBytes} format={formatBytes} label={t("runUse.memory")} />
      ),
    },
    { title: t("runUse.measured"), key: "measured", width: 116, render: (_, r) => <Moment at={r.measuredAt} /> },
  ];
  return (
    <Loaded query={figures}>
      {(data) => (
        <Table
          size="small"
          data-testid="run-use"
          rowKey={(r) => r.attemptId}
          columns={columns}
          dataSource={data.runs}
          tableLayout="fixed"
          scroll={{ x: 876 }}
          pagination={data.runs.length > 50 ? { pageSize: 50, showSizeChanger: false, size: "small" } : false}
          locale={{ emptyText: <Nothing text={t("runUse.none")} /> }}
        />
      )}
    </Loaded>
  );
}

/** What is used, beside what is reserved if anything is. */
function Share(props: {
  used: bigint | number;
  reserved: bigint | number;
  format: (n: bigint | number) => string;
  label: string;
  calm?: boolean;
}) {
  if (Number(props.reserved) <= 0) return <span className="yh-num">{props.format(props.used)}</span>;
  const { reserved, ...rest } = props;
  return <UseBar {...rest} total={reserved} />;
}

function Curves({ job }: { job: Job }) {
  const { t } = useTranslation();
  const [window, setWindow] = useState(3600);
  const few = job.replicas.length <= MOST_LINES;
  const query = (metric: string) => {
    const now = `last_over_time(${metric}{job_id="${job.jobId}"}${AGE})`;
    // A replica's runs follow each other and are one line.
    return few
      ? `max by (task, replica) (${now})`
      : `label_replace(max(${now}), "kind", "most", "", "") or label_replace(avg(${now}), "kind", "mean", "", "")`;
  };
  const named = useCallback(
    (labels: Record<string, string>) =>
      labels.kind === "most"
        ? t("runUse.most")
        : labels.kind === "mean"
          ? t("runUse.mean")
          : `${labels.task} · ${labels.replica}`,
    [t],
  );
  return (
    <div className="yh-run-curves" data-testid="run-curves">
      <div className="yh-row yh-row-end">
        <WindowSwitch value={window} onChange={setWindow} />
      </div>
      <div className="yh-charts-2">
        <div>
          <h3>{t("runUse.cpu")}</h3>
          <RangeChart
            query={query("yunhe_run_cpu_cores")}
            windowSeconds={window}
            height={200}
            format={formatCores}
            nameOf={named}
            label={t("runUse.cpu")}
          />
        </div>
        <div>
          <h3>{t("runUse.memory")}</h3>
          <RangeChart
            query={query("yunhe_run_memory_bytes")}
            windowSeconds={window}
            height={200}
            format={formatBytes}
            bytes
            nameOf={named}
            label={t("runUse.memory")}
          />
        </div>
      </div>
    </div>
  );
}
