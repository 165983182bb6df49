// Small pieces every page uses.
import { CopyOutlined, PlusOutlined } from "@ant-design/icons";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { Alert, App, Button, Empty, Skeleton, Tooltip } from "antd";
import { type ReactNode, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { State } from "../gen/yunhe/jobs/v1/jobs_pb";
import { CenterStatus, type NodeState } from "../gen/yunhe/registry/v1/registry_pb";
import { messageOf } from "../lib/errors";
import {
  formatDuration,
  formatFen,
  formatMicros,
  formatShortTime,
  formatTime,
  formatUTC,
  microsBetween,
  millis,
  NONE,
  percent,
} from "../lib/format";
import { nodeStateName, nodeTone } from "../lib/nodes";
import { knownState, pluginTone } from "../lib/plugins";
import { stateName, stateTone } from "../lib/states";

/** Title of a page, what it says about itself, and its actions. Also names the browser tab. */
export function PageHead(props: {
  title: string;
  back?: { to: string; label: string };
  sub?: ReactNode;
  extra?: ReactNode;
  after?: ReactNode;
}) {
  useEffect(() => {
    document.title = `${props.title} · Yunhe`;
  }, [props.title]);
  return (
    <header className="yh-head">
      <div className="yh-head-text">
        {props.back && (
          <Link to={props.back.to} className="yh-back">
            ‹ {props.back.label}
          </Link>
        )}
        <div className="yh-head-line">
          <h1>{props.title}</h1>
          {props.after}
        </div>
        {props.sub && <div className="yh-head-sub">{props.sub}</div>}
      </div>
      {props.extra && <div className="yh-head-extra">{props.extra}</div>}
    </header>
  );
}

/** A titled box. */
export function Panel(props: {
  title?: ReactNode;
  extra?: ReactNode;
  flush?: boolean;
  className?: string;
  children: ReactNode;
}) {
  return (
    <section className={`yh-panel ${props.className ?? ""}`}>
      {(props.title || props.extra) && (
        <header className="yh-panel-head">
          <h2>{props.title}</h2>
          {props.extra}
        </header>
      )}
      <div className={props.flush ? "yh-panel-flush" : "yh-panel-body"}>{props.children}</div>
    </section>
  );
}

/** Shows what a read is about: waiting, its error with a way to try again, or its data. */
export function Loaded<T>(props: {
  query: { data: T | undefined; error: unknown; refetch: () => unknown };
  rows?: number;
  children: (data: T) => ReactNode;
}) {
  const { data, error } = props.query;
  if (data !== undefined) {
    return (
      <>
        {error ? <Problem error={error} retry={() => void props.query.refetch()} /> : null}
        {props.children(data)}
      </>
    );
  }
  if (error) return <Problem error={error} retry={() => void props.query.refetch()} />;
  return <Skeleton active title={false} paragraph={{ rows: props.rows ?? 4 }} />;
}

/** An error the platform answered, in its own words. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const { t } = useTranslation();
  return (
    <Alert
      type="error"
      showIcon
      className="yh-problem"
      title={messageOf(error)}
      action={
        retry && (
          <Button size="small" onClick={retry}>
            {t("common.retry")}
          </Button>
        )
      }
    />
  );
}

/** Says that there is nothing, and what to do about it. */
export function Nothing({ text, children }: { text: string; children?: ReactNode }) {
  return (
    <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={text}>
      {children}
    </Empty>
  );
}

/** Opens the form of a new thing. */
export function CreateButton({ text, onClick, testId }: { text: string; onClick: () => void; testId: string }) {
  return (
    <Button type="primary" icon={<PlusOutlined aria-hidden />} onClick={onClick} data-testid={testId}>
      {text}
    </Button>
  );
}

export function StateTag({ state }: { state: State }) {
  const { t } = useTranslation();
  return (
    <span className={`yh-state yh-tone-${stateTone(state)}`}>
      <i aria-hidden />
      {t(`state.${stateName(state)}`)}
    </span>
  );
}

export function CenterTag({ status, drained }: { status: CenterStatus; drained: boolean }) {
  const { t } = useTranslation();
  if (drained) return <Tag tone="warn" text={t("center.drained")} />;
  if (status === CenterStatus.AVAILABLE) return <Tag tone="good" text={t("center.available")} />;
  if (status === CenterStatus.UNAVAILABLE) return <Tag tone="bad" text={t("center.unavailable")} />;
  return <Tag tone="neutral" text={t("center.unknown")} />;
}

export function Tag({
  tone,
  text,
}: {
  tone: "good" | "bad" | "warn" | "neutral" | "active" | "waiting";
  text: string;
}) {
  return (
    <span className={`yh-state yh-tone-${tone}`}>
      <i aria-hidden />
      {text}
    </span>
  );
}

/** The state of an instance or a plug-in, with what it means on hover. */
export function PluginTag({ state }: { state: string }) {
  const { t } = useTranslation();
  const known = knownState(state);
  if (!known) return <Tag tone="neutral" text={state || NONE} />;
  return (
    <Tooltip title={t(`plugin.stateHelp.${known}`)}>
      <span>
        <Tag tone={pluginTone(state)} text={t(`plugin.states.${known}`)} />
      </span>
    </Tooltip>
  );
}

export function NodeTag({ state }: { state: NodeState }) {
  const { t } = useTranslation();
  return <Tag tone={nodeTone(state)} text={t(`node.states.${nodeStateName(state)}`)} />;
}

/** Names with values, as small as they come. */
export function Labels({ labels }: { labels: Record<string, string> }) {
  const list = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  if (list.length === 0) return <span className="yh-none">{NONE}</span>;
  return (
    <span className="yh-labels">
      {list.map(([k, v]) => (
        <code key={k}>{v === "" ? k : `${k}=${v}`}</code>
      ))}
    </span>
  );
}

/** A moment in the viewer's zone, with UTC on hover. */
export function Moment({ at, long }: { at: Timestamp | undefined; long?: boolean }) {
  const ms = millis(at);
  if (ms === undefined) return <span className="yh-none">{NONE}</span>;
  return (
    <Tooltip title={formatUTC(ms)}>
      <time dateTime={formatUTC(ms)} className="yh-num">
        {long ? formatTime(ms) : formatShortTime(ms, Date.now())}
      </time>
    </Tooltip>
  );
}

/** The present time, renewed every second while it matters. */
export function useNow(running: boolean): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!running) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [running]);
  return now;
}

