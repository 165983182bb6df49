// Allocations: applied for, looked at, changed and given back.
import { useQuery } from "@tanstack/react-query";
import { Button, Descriptions, Drawer, Form, Select, type TableColumnsType } from "antd";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useSearchParams } from "react-router";
import { call } from "../../api";
import { CreateButton, Loaded, Moment, Tag, UseBar } from "../../components/bits";
import { PagedTable, usePaged } from "../../components/Pager";
import type { Allocation } from "../../gen/yunhe/control/v1/control_pb";
import { ALLOCATION_STATES, allocationStateName, allocationTone, amountsOf, isOver, quantity } from "../../lib/control";
import { NONE } from "../../lib/format";
import { useCenterNames, useCenters } from "../../queries";
import { useClients, useSession } from "../../session";
import { Adjust, Release } from "./Actions";
import { Apply } from "./Apply";
import { OperationsOf } from "./Operations";

const PAGE = 50;
const EVERY_MS = 3000;

export function AllocationTag({ of: a }: { of: Allocation }) {
  const { t } = useTranslation();
  return <Tag tone={allocationTone(a.state)} text={t(`allocation.states.${allocationStateName(a.state)}`)} />;
}

export function AllocationList() {
  const { t } = useTranslation();
  const { control } = useClients();
  const { can } = useSession();
  const centers = useCenters();
  const centerName = useCenterNames();
  const [params, setParams] = useSearchParams();
  const chosen = params.getAll("state");
  const centerId = params.get("center") ?? "";
  const shown = params.get("id") ?? "";
  const [applying, setApplying] = useState(false);
  const states = useMemo(
    () => ALLOCATION_STATES.filter((s) => params.getAll("state").includes(allocationStateName(s))),
    [params],
  );
  const change = (values: Record<string, string | string[]>) =>
    setParams(
      (now) => {
        const next = new URLSearchParams(now);
        for (const [k, v] of Object.entries(values)) {
          next.delete(k);
          for (const x of [v].flat()) if (x) next.append(k, x);
        }
        return next;
      },
      { replace: true, preventScrollReset: true },
    );
  const paged = usePaged({
    key: ["allocations", "list", states, centerId],
    everyMs: EVERY_MS,
    fetchPage: async (pageToken, signal) => {
      const res = await control.listAllocations(
        { pageSize: PAGE, pageToken, states, aiCenterId: centerId },
        call(signal),
      );
      return { items: res.allocations, nextPageToken: res.nextPageToken };
    },
  });
  const columns: TableColumnsType<Allocation> = [
    {
      title: t("allocation.name"),
      key: "name",
      width: 240,
      ellipsis: true,
      render: (_, a) => (
        <Button type="link" className="yh-link-cell" onClick={() => change({ id: a.allocationId })}>
          <span className="yh-job-link">
            <b>{a.name || a.allocationId}</b>
            {a.name && <small>{a.allocationId}</small>}
          </span>
        </Button>
      ),
    },
    {
      title: t("registry.state"),
      key: "state",
      width: 170,
      ellipsis: true,
      render: (_, a) => (
        <span title={a.reason}>
          <AllocationTag of={a} />
          {a.reason && <small className="yh-reason">{a.reason}</small>}
        </span>
      ),
    },
    { title: t("allocation.what"), key: "what", width: 220, ellipsis: true, render: (_, a) => <What of={a} /> },
    {
      title: t("center.name"),
      key: "center",
      width: 170,
      ellipsis: true,
      render: (_, a) =>
        a.aiCenterId ? (
          <Link to={`/centers/${encodeURIComponent(a.aiCenterId)}`}>{centerName(a.aiCenterId)}</Link>
        ) : (
          a.region || t("allocation.anywhere")
        ),
    },
    { title: t("registry.tenant"), key: "tenant", width: 120, ellipsis: true, render: (_, a) => a.tenantId },
    {
      title: t("allocation.from"),
      key: "from",
      width: 132,
      render: (_, a) => <Moment at={a.grantedAt ?? a.startAt} />,
    },
    { title: t("allocation.to"), key: "to", width: 132, render: (_, a) => <Moment at={a.endedAt ?? a.endAt} /> },
  ];
  return (
    <>
      <Form layout="inline" className="yh-filters" role="search" aria-label={t("jobs.filters")}>
        <Select
          mode="multiple"
          allowClear
          className="yh-label-filter"
          placeholder={t("jobs.anyState")}
          aria-label={t("registry.state")}
          value={chosen}
          onChange={(state: string[]) => change({ state })}
          options={ALLOCATION_STATES.map((s) => ({
            value: allocationStateName(s),
            label: t(`allocation.states.${allocationStateName(s)}`),
          }))}
        />
        <Select
          allowClear
          showSearch={{ optionFilterProp: "label" }}
          className="yh-w-200"
          placeholder={t("jobs.anyCenter")}
          aria-label={t("center.name")}
          value={centerId || undefined}
          onChange={(center?: string) => change({ center: center ?? "" })}
          options={(centers.data ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
        />
        <span className="yh-grow" />
        {can("jobs.write") && (
          <CreateButton text={t("allocation.apply")} onClick={() => setApplying(true)} testId="apply-allocation" />
        )}
      </Form>
      <PagedTable
        paged={paged}
        rowKey="allocationId"
        columns={columns}
        scroll={{ x: 1190 }}
        data-testid="allocations"
        empty={t(states.length > 0 || centerId ? "allocation.noMatch" : "allocation.none")}
      />
      <Drawer
        open={applying}
        onClose={() => setApplying(false)}
        size={600}
        title={t("allocation.applyTitle")}
        destroyOnHidden
      >
        <Apply
          onDone={(id) => {
            setApplying(false);
            change({ id });
          }}
        />
      </Drawer>
      <Drawer open={shown !== ""} onClose={() => change({ id: "" })} size={640} title={shown} destroyOnHidden>
        {shown && <Detail id={shown} />}
      </Drawer>
    </>
  );
}

function What({ of: a }: { of: Allocation }) {
  const { t } = useTranslation();
  if (a.nodes.length > 0) return <>{t("allocation.nodes", { count: a.nodes.length, names: a.nodes.join(", ") })}</>;
  if (a.resourceSpecId)
    return (
      <>
        <span className="yh-num">{a.count.toString()}</span> × {a.resourceSpecId}
      </>
    );
  return (
    <>
      {amountsOf(a.amounts)
        .map((x) => `${x.name} ${x.text}`)
        .join(", ") || NONE}
    </>
  );
}

function Detail({ id }: { id: string }) {
  const { t } = useTranslation();
  const { control } = useClients();
  const { can } = useSession();
  const centerName = useCenterNames();
  const allocation = useQuery({
    queryKey: ["allocations", "one", id],
    queryFn: ({ signal }) => control.getAllocation({ allocationId: id }, call(signal)),
    refetchInterval: EVERY_MS,
  });
  const [action, setAction] = useState<"adjust" | "release">();
  const done = () => setAction(undefined);
  return (
    <Loaded query={allocation} rows={6}>
      {(a) => {
        const held = amountsOf(a.amounts);
        const used = new Map(amountsOf(a.used).map((x) => [x.name, x.value]));
        return (
          <>
            <Descriptions
              size="small"
              column={1}
              items={[
                {
                  key: "state",
                  label: t("registry.state"),
                  children: (
                    <span data-testid="allocation-state">
                      <AllocationTag of={a} /> <span className="yh-muted">{a.reason}</span>
                    </span>
                  ),
                },
                ...(a.name ? [{ key: "name", label: t("allocation.name"), children: a.name }] : []),
                { key: "what", label: t("allocation.what"), children: <What of={a} /> },
                {
                  key: "center",
                  label: t("center.name"),
                  children: a.aiCenterId ? (
                    <Link to={`/centers/${encodeURIComponent(a.aiCenterId)}`}>{centerName(a.aiCenterId)}</Link>
                  ) : (
                    a.region || t("allocation.anywhere")
                  ),
                },
                { key: "tenant", label: t("registry.tenant"), children: a.tenantId },
                { key: "user", label: t("allocation.user"), children: a.userName },
                { key: "created", label: t("allocation.applied"), children: <Moment at={a.createdAt} long /> },
                { key: "start", label: t("allocation.start"), children: <Moment at={a.startAt} long /> },
                { key: "granted", label: t("allocation.granted"), children: <Moment at={a.grantedAt} long /> },
                {
                  key: "end",
                  label: t("allocation.to"),
                  children:
                    a.endAt || a.endedAt ? <Moment at={a.endedAt ?? a.endAt} long /> : t("allocation.untilReleased"),
                },
              ]}
            />
            {held.length > 0 && (
              <div className="yh-bars yh-bars-wide yh-after-bars" data-testid="allocation-use">
                {held.map((x) => (
                  <div key={x.name}>
                    <span>
                      <code>{x.name}</code>
                    </span>
                    <UseBar
                      label={x.name}
                      used={used.get(x.name) ?? 0}
                      total={x.value ?? 0}
                      format={(n) => quantity(x.name, Number(n))}
                    />
                  </div>
                ))}
              </div>
            )}
            {can("jobs.write") && !isOver(a.state) && (
              <div className="yh-row yh-after-bars">
                <Button onClick={() => setAction("adjust")} data-testid="adjust">
                  {t("allocation.adjust")}
                </Button>
                <Button danger onClick={() => setAction("release")} data-testid="release">
                  {t("allocation.release")}
                </Button>
              </div>
            )}
            <h3 className="yh-small-title">{t("operation.operations")}</h3>
            <OperationsOf filter={{ allocationId: id }} />
            <Adjust allocation={a} open={action === "adjust"} onClose={done} />
            <Release allocation={a} open={action === "release"} onClose={done} />
          </>
        );
      }}
    </Loaded>
  );
}
