// The log of a replica, as it is written. Only the lines in view are drawn, so
// that ten megabytes scroll like ten lines.
import { DownloadOutlined, DownOutlined, UpOutlined } from "@ant-design/icons";
import { App, Button, Input, Select, Space, Switch, Tooltip } from "antd";
import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { download } from "../api";
import type { Job, Replica } from "../gen/yunhe/jobs/v1/jobs_pb";
import { isUnauthenticated, messageOf } from "../lib/errors";
import { formatCount } from "../lib/format";
import { findLines, LogBuffer, MAX_LINES, renderLine } from "../lib/logbuffer";
import { hasEnded, stateName } from "../lib/states";
import { keepStreaming, type StreamStatus } from "../lib/stream";
import { useClients } from "../session";

const LINE = 18;
const OVERSCAN = 20;

interface LogState {
  buffer: LogBuffer;
  version: number;
  status: StreamStatus | "complete" | "failed";
  error?: unknown;
}

/** Follows one run's log. The buffer changes in place; version says that it did. */
function useLog(jobId: string, replica: Replica | undefined, attempt: number): LogState {
  const { jobs } = useClients();
  const task = replica?.taskIndex;
  const index = replica?.replicaIndex;
  const [state, setState] = useState<LogState>(() => ({ buffer: new LogBuffer(), version: 0, status: "connecting" }));

  useEffect(() => {
    const buffer = new LogBuffer();
    setState({ buffer, version: 0, status: "connecting" });
    if (task === undefined || index === undefined || !attempt) return;
    const end = new AbortController();
    let frame = 0;
    const draw = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        setState((now) => ({ ...now, version: buffer.version }));
      });
    };
    void keepStreaming({
      signal: end.signal,
      open: (signal, opened) =>
        jobs.readLog(
          { jobId, taskIndex: task, replicaIndex: index, attempt, offset: buffer.next ?? 0n, follow: true },
          { signal, onHeader: opened },
        ),
      onMessage: (piece) => {
        buffer.append(piece.data, piece.offset);
        draw();
      },
      onStatus: (status) => setState((now) => (now.status === "complete" ? now : { ...now, status })),
      again: (error) => {
        if (error === undefined) setState((now) => ({ ...now, status: "complete", error: undefined }));
        else setState((now) => ({ ...now, error }));
        return error !== undefined && !isUnauthenticated(error);
      },
    });
    return () => {
      end.abort();
      cancelAnimationFrame(frame);
    };
  }, [jobs, jobId, task, index, attempt]);
  return state;
}