/** From one time to another, counting on while there is no end. */
export function Elapsed({
  from,
  to,
  ended,
}: {
  from: Timestamp | undefined;
  to: Timestamp | undefined;
  ended: boolean;
}) {
  const now = useNow(!ended && millis(from) !== undefined && millis(to) === undefined);
  const micros = ended && millis(to) === undefined ? undefined : microsBetween(from, to, now);
  return <span className="yh-num">{micros === undefined ? NONE : formatDuration(micros)}</span>;
}

/** Yuan to the fen. */
export function Fen({ fen }: { fen: bigint }) {
  return <span className="yh-num">{formatFen(fen)}</span>;
}

/** Yuan to the micro-yuan, as usage is rated. */
export function Micros({ micros }: { micros: bigint }) {
  return <span className="yh-num">{formatMicros(micros)}</span>;
}

/** How much of something is in use: a thin bar with its figures. */
export function UseBar(props: {
  used: bigint | number;
  total: bigint | number;
  format: (n: bigint | number) => string;
  label: string;
  /** Using all of it is what it is there for. */
  calm?: boolean;
}) {
  const part = percent(props.used, props.total);
  const tone = props.calm ? "active" : part >= 95 ? "bad" : part >= 80 ? "warn" : "active";
  return (
    <div className={`yh-use yh-tone-${tone}`}>
      <div className="yh-use-text">
        <span className="yh-num">
          {props.format(props.used)} <em>/ {props.format(props.total)}</em>
        </span>
        <span className="yh-num yh-use-pct">{Number(props.total) > 0 ? `${part.toFixed(0)}%` : NONE}</span>
      </div>
      <div
        className="yh-use-bar"
        role="progressbar"
        aria-label={props.label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(part)}
      >
        <div style={{ width: `${part}%` }} />
      </div>
    </div>
  );
}

/** A name that is copied with one click. */
export function Copyable({ text, children }: { text: string; children?: ReactNode }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  return (
    <span className="yh-copyable">
      {children ?? <code>{text}</code>}
      <Tooltip title={t("common.copy")}>
        <Button
          type="text"
          size="small"
          icon={<CopyOutlined />}
          aria-label={`${t("common.copy")}: ${text.slice(0, 40)}`}
          onClick={() =>
            copyText(text).then(
              () => void message.success(t("common.copied")),
              () => void message.error(t("common.copyFailed")),
            )
          }
        />
      </Tooltip>
    </span>
  );
}

/** Puts text on the clipboard, also where the page is served without TLS and browsers hide the clipboard API. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.style.position = "fixed";
  area.style.opacity = "0";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("copying was refused");
}

/** A fact with its label, for tiles and headers. */
export function Fact({ label, children, hint }: { label: string; children: ReactNode; hint?: string }) {
  const value = <div className="yh-fact-value">{children}</div>;
  return (
    <div className="yh-fact">
      <div className="yh-fact-label">{label}</div>
      {hint ? <Tooltip title={hint}>{value}</Tooltip> : value}
    </div>
  );
}
