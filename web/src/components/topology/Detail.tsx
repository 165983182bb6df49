// What is known of one vertex: how it is and why, its figures, its links, and
// what became of it.
import { AimOutlined, CloseOutlined } from "@ant-design/icons";
import { Button, Tooltip } from "antd";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Link as ApiLink, Figure, TopologyChange, Vertex } from "../../gen/yunhe/topology/v1/topology_pb";
import { ChangeKind } from "../../gen/yunhe/topology/v1/topology_pb";
import { formatCount, millis } from "../../lib/format";
import { acceleratorName } from "../../lib/nodes";
import { formatBits, formatFigure, formatSeconds } from "../../lib/topology/figures";
import { changedLabels } from "../../lib/topology/labels";
import { type Graph, healthName, type Level, nameOf, stateName, type Target, vertexId } from "../../lib/topology/model";
import type { Palette } from "../../lib/topology/palette";
import { usePrefs } from "../../prefs";
import { Copyable, Labels, Loaded, Moment } from "../bits";
import { HealthMark } from "./Legend";
import { useVertex, useVertexHistory } from "./queries";

export function Detail(props: {
  graph: Graph;
  target: Target;
  at: number | undefined;
  palette: Palette;
  onFly: () => void;
  onClose: () => void;
  onAt: (at: number) => void;
}) {
  const { t } = useTranslation();
  const { graph, target, at } = props;
  // A tile of resources is no vertex itself: what they belong to is shown.
  const id = vertexId(target, graph).replace(/#resources$/, "");
  const vertex = useVertex(id, at);
  const history = useVertexHistory(id, at);
  const levelName = useLevelName();
  return (
    <article className="yh-topo-detail" aria-label={t("topology.detail")} data-testid="detail">
      <header>
        <div>
          <small>{levelName(target, graph)}</small>
          <h2>{vertex.data?.name || nameOf(target, graph) || t("topology.levels.network")}</h2>
        </div>
        <Tooltip title={t("topology.fly")}>
          <Button type="text" icon={<AimOutlined />} aria-label={t("topology.fly")} onClick={props.onFly} />
        </Tooltip>
        <Button type="text" icon={<CloseOutlined />} aria-label={t("common.close")} onClick={props.onClose} />
      </header>
      <Loaded query={vertex} rows={5}>
        {(v) => <Known vertex={v} palette={props.palette} />}
      </Loaded>
      <Pages target={target} graph={graph} />
      <section>
        <h3>{t("topology.history")}</h3>
        <Loaded query={history} rows={2}>
          {({ changes }) => <Changes changes={changes} onAt={props.onAt} />}
        </Loaded>
      </section>
    </article>
  );
}

function Known({ vertex: v, palette }: { vertex: Vertex; palette: Palette }) {
  const { t } = useTranslation();
  const figures = v.performanceBinding?.figures ?? [];
  const state = stateName(v.state);
  const place = [v.region, v.serviceProvider, v.adapter].filter(Boolean).join(" · ");
  const system = [v.operatingSystem, v.architecture].filter(Boolean).join(" ");
  return (
    <>
      <p className="yh-topo-health">
        <HealthMark health={v.health} palette={palette} />
        <b>{t(`topology.health.${healthName(v.health)}`)}</b>
        {state !== "none" && <span>{t(`topology.states.${state}`)}</span>}
        {v.worst !== v.health && v.worst !== 0 && (
          <span>{t("topology.worst", { health: t(`topology.health.${healthName(v.worst)}`) })}</span>
        )}
      </p>
      {v.reason && <p className="yh-wrap yh-topo-reason">{v.reason}</p>}
      {figures.length > 0 && (
        <section>
          <h3>{t("topology.figures")}</h3>
          {figures.map((f) => (
            <FigureLine key={f.bindingId} figure={f} palette={palette} />
          ))}
        </section>
      )}
      <dl className="yh-topo-facts">
        {v.nodes && v.nodes.total > 0n && (
          <Row label={t("topology.nodes")}>
            {t("topology.ofTotal", {
              good: formatCount(v.nodes.healthy + v.nodes.busy + v.nodes.warning),
              total: formatCount(v.nodes.total),
            })}
          </Row>
        )}
        {v.cards && v.cards.total > 0n && <Row label={t("topology.cards")}>{formatCount(v.cards.total)}</Row>}
        {v.equipment.map((e) => (
          <Row key={`${e.resource}${e.vendor}${e.model}`} label={e.resource.toUpperCase()}>
            {formatCount(e.count)} × {acceleratorName(e)}
          </Row>
        ))}
        {Object.entries(v.capacity)
          .sort(([a], [b]) => (a < b ? -1 : 1))
          .map(([name, amount]) => (
            <Row key={name} label={name}>
              {amount}
            </Row>
          ))}
        {place && <Row label={t("topology.place")}>{place}</Row>}
        {system && <Row label={t("topology.system")}>{system}</Row>}
        <Row label={t("topology.since")}>
          <Moment at={v.since} long />
        </Row>
        <Row label={t("topology.firstSeen")}>
          <Moment at={v.firstSeen} long />
        </Row>
        <Row label="ID">
          <Copyable text={v.nodeId} />
        </Row>
        {Object.keys(v.labels).length > 0 && (
          <Row label={t("topology.labels")}>
            <Labels labels={v.labels} />
          </Row>
        )}
      </dl>
      {v.connections.length > 0 && (
        <section>
          <h3>{t("topology.links")}</h3>
          <ul className="yh-topo-links">
            {v.connections.map((l) => (
              <LinkLine key={l.linkId} link={l} self={v.nodeId} palette={palette} />
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

function Row({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd className="yh-num">{children}</dd>
    </div>
  );
}

function FigureLine({ figure, palette }: { figure: Figure; palette: Palette }) {
  const { language } = usePrefs();
  const title = (language === "zh" && figure.titleZh) || figure.title || figure.bindingId;
  return (
    <div className="yh-topo-figure">
      <span>{title}</span>
      <b className="yh-num">{formatFigure(figure.value, figure.unit)}</b>
      {figure.unit === "ratio" && (
        <i aria-hidden>
          <i
            style={{
              width: `${Math.min(100, Math.max(0, figure.value * 100))}%`,
              background: palette.health[figure.health || 1],
            }}
          />
        </i>
      )}
    </div>
  );
}

function LinkLine({ link, self, palette }: { link: ApiLink; self: string; palette: Palette }) {
  const { t } = useTranslation();
  const { language } = usePrefs();
  const other = link.fromId === self ? link.toId : link.fromId;
  const declared = [
    link.bandwidthBitsPerSecond > 0n ? formatBits(Number(link.bandwidthBitsPerSecond)) : "",
    link.latencyUs > 0n ? t("topology.declared", { value: formatSeconds(Number(link.latencyUs) / 1e6) }) : "",
  ].filter(Boolean);
  return (
    <li>
      <HealthMark health={link.health} palette={palette} />
      <div>
        <b>{other.replace(/^(center|region):/, "")}</b> <small>{t(`topology.linkKinds.${link.kind}` as never)}</small>
        <div className="yh-num yh-muted">
          {[
            ...link.figures.map(
              (f) => `${(language === "zh" && f.titleZh) || f.title || f.bindingId} ${formatFigure(f.value, f.unit)}`,
            ),
            ...declared,
          ].join(" · ")}
        </div>
      </div>
    </li>
  );
}

function Pages({ target, graph }: { target: Target; graph: Graph }) {
  const { t } = useTranslation();
  if (target.level !== "center" && target.level !== "node" && target.level !== "card") return null;
  const center = graph.centers[target.index];
  if (!center?.centerId) return null;
  const id = encodeURIComponent(center.centerId);
  return (
    <p className="yh-row">
      <Link to={`/centers/${id}`}>{t("topology.toCenter")}</Link>
      {center.nodes.names.length > 0 && <Link to={`/nodes?center=${id}`}>{t("topology.toNodes")}</Link>}
    </p>
  );
}

const KINDS = {
  [ChangeKind.UNSPECIFIED]: "changed",
  [ChangeKind.ADDED]: "added",
  [ChangeKind.CHANGED]: "changed",
  [ChangeKind.REMOVED]: "removed",
} as const;

function Changes({ changes, onAt }: { changes: readonly TopologyChange[]; onAt: (at: number) => void }) {
  const { t } = useTranslation();
  if (changes.length === 0) return <p className="yh-muted">{t("topology.noChanges")}</p>;
  return (
    <ol className="yh-topo-changes">
      {changes.map((c) => {
        const kind = KINDS[c.kind];
        const at = millis(c.at) ?? 0;
        return (
          <li key={`${c.sequence}${c.nodeId}${c.linkId}`}>
            <i className={`yh-topo-outline yh-mark-${kind}`} aria-hidden />
            <div>
              <b>{t(`topology.kinds.${kind}`)}</b> <ChangeText change={c} />
              <div>
                <Button type="link" size="small" className="yh-link-cell" onClick={() => onAt(at + 1)}>
                  <Moment at={c.at} />
                </Button>
              </div>
            </div>
          </li>
        );
      })}
    </ol>
  );
}

function ChangeText({ change: c }: { change: TopologyChange }) {
  const { t } = useTranslation();
  const [a, b] = [c.before, c.after];
  if (a && b && a.state !== b.state) {
    return (
      <span>
        {t(`topology.states.${stateName(a.state)}`)} → {t(`topology.states.${stateName(b.state)}`)}
        {b.reason ? `: ${b.reason}` : ""}
      </span>
    );
  }
  if (!a || !b || c.fields.length === 0) return <span className="yh-muted">{b?.reason ?? ""}</span>;
  const fields = c.fields.map((f) => (f === "labels" ? `labels (${changedLabels(a.labels, b.labels)})` : f));
  return <span className="yh-muted">{fields.join(", ")}</span>;
}

/** What a thing is called for what it is. */
export function useLevelName(): (target: Target, graph: Graph) => string {
  const { t } = useTranslation();
  return (target, graph) => {
    const level: Level = target.level;
    if (level === "center" || level === "node") {
      const center = graph.centers[target.index];
      if (center && !center.centerId)
        return t(level === "node" ? "topology.levels.resource" : "topology.levels.resources");
    }
    return t(`topology.levels.${level}`);
  };
}
