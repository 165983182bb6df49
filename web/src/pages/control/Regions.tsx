// What there is and what is free, across regions.
import { useQuery } from "@tanstack/react-query";
import { Form, Select, Table } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call } from "../../api";
import { Fen, Loaded, Nothing, Tag, UseBar } from "../../components/bits";
import type { CenterView, RegionView } from "../../gen/yunhe/control/v1/control_pb";
import { amountsOf, quantity } from "../../lib/control";
import { formatCount, NONE, parseQuantity } from "../../lib/format";
import { useSpecs } from "../../queries";
import { useClients } from "../../session";

const STATES = { available: "good", unavailable: "bad", drained: "warn", unknown: "neutral" } as const;

export function Regions() {
  const { t } = useTranslation();
  const { control } = useClients();
  const specs = useSpecs();
  const [spec, setSpec] = useState("");
  const view = useQuery({
    queryKey: ["resource-view", spec],
    queryFn: ({ signal }) => control.getResourceView({ resourceSpecId: spec }, call(signal)),
    refetchInterval: 5000,
    placeholderData: (before) => before,
  });
  return (
    <>
      <Form layout="inline" className="yh-filters" role="search" aria-label={t("jobs.filters")}>
        <Select
          allowClear
          className="yh-w-240"
          placeholder={t("allocation.anySpec")}
          aria-label={t("allocation.spec")}
          value={spec || undefined}
          onChange={(s?: string) => setSpec(s ?? "")}
          options={(specs.data ?? []).map((s) => ({ value: s.resourceSpecId, label: s.resourceSpecId }))}
        />
      </Form>
      <Loaded query={view} rows={8}>
        {(v) =>
          v.regions.length === 0 ? (
            <Nothing text={t("allocation.noRegions")} />
          ) : (
            v.regions.map((r) => <Region key={r.region} region={r} spec={spec} />)
          )
        }
      </Loaded>
    </>
  );
}

function Region({ region: r, spec }: { region: RegionView; spec: string }) {
  const { t } = useTranslation();
  return (
    <section className="yh-region" aria-label={r.region || t("allocation.noRegion")}>
      <header>
        <h3>{r.region || t("allocation.noRegion")}</h3>
        <Amounts total={r.total} free={r.free} />
      </header>
      <Table
        size="small"
        rowKey="aiCenterId"
        dataSource={r.centers}
        pagination={false}
        scroll={{ x: 940 }}
        tableLayout="fixed"
        columns={[
          {
            title: t("center.name"),
            key: "center",
            width: 220,
            ellipsis: true,
            render: (_, c: CenterView) => (
              <Link to={`/centers/${encodeURIComponent(c.aiCenterId)}`} className="yh-job-link">
                <b>{c.name || c.aiCenterId}</b>
                <small>{c.aiCenterId}</small>
              </Link>
            ),
          },
          {
            title: t("registry.state"),
            key: "state",
            width: 120,
            render: (_, c: CenterView) => {
              const state = c.status in STATES ? (c.status as keyof typeof STATES) : "unknown";
              return <Tag tone={STATES[state]} text={t(`center.${state}`)} />;
            },
          },
          {
            title: t("allocation.use"),
            key: "use",
            width: 300,
            render: (_, c: CenterView) => <Amounts total={c.total} free={c.free} />,
          },
          {
            title: t("nav.nodes"),
            key: "nodes",
            width: 170,
            render: (_, c: CenterView) => (
              <span className="yh-num">
                {formatCount(c.nodesReady)}
                {c.nodesNotReady > 0n && ` · ${t("allocation.notReady", { shown: formatCount(c.nodesNotReady) })}`}
                {c.nodesIsolated > 0n && ` · ${t("allocation.isolatedNodes", { shown: formatCount(c.nodesIsolated) })}`}
              </span>
            ),
          },
          {
            title: t("allocation.fits"),
            key: "specs",
            render: (_, c: CenterView) => {
              const list = c.specs.filter((s) => spec === "" || s.resourceSpecId === spec);
              if (list.length === 0) return NONE;
              return list.map((s) => (
                <div key={s.resourceSpecId}>
                  <span className="yh-num">{formatCount(s.free)}</span> × {s.resourceSpecId}{" "}
                  <small className="yh-muted">
                    <Fen fen={s.price} />
                    /h
                  </small>
                </div>
              ));
            },
          },
        ]}
      />
    </section>
  );
}

function Amounts({ total, free }: { total: Record<string, string>; free: Record<string, string> }) {
  const list = amountsOf(total).filter((x) => (x.value ?? 0) > 0);
  if (list.length === 0) return <span className="yh-none">{NONE}</span>;
  return (
    <div className="yh-bars yh-bars-slim">
      {list.map((x) => (
        <div key={x.name}>
          <span>
            <code>{x.name}</code>
          </span>
          <UseBar
            label={x.name}
            used={(x.value ?? 0) - (parseQuantity(free[x.name] ?? "0") ?? 0)}
            total={x.value ?? 0}
            format={(n) => quantity(x.name, Number(n))}
          />
        </div>
      ))}
    </div>
  );
}
