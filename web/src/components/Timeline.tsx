// When each replica waited, was placed and ran: one row per replica, drawn as
// SVG. Rows beyond the first hundred are shown on demand.
import { Button } from "antd";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import type { Job, Replica } from "../gen/yunhe/jobs/v1/jobs_pb";
import { formatDuration, formatTime, millis } from "../lib/format";
import { hasEnded, stateName } from "../lib/states";
import { stretches, ticks } from "../lib/timeline";
import { useNow } from "./bits";
import { useWidth } from "./useWidth";

const ROW = 24;
const BAR = 12;
const AXIS = 24;
const LABEL = 168;
const RIGHT = 64;
const FIRST_ROWS = 100;

export function Timeline({ job }: { job: Job }) {
  const { t } = useTranslation();
  const [box, width] = useWidth<HTMLDivElement>();
  const [limit, setLimit] = useState(FIRST_ROWS);
  const now = useNow(!hasEnded(job.state));
  const start = millis(job.createdAt) ?? now;
  const rows = useMemo(
    () => job.replicas.slice(0, limit).map((replica) => ({ replica, parts: stretches(job.createdAt, replica, now) })),
    [job, limit, now],
  );
  const end = Math.max(start + 1, ...rows.flatMap((r) => r.parts.map((p) => p.to)));
  const plotWidth = Math.max(200, width - LABEL - RIGHT);
  const x = (at: number) => LABEL + ((at - start) / (end - start)) * plotWidth;
  const height = AXIS + rows.length * ROW + 4;
  const marks = ticks(end - start, Math.max(3, Math.floor(plotWidth / 110)));
  return (
    <div ref={box} className="yh-timeline">
      <div className="yh-legend">
        {(["queued", "placed", "running"] as const).map((phase) => (
          <span key={phase} className={`yh-phase-${phase}`}>
            <i /> {t(`timeline.${phase}`)}
          </span>
        ))}
        <span className="yh-grow" />
        <span>{t("timeline.from", { time: formatTime(start) })}</span>
      </div>
      {width > 0 && (
        <svg width={width} height={height} role="img" aria-label={t("timeline.title")}>
          {marks.map((mark) => (
            <g key={mark} className="yh-axis">
              <line x1={x(start + mark)} x2={x(start + mark)} y1={AXIS - 6} y2={height} />
              <text x={x(start + mark)} y={12} textAnchor={mark === 0 ? "start" : "middle"}>
                {mark === 0 ? "0" : `+${formatDuration(mark * 1000)}`}
              </text>
            </g>
          ))}
          {rows.map(({ replica, parts }, i) => (
            <Row
              key={`${replica.taskIndex}.${replica.replicaIndex}`}
              job={job}
              replica={replica}
              parts={parts}
              y={AXIS + i * ROW}
              x={x}
            />
          ))}
        </svg>
      )}
      {job.replicas.length > limit && (
        <Button size="small" type="link" onClick={() => setLimit(limit * 4)}>
          {t("timeline.more", { count: job.replicas.length - limit })}
        </Button>
      )}
    </div>
  );
}

function Row(props: {
  job: Job;
  replica: Replica;
  parts: ReturnType<typeof stretches>;
  y: number;
  x: (at: number) => number;
}) {
  const { t } = useTranslation();
  const { job, replica, parts, y, x } = props;
  const task = job.spec?.tasks[replica.taskIndex]?.name ?? `${replica.taskIndex}`;
  const last = parts[parts.length - 1];
  const running = parts.find((p) => p.phase === "running");
  const failed = stateName(replica.state) === "failed";
  return (
    <g className={failed ? "yh-row-failed" : undefined}>
      <text x={LABEL - 12} y={y + ROW / 2 + 4} textAnchor="end" className="yh-row-label">
        {`${task.length > 18 ? `${task.slice(0, 17)}…` : task} · ${replica.replicaIndex}`}
      </text>
      {parts.map((part) => (
        <rect
          key={part.phase}
          x={x(part.from)}
          y={y + (ROW - BAR) / 2}
          width={Math.max(1.5, x(part.to) - x(part.from))}
          height={BAR}
          rx={2}
          className={`yh-bar yh-bar-${part.phase}${part.open ? " yh-bar-open" : ""}`}
        >
          <title>{`${t(`timeline.${part.phase}`)} ${formatDuration((part.to - part.from) * 1000)}`}</title>
        </rect>
      ))}
      {last && (
        <text x={x(last.to) + 6} y={y + ROW / 2 + 4} className="yh-row-time">
          {running ? formatDuration((running.to - running.from) * 1000) : t(`state.${stateName(replica.state)}`)}
        </text>
      )}
    </g>
  );
}