export function LogViewer(props: { job: Job; selected: string; onSelect: (key: string) => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { job } = props;
  const [picked, run] = props.selected.split("#");
  const replica = job.replicas.find((r) => replicaKey(r) === picked) ?? job.replicas[0];
  const latest = replica?.attempt ?? 0;
  const attempt = run && Number(run) < latest ? Number(run) : latest;
  const log = useLog(job.jobId, replica, attempt);
  const { lines } = log.buffer;
  const [follow, setFollow] = useState(true);
  const [search, setSearch] = useState("");
  const [hit, setHit] = useState(0);
  // The lines array changes in place; its version stands for it.
  // biome-ignore lint/correctness/useExhaustiveDependencies: see above
  const hits = useMemo(() => findLines(lines, search), [lines, search, log.version]);
  const current = hits.length > 0 ? hits[Math.min(hit, hits.length - 1)] : undefined;

  const step = (by: number) => {
    if (hits.length === 0) return;
    setFollow(false);
    setHit((h) => (Math.min(h, hits.length - 1) + by + hits.length) % hits.length);
  };
  const save = () => {
    if (!replica) return;
    const path = `/v1/jobs/${encodeURIComponent(job.jobId)}/tasks/${replica.taskIndex}/replicas/${replica.replicaIndex}/log?download=1&attempt=${attempt}`;
    download(path, `${job.jobId}-${replica.taskIndex}-${replica.replicaIndex}.log`).catch(
      (error: unknown) => void message.error(messageOf(error)),
    );
  };

  if (!replica) return null;
  return (
    <div className="yh-log">
      <div className="yh-log-bar">
        <Select
          size="small"
          className="yh-log-pick"
          aria-label={t("log.replica")}
          value={replicaKey(replica)}
          onChange={props.onSelect}
          showSearch={{ optionFilterProp: "label" }}
          options={job.replicas.map((r) => ({
            value: replicaKey(r),
            label: `${job.spec?.tasks[r.taskIndex]?.name ?? r.taskIndex} · ${r.replicaIndex} · ${t(`state.${stateName(r.state)}`)}`,
          }))}
        />
        {latest > 1 && (
          <Select
            size="small"
            aria-label={t("log.run")}
            value={attempt}
            onChange={(n) => props.onSelect(runKey(replica, n))}
            options={Array.from({ length: latest }, (_, i) => ({
              value: i + 1,
              label: t("replica.run", { attempt: i + 1 }),
            }))}
          />
        )}
        <Space.Compact size="small">
          <Input
            size="small"
            allowClear
            className="yh-log-search"
            placeholder={t("log.search")}
            aria-label={t("log.search")}
            value={search}
            onChange={(e) => {
              setSearch(e.target.value);
              setHit(0);
              if (e.target.value) setFollow(false);
            }}
            onPressEnter={(e) => step(e.shiftKey ? -1 : 1)}
            suffix={
              search ? (
                <span className="yh-log-hits">
                  {hits.length ? `${Math.min(hit, hits.length - 1) + 1}/${formatCount(hits.length)}` : "0"}
                </span>
              ) : (
                <span />
              )
            }
          />
          <Button
            size="small"
            icon={<UpOutlined />}
            aria-label={t("log.previous")}
            disabled={hits.length === 0}
            onClick={() => step(-1)}
          />
          <Button
            size="small"
            icon={<DownOutlined />}
            aria-label={t("log.next")}
            disabled={hits.length === 0}
            onClick={() => step(1)}
          />
        </Space.Compact>
        <span className="yh-grow" />
        <span className="yh-log-note" role="status">
          {log.error && log.status !== "live"
            ? messageOf(log.error)
            : t(`log.status.${replica.attempt ? log.status : "waiting"}`)}
          {" · "}
          {t("log.lines", {
            count: lines.length + log.buffer.dropped,
            shown: formatCount(lines.length + log.buffer.dropped),
          })}
        </span>
        <span className="yh-log-follow">
          <Switch size="small" checked={follow} onChange={setFollow} aria-label={t("log.follow")} /> {t("log.follow")}
        </span>
        <Tooltip title={t("log.download")}>
          <Button
            size="small"
            icon={<DownloadOutlined />}
            aria-label={t("log.download")}
            onClick={save}
            disabled={!replica.attempt}
          />
        </Tooltip>
      </div>
      {log.buffer.dropped > 0 && (
        <div className="yh-log-dropped">
          {t("log.dropped", { dropped: formatCount(log.buffer.dropped), kept: formatCount(MAX_LINES) })}
        </div>
      )}
      <LogLines
        lines={lines}
        firstNumber={log.buffer.dropped + 1}
        version={log.version}
        follow={follow}
        onFollow={setFollow}
        target={current}
        search={search}
        empty={
          (hasEnded(replica.state) || attempt < latest) && log.status === "complete"
            ? t("log.empty")
            : t(replica.attempt ? "log.none" : "log.notStarted")
        }
      />
    </div>
  );
}

/** Names a replica in the address and in lists. */
export function replicaKey(r: Replica): string {
  return `${r.taskIndex}.${r.replicaIndex}`;
}

/** Names a run of a replica before its latest. */
export function runKey(r: Replica, attempt: number): string {
  return `${replicaKey(r)}#${attempt}`;
}

function LogLines(props: {
  lines: readonly string[];
  firstNumber: number;
  version: number;
  follow: boolean;
  onFollow: (follow: boolean) => void;
  target: number | undefined;
  search: string;
  empty: string;
}) {
  const { t } = useTranslation();
  const { lines, version, follow, onFollow, target, search } = props;
  const box = useRef<HTMLElement>(null);
  const [view, setView] = useState({ top: 0, height: 400 });
  // Our own scrolling must not be taken for the reader's.
  const scrolledTo = useRef(-1);

  const measure = useCallback(() => {
    const element = box.current;
    if (element) setView({ top: element.scrollTop, height: element.clientHeight });
  }, []);

  useEffect(() => {
    if (!box.current) return;
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [measure]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: new lines arrive as a new version
  useLayoutEffect(() => {
    const element = box.current;
    if (!element || !follow) return;
    element.scrollTop = element.scrollHeight;
    scrolledTo.current = element.scrollTop;
    measure();
  }, [follow, version, measure]);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element || target === undefined) return;
    const y = target * LINE;
    if (y < element.scrollTop || y > element.scrollTop + element.clientHeight - 2 * LINE) {
      element.scrollTop = Math.max(0, y - element.clientHeight / 2);
      scrolledTo.current = element.scrollTop;
    }
    measure();
  }, [target, measure]);

  const onScroll = () => {
    const element = box.current;
    if (!element) return;
    measure();
    if (Math.abs(element.scrollTop - scrolledTo.current) < 2) return;
    scrolledTo.current = -1;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < LINE;
    if (follow !== atEnd) onFollow(atEnd);
  };

  const from = Math.max(0, Math.floor(view.top / LINE) - OVERSCAN);
  const to = Math.min(lines.length, Math.ceil((view.top + view.height) / LINE) + OVERSCAN);
  const digits = String(props.firstNumber + lines.length).length;
  const rows = [];
  for (let i = from; i < to; i++) {
    rows.push(
      <LogLine
        key={props.firstNumber + i}
        number={props.firstNumber + i}
        digits={digits}
        text={lines[i] ?? ""}
        search={search}
        current={i === target}
      />,
    );
  }
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <section ref={box} className="yh-log-box" onScroll={onScroll} tabIndex={0} aria-label={t("log.title")}>
      {lines.length === 0 && <div className="yh-log-empty">{props.empty}</div>}
      <div style={{ height: lines.length * LINE, position: "relative" }}>
        <div style={{ transform: `translateY(${from * LINE}px)` }} className="yh-log-rows">
          {rows}
        </div>
      </div>
    </section>
  );
}

