// What is in view, as a table: for those who do not see the drawing, and for
// those who look for what is wrong.
import { Button } from "antd";
import { useTranslation } from "react-i18next";
import { formatCount } from "../../lib/format";
import type { InView } from "../../lib/topology/inview";
import { cardCount, cardOf, type Graph, healthName, healthOf, nameOf, type Target } from "../../lib/topology/model";
import type { Palette } from "../../lib/topology/palette";
import { HealthMark } from "./Legend";

export function InViewList(props: {
  graph: Graph;
  view: InView;
  palette: Palette;
  value: (target: Target) => string;
  valueTitle: string;
  onOpen: (target: Target) => void;
}) {
  const { t } = useTranslation();
  const { graph, view } = props;
  return (
    <div className="yh-topo-list">
      <p className="yh-muted">{t("topology.inView", { shown: formatCount(view.total) })}</p>
      <table aria-label={t("topology.list")} data-testid="in-view">
        <thead>
          <tr>
            <th scope="col">{t("topology.name")}</th>
            <th scope="col">{t("topology.healthTitle")}</th>
            <th scope="col">
              {props.valueTitle ||
                t(`topology.partsOf.${view.level === "node" || view.level === "card" ? view.level : "center"}`)}
            </th>
          </tr>
        </thead>
        <tbody>
          {view.rows.map((target) => {
            const health = healthOf(target, graph);
            return (
              <tr key={`${target.index}/${target.node}/${target.card}`}>
                <td>
                  <Button type="link" size="small" className="yh-link-cell" onClick={() => props.onOpen(target)}>
                    <span>{nameOf(target, graph) || t("topology.levels.resources")}</span>
                  </Button>
                </td>
                <td>
                  <HealthMark health={health} palette={props.palette} /> {t(`topology.health.${healthName(health)}`)}
                </td>
                <td className="yh-num">{props.valueTitle ? props.value(target) : parts(target, graph)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {view.rows.length < view.total && (
        <p className="yh-muted">{t("topology.moreInView", { shown: formatCount(view.total - view.rows.length) })}</p>
      )}
    </div>
  );
}

// What it is made of, in a few characters.
function parts(target: Target, graph: Graph): string {
  const center = graph.centers[target.index];
  if (!center) return "";
  if (target.node === undefined) return formatCount(center.nodes.names.length);
  if (target.card === undefined) {
    const count = cardCount(center.nodes, target.node);
    return count > 0 ? `${count} × ${cardOf(center.nodes, target.node, 0)?.resource ?? ""}` : "";
  }
  return cardOf(center.nodes, target.node, target.card)?.model ?? "";
}
