import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useSearchParams } from "react-router";
import { Fact, Loaded, Nothing, PageHead, Panel } from "../components/bits";
import { NodeTable, nodeFilterOf } from "../components/NodeTable";
import type { Center } from "../gen/yunhe/registry/v1/registry_pb";
import { formatCount, percent } from "../lib/format";
import { acceleratorName, type ModelTotal, type NodeTotals, totalsOf } from "../lib/nodes";
import { useCenters } from "../queries";

export function Nodes() {
  const { t } = useTranslation();
  const centers = useCenters();
  return (
    <>
      <PageHead title={t("nav.nodes")} sub={t("node.sub")} />
      <Loaded query={centers} rows={8}>
        {(list) => <Overview centers={list} />}
      </Loaded>
    </>
  );
}

function Overview({ centers }: { centers: Center[] }) {
  const { t } = useTranslation();
  // The filter lives in the address, so that a filtered list can be sent to a colleague.
  const [params, setParams] = useSearchParams();
  const filter = useMemo(() => nodeFilterOf(params), [params]);
  const totals = useMemo(() => totalsOf(centers), [centers]);
  const change = (values: Record<string, string | string[] | undefined>) =>
    setParams(
      (now) => {
        const next = new URLSearchParams(now);
        for (const [name, value] of Object.entries(values)) {
          next.delete(name);
          for (const v of [value ?? ""].flat()) if (v) next.append(name, v);
        }
        return next;
      },
      { replace: true, preventScrollReset: true },
    );
  return (
    <>
      <Totals totals={totals} model={filter.model} onModel={(model) => change({ model })} />
      <Panel flush title={t("nav.nodes")}>
        <NodeTable filter={filter} centers={centers} onChange={(c) => change({ ...c })} />
      </Panel>
    </>
  );
}

function Totals({ totals, model, onModel }: { totals: NodeTotals; model: string; onModel: (model: string) => void }) {
  const { t } = useTranslation();
  const most = totals.models[0]?.count ?? 0n;
  return (
    <div className="yh-node-totals">
      <Panel title={t("node.inAll")}>
        <div className="yh-facts">
          <Fact label={t("node.total")}>
            <span className="yh-num yh-strong" data-testid="nodes-total">
              {formatCount(totals.total)}
            </span>
          </Fact>
          <Fact label={t("node.states.ready")}>
            <span className="yh-num yh-strong">{formatCount(totals.ready)}</span>
          </Fact>
          <Fact label={t("node.states.notReady")}>
            <span className={`yh-num yh-strong${totals.notReady > 0n ? " yh-bad" : ""}`}>
              {formatCount(totals.notReady)}
            </span>
          </Fact>
          <Fact label={t("node.states.drained")}>
            <span className="yh-num yh-strong">{formatCount(totals.drained)}</span>
          </Fact>
          <Fact label={t("node.centers")} hint={t("node.centersHint")}>
            <span className="yh-num yh-strong">{formatCount(totals.centers)}</span>
          </Fact>
        </div>
      </Panel>
      <Panel title={t("node.byModel")}>
        {totals.models.length === 0 ? (
          <Nothing text={t("node.noAccelerators")} />
        ) : (
          <ul className="yh-models">
            {totals.models.map((m) => (
              <Model key={m.key} total={m} most={most} chosen={model !== "" && model === m.model} onModel={onModel} />
            ))}
          </ul>
        )}
      </Panel>
    </div>
  );
}

function Model(props: { total: ModelTotal; most: bigint; chosen: boolean; onModel: (model: string) => void }) {
  const { t } = useTranslation();
  const { total: m, chosen } = props;
  const text = (
    <>
      <span className="yh-model-name">{acceleratorName(m)}</span>
      <span className="yh-model-bar" aria-hidden>
        <i style={{ width: `${percent(m.count, props.most)}%` }} />
      </span>
      <b className="yh-num">{formatCount(m.count)}</b>
      <small>{t("node.atCenters", { count: m.centers.length })}</small>
    </>
  );
  return (
    <li>
      {m.model === "" ? (
        <span className="yh-model">{text}</span>
      ) : (
        <button
          type="button"
          className="yh-model"
          aria-pressed={chosen}
          onClick={() => props.onModel(chosen ? "" : m.model)}
        >
          {text}
        </button>
      )}
    </li>
  );
}
