// Operations with their steps, followed while they run.
import { useQueryClient } from "@tanstack/react-query";
import { Alert, Button, Descriptions, Drawer, Form, Select, type TableColumnsType, Timeline } from "antd";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useSearchParams } from "react-router";
import { call } from "../../api";
import { Moment, Problem, Tag } from "../../components/bits";
import { PagedTable, usePaged } from "../../components/Pager";
import { type Operation, OperationState } from "../../gen/yunhe/control/v1/control_pb";
import { OPERATION_KINDS, operationKindName, operationStateName, operationTone } from "../../lib/control";
import { NONE } from "../../lib/format";
import { useCenterNames, useCenters } from "../../queries";
import { useClients } from "../../session";

const PAGE = 50;
const EVERY_MS = 5000;
const RETRY_MS = 2000;

const STATES = [
  OperationState.RUNNING,
  OperationState.SUCCEEDED,
  OperationState.PARTLY,
  OperationState.FAILED,
] as const;

function StateOf({ of: o }: { of: Operation }) {
  const { t } = useTranslation();
  return <Tag tone={operationTone(o.state)} text={t(`operation.states.${operationStateName(o.state)}`)} />;
}

export function Operations() {
  const { t } = useTranslation();
  const [params, setParams] = useSearchParams();
  const centers = useCenters();
  const kinds = OPERATION_KINDS.filter((k) => params.getAll("kind").includes(operationKindName(k)));
  const states = STATES.filter((s) => params.getAll("state").includes(operationStateName(s)));
  const centerId = params.get("center") ?? "";
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
  return (
    <>
      <Form layout="inline" className="yh-filters" role="search" aria-label={t("jobs.filters")}>
        <Select
          mode="multiple"
          allowClear
          className="yh-label-filter"
          placeholder={t("operation.anyKind")}
          aria-label={t("operation.kind")}
          value={kinds.map(operationKindName)}
          onChange={(kind: string[]) => change({ kind })}
          options={OPERATION_KINDS.map((k) => ({
            value: operationKindName(k),
            label: t(`operation.kinds.${operationKindName(k)}`),
          }))}
        />
        <Select
          mode="multiple"
          allowClear
          className="yh-label-filter"
          placeholder={t("jobs.anyState")}
          aria-label={t("registry.state")}
          value={states.map(operationStateName)}
          onChange={(state: string[]) => change({ state })}
          options={STATES.map((s) => ({
            value: operationStateName(s),
            label: t(`operation.states.${operationStateName(s)}`),
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
      </Form>
      <OperationsOf filter={{ kinds, states, aiCenterId: centerId }} />
    </>
  );
}

interface Filter {
  kinds?: number[];
  states?: number[];
  aiCenterId?: string;
  allocationId?: string;
}

/** Operations that pass the filter; one of them in a drawer. */
export function OperationsOf({ filter }: { filter: Filter }) {
  const { t } = useTranslation();
  const { control } = useClients();
  const centerName = useCenterNames();
  const [shown, setShown] = useState<string>();
  const narrow = filter.allocationId !== undefined;
  const paged = usePaged({
    key: ["operations", filter],
    everyMs: EVERY_MS,
    fetchPage: async (pageToken, signal) => {
      const res = await control.listOperations({ ...filter, pageSize: PAGE, pageToken }, call(signal));
      return { items: res.operations, nextPageToken: res.nextPageToken };
    },
  });
  const columns: TableColumnsType<Operation> = [
    {
      title: t("operation.kind"),
      key: "kind",
      width: 150,
      ellipsis: true,
      render: (_, o) => (
        <Button type="link" className="yh-link-cell" onClick={() => setShown(o.operationId)}>
          {t(`operation.kinds.${operationKindName(o.kind)}`)}
        </Button>
      ),
    },
    { title: t("registry.state"), key: "state", width: 130, render: (_, o) => <StateOf of={o} /> },
    {
      title: t("operation.message"),
      key: "message",
      ellipsis: true,
      render: (_, o) => <span title={o.message}>{o.message || NONE}</span>,
    },
    ...(narrow
      ? []
      : [
          {
            title: t("operation.on"),
            key: "on",
            width: 230,
            ellipsis: true,
            render: (_: unknown, o: Operation) => (
              <>
                {o.aiCenterId && (
                  <Link to={`/centers/${encodeURIComponent(o.aiCenterId)}`}>{centerName(o.aiCenterId)}</Link>
                )}
                {o.node && ` · ${o.node}`}
                {o.allocationId && (
                  <>
                    {o.aiCenterId && " · "}
                    <Link to={`/allocations?id=${encodeURIComponent(o.allocationId)}`}>{o.allocationId}</Link>
                  </>
                )}
              </>
            ),
          },
          {
            title: t("operation.by"),
            key: "by",
            width: 120,
            ellipsis: true,
            render: (_: unknown, o: Operation) => o.userName || NONE,
          },
        ]),
    { title: t("operation.begun"), key: "created", width: 132, render: (_, o) => <Moment at={o.createdAt} /> },
  ];
  return (
    <>
      <PagedTable
        paged={paged}
        rowKey="operationId"
        columns={columns}
        scroll={{ x: narrow ? 560 : 1040 }}
        data-testid="operations"
        empty={t("operation.none")}
      />
      <Drawer open={shown !== undefined} onClose={() => setShown(undefined)} size={560} title={shown} destroyOnHidden>
        {shown && <Followed id={shown} />}
      </Drawer>
    </>
  );
}

/** One operation, with every change until it has ended. */
function Followed({ id }: { id: string }) {
  const { t } = useTranslation();
  const { control } = useClients();
  const client = useQueryClient();
  const centerName = useCenterNames();
  const [operation, setOperation] = useState<Operation>();
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const follow = async () => {
      let ended = false;
      try {
        for await (const { operation: o } of control.watchOperations({ operationId: id }, { signal: stop.signal })) {
          if (!o) continue;
          setOperation(o);
          setError(undefined);
          ended = o.state !== OperationState.RUNNING;
        }
      } catch (e) {
        if (stop.signal.aborted) return;
        setError(e);
      }
      if (ended) await client.invalidateQueries({ queryKey: ["operations"] });
      else if (!stop.signal.aborted) timer = setTimeout(() => void follow(), RETRY_MS);
    };
    void follow();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [control, client, id]);
  if (!operation) return error ? <Problem error={error} /> : null;
  const o = operation;
  return (
    <>
      {error !== undefined && <Problem error={error} />}
      <Descriptions
        size="small"
        column={1}
        items={[
          { key: "kind", label: t("operation.kind"), children: t(`operation.kinds.${operationKindName(o.kind)}`) },
          {
            key: "state",
            label: t("registry.state"),
            children: (
              <span data-testid="operation-state">
                <StateOf of={o} />
              </span>
            ),
          },
          ...(o.aiCenterId
            ? [
                {
                  key: "center",
                  label: t("center.name"),
                  children: <Link to={`/centers/${encodeURIComponent(o.aiCenterId)}`}>{centerName(o.aiCenterId)}</Link>,
                },
              ]
            : []),
          ...(o.node ? [{ key: "node", label: t("node.name"), children: o.node }] : []),
          ...(o.reason ? [{ key: "reason", label: t("control.reason"), children: o.reason }] : []),
          { key: "by", label: t("operation.by"), children: o.userName || NONE },
          { key: "begun", label: t("operation.begun"), children: <Moment at={o.createdAt} long /> },
          ...(o.stopAt && o.state === OperationState.RUNNING
            ? [{ key: "stop", label: t("operation.stopAt"), children: <Moment at={o.stopAt} long /> }]
            : []),
          { key: "ended", label: t("operation.ended"), children: <Moment at={o.endedAt} long /> },
        ]}
      />
      {o.message && (
        <Alert
          className="yh-after-bars"
          type={o.state === OperationState.FAILED ? "error" : o.state === OperationState.PARTLY ? "warning" : "info"}
          showIcon
          title={o.message}
        />
      )}
      <h3 className="yh-small-title">{t("operation.steps")}</h3>
      <Timeline
        data-testid="operation-steps"
        pending={o.state === OperationState.RUNNING ? t("operation.goesOn") : undefined}
        items={o.steps.map((s, i) => ({
          key: `${i}`,
          color: s.ok ? "green" : "red",
          content: (
            <>
              <Moment at={s.at} /> <b>{s.name}</b> {s.message}
              {s.subjects.length > 0 && <div className="yh-muted yh-wrap">{s.subjects.join(", ")}</div>}
            </>
          ),
        }))}
      />
    </>
  );
}