const LogLine = memo(function LogLine(props: {
  number: number;
  digits: number;
  text: string;
  search: string;
  current: boolean;
}) {
  let at = 0;
  return (
    <div className={props.current ? "yh-log-line yh-log-current" : "yh-log-line"}>
      <span className="yh-log-number" style={{ minWidth: `${props.digits + 1}ch` }}>
        {props.number}
      </span>
      <span>
        {renderLine(props.text).map((span) => {
          const key = at;
          at += span.text.length;
          const className = `${span.color === undefined ? "" : `yh-ansi-${span.color}`}${span.bold ? " yh-ansi-bold" : ""}`;
          return (
            <span key={key} className={className || undefined}>
              <Marked text={span.text} search={props.search} />
            </span>
          );
        })}
      </span>
    </div>
  );
});

/** Text with what was searched for marked. */
function Marked({ text, search }: { text: string; search: string }) {
  if (search === "") return text;
  const low = text.toLowerCase();
  const wanted = search.toLowerCase();
  const parts = [];
  let at = 0;
  for (let next = low.indexOf(wanted); next >= 0; next = low.indexOf(wanted, at)) {
    if (next > at) parts.push(text.slice(at, next));
    parts.push(<mark key={next}>{text.slice(next, next + wanted.length)}</mark>);
    at = next + wanted.length;
  }
  parts.push(text.slice(at));
  return parts;
}
