// Paths: what is known of each, what counts between two places, and what is declared.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  App,
  Button,
  Drawer,
  Form,
  Input,
  InputNumber,
  Popconfirm,
  Select,
  Table,
  type TableColumnsType,
  Tooltip,
} from "antd";
import { type ReactNode, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useSearchParams } from "react-router";
import { allPages, call } from "../../api";
import { CreateButton, Loaded, Moment, Nothing } from "../../components/bits";
import { PagedTable, usePaged } from "../../components/Pager";
import { useServerErrors } from "../../components/useServerErrors";
import type { Path, PathFact } from "../../gen/yunhe/network/v1/network_pb";
import { messageOf } from "../../lib/errors";
import { formatTime, millis, NONE, parseYuan } from "../../lib/format";
import { endOf, FACTS, type Fact, factOf, factText, isDeclared, pathFact, sourceName } from "../../lib/network";
import { useCenterNames, useCenters } from "../../queries";
import { useClients, useSession } from "../../session";

/** Origins by ID. */
export function useOrigins() {
  const { network } = useClients();
  return useQuery({
    queryKey: ["network", "origins", "all"],
    queryFn: ({ signal }) =>
      allPages(
        (pageToken) => network.listOrigins({ pageSize: 1000, pageToken }, call(signal)),
        (p) => p.origins,
      ),
    staleTime: 10_000,
  });
}

/** All ends a path may have. */
function useEnds() {
  const { t } = useTranslation();
  const centers = useCenters();
  const origins = useOrigins();
  return useMemo(() => {
    const regions = new Set([
      ...(centers.data ?? []).map((c) => c.region),
      ...(origins.data ?? []).map((o) => o.region),
    ]);
    const end = (kind: "center" | "region" | "origin", id: string, name: string) => ({
      value: `${kind}:${id}`,
      label: `${t(`network.kinds.${kind}`)} · ${name}`,
    });
    return [
      ...(centers.data ?? []).map((c) => end("center", c.aiCenterId, c.name || c.aiCenterId)),
      ...(origins.data ?? []).map((o) => end("origin", o.originId, o.name || o.originId)),
      ...[...regions]
        .filter(Boolean)
        .sort()
        .map((r) => end("region", r, r)),
    ];
  }, [centers.data, origins.data, t]);
}

/** An end in words, a center with the way to it. */
function End({ text }: { text: string }) {
  const { t } = useTranslation();
  const centerName = useCenterNames();
  const end = endOf(text);
  if (!end) return <span className="yh-muted">{text === "*" ? t("network.every") : text}</span>;
  if (end.kind === "center") return <Link to={`/centers/${encodeURIComponent(end.id)}`}>{centerName(end.id)}</Link>;
  return (
    <>
      {end.id} <small className="yh-muted">{t(`network.kinds.${end.kind}`)}</small>
    </>
  );
}

/** Where a fact is from, and, on hover, when it was measured. */
function Source({ of: f }: { of: PathFact }) {
  const { t } = useTranslation();
  const at = millis(f.measuredAt);
  return (
    <Tooltip title={at === undefined ? undefined : formatTime(at)}>
      <small className="yh-muted yh-fact-source">{t(`network.sources.${sourceName(f.source)}`)}</small>
    </Tooltip>
  );
}

export function Paths() {
  const { t } = useTranslation();
  const { network } = useClients();
  const { can } = useSession();
  const { message } = App.useApp();
  const client = useQueryClient();
  const [params, setParams] = useSearchParams();
  const [declaring, setDeclaring] = useState<Path | "new">();
  const end = params.get("end") ?? "";
  const ends = useEnds();
  const write = can("registry.write");
  const paged = usePaged({
    key: ["network", "paths", end],
    everyMs: 10_000,
    fetchPage: async (pageToken, signal) => {
      const res = await network.listPaths({ end, pageSize: 50, pageToken }, call(signal));
      return { items: res.paths, nextPageToken: res.nextPageToken };
    },
  });
  const forget = useMutation({
    mutationFn: (p: Path) => network.deletePath({ from: p.from, to: p.to }, call()),
    onSuccess: async () => {
      void message.success(t("network.forgotten"));
      await client.invalidateQueries({ queryKey: ["network"] });
    },
    onError: (e) => void message.error(messageOf(e)),
  });
  const columns: TableColumnsType<Path> = [
    { title: t("network.from"), key: "from", width: 165, ellipsis: true, render: (_, p) => <End text={p.from} /> },
    { title: t("network.to"), key: "to", width: 140, ellipsis: true, render: (_, p) => <End text={p.to} /> },
    ...FACTS.map((fact) => ({
      title: t(`network.${fact}`),
      key: fact,
      width: 112,
      render: (_: unknown, p: Path): ReactNode => {
        const f = pathFact(p, fact);
        if (!f) return NONE;
        return (
          <>
            <span className="yh-num">{factText(fact, f.value)}</span>
            <Source of={f} />
          </>
        );
      },
    })),
    { title: t("network.note"), key: "note", width: 100, ellipsis: true, render: (_, p) => p.note || NONE },
    ...(write
      ? [
          {
            key: "actions",
            width: 155,
            align: "right" as const,
            render: (_: unknown, p: Path) => (
              <div className="yh-row yh-row-end">
                <Button size="small" onClick={() => setDeclaring(p)}>
                  {t("network.change")}
                </Button>
                {isDeclared(p) && (
                  <Popconfirm
                    title={t("network.forgetTitle")}
                    description={t("network.forgetHelp")}
                    okText={t("network.forget")}
                    okButtonProps={{ danger: true }}
                    onConfirm={() => forget.mutateAsync(p).catch(() => undefined)}
                  >
                    <Button size="small" danger>
                      {t("common.delete")}
                    </Button>
                  </Popconfirm>
                )}
              </div>
            ),
          },
        ]
      : []),
  ];
  return (
    <>
      <div className="yh-filters ant-form">
        <Select
          allowClear
          showSearch={{ optionFilterProp: "label" }}
          className="yh-w-320"
          placeholder={t("network.anyEnd")}
          aria-label={t("network.paths")}
          value={end || undefined}
          onChange={(value?: string) =>
            setParams(value ? { tab: "paths", end: value } : { tab: "paths" }, { replace: true })
          }
          options={ends}
        />
        <span className="yh-grow" />
        {write && (
          <CreateButton text={t("network.declare")} onClick={() => setDeclaring("new")} testId="declare-path" />
        )}
      </div>
      <PagedTable
        paged={paged}
        rowKey={(p) => `${p.from} ${p.to}`}
        columns={columns}
        scroll={{ x: write ? 1120 : 965 }}
        data-testid="paths"
        empty={t(end ? "network.noPathsOf" : "network.noPaths")}
      />
      <Between ends={ends} />
      <Drawer
        open={declaring !== undefined}
        onClose={() => setDeclaring(undefined)}
        size={560}
        title={t("network.declare")}
        destroyOnHidden
      >
        {declaring && (
          <Declare
            path={declaring === "new" ? undefined : declaring}
            ends={ends}
            onDone={() => setDeclaring(undefined)}
          />
        )}
      </Drawer>
    </>
  );
}

type Ends = ReturnType<typeof useEnds>;

/** What placement takes between a center or an origin and a center. */
function Between({ ends }: { ends: Ends }) {
  const { t } = useTranslation();
  const { network } = useClients();
  const [from, setFrom] = useState<string>();
  const [to, setTo] = useState<string>();
  const path = useQuery({
    queryKey: ["network", "between", from, to],
    queryFn: ({ signal }) => network.getPath({ from, to }, call(signal)),
    enabled: from !== undefined && to !== undefined,
    refetchInterval: 10_000,
  });
  return (
    <section className="yh-pad" aria-label={t("network.between")}>
      <h3 className="yh-small-title">{t("network.between")}</h3>
      <p className="yh-field-help">{t("network.betweenHelp")}</p>
      <div className="yh-row">
        <Select
          showSearch={{ optionFilterProp: "label" }}
          className="yh-w-240"
          placeholder={t("network.from")}
          aria-label={t("network.from")}
          value={from}
          onChange={setFrom}
          options={ends.filter((e) => !e.value.startsWith("region:"))}
        />
        <Select
          showSearch={{ optionFilterProp: "label" }}
          className="yh-w-240"
          placeholder={t("network.to")}
          aria-label={t("network.to")}
          value={to}
          onChange={setTo}
          options={ends.filter((e) => e.value.startsWith("center:") && e.value !== from)}
        />
      </div>
      {from && to && (
        <Loaded query={path} rows={3}>
          {(p) => (
            <Table<PathFact>
              className="yh-after-bars"
              size="small"
              rowKey="fact"
              dataSource={p.facts}
              pagination={false}
              scroll={{ x: 560 }}
              data-testid="between"
              locale={{ emptyText: <Nothing text={t("network.noFacts")} /> }}
              columns={[
                { title: t("network.fact"), key: "fact", width: 140, render: (_, f) => <FactName of={f} /> },
                { title: t("network.value"), key: "value", width: 140, render: (_, f) => <FactValue of={f} /> },
                {
                  title: t("network.source"),
                  key: "source",
                  render: (_, f) => (
                    <>
                      {t(`network.sources.${sourceName(f.source)}`)} {f.measuredAt && <Moment at={f.measuredAt} />}
                      {f.fromPath && (
                        <small className="yh-muted">
                          {" "}
                          · {t("network.ofPath", { path: f.fromPath.replace(" to ", " → ") })}
                        </small>
                      )}
                    </>
                  ),
                },
              ]}
            />
          )}
        </Loaded>
      )}
    </section>
  );
}

function FactName({ of: f }: { of: PathFact }) {
  const { t } = useTranslation();
  const name = factOf(f);
  return name ? t(`network.${name}`) : f.fact;
}

function FactValue({ of: f }: { of: PathFact }) {
  const name = factOf(f);
  return <span className="yh-num">{name ? factText(name, f.value) : f.value.toString()}</span>;
}

interface Values {
  from: string;
  to: string;
  latency?: number | null;
  jitter?: number | null;
  loss?: number | null;
  bandwidth?: number | null;
  fee?: string;
  note?: string;
}

const FIELDS: Readonly<Record<string, Fact | "from" | "to" | "note">> = {
  from: "from",
  to: "to",
  note: "note",
  latencyUs: "latency",
  jitterUs: "jitter",
  lossPpm: "loss",
  bandwidthKbps: "bandwidth",
  feeFenPerGib: "fee",
};

function Declare({ path, ends, onDone }: { path?: Path; ends: Ends; onDone: () => void }) {
  const { t } = useTranslation();
  const { network } = useClients();
  const { message } = App.useApp();
  const client = useQueryClient();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "path", (at) => {
    const field = typeof at[0] === "string" ? FIELDS[at[0]] : undefined;
    return field && [field];
  });
  const declared = (fact: Fact, per: number) => {
    const f = path && pathFact(path, fact);
    return f && sourceName(f.source) === "declared" ? Number(f.value) / per : undefined;
  };
  const scaled = (v: number | null | undefined, per: number) =>
    v === null || v === undefined ? undefined : BigInt(Math.round(v * per));
  const save = useMutation({
    mutationFn: (v: Values) =>
      network.setPath(
        {
          path: {
            from: v.from,
            to: v.to,
            latencyUs: scaled(v.latency, 1000),
            jitterUs: scaled(v.jitter, 1000),
            lossPpm: scaled(v.loss, 10_000),
            bandwidthKbps: scaled(v.bandwidth, 1000),
            feeFenPerGib: v.fee ? parseYuan(v.fee) : undefined,
            note: v.note?.trim() ?? "",
          },
        },
        call(),
      ),
    onSuccess: async () => {
      void message.success(t("network.declared"));
      await client.invalidateQueries({ queryKey: ["network"] });
      onDone();
    },
    onError: errors.show,
  });
  const required = [{ required: true, message: t("form.required") }];
  const fee = declared("fee", 100);
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{
        from: path?.from,
        to: path?.to,
        latency: declared("latency", 1000),
        jitter: declared("jitter", 1000),
        loss: declared("loss", 10_000),
        bandwidth: declared("bandwidth", 1000),
        fee: fee?.toFixed(2) ?? "",
        note: path?.note ?? "",
      }}
      scrollToFirstError={{ block: "center", focus: true }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      <p className="yh-help">{t("network.declareHelp")}</p>
      <Form.Item name="from" label={t("network.from")} rules={required}>
        <Select showSearch={{ optionFilterProp: "label" }} disabled={path !== undefined} options={ends} />
      </Form.Item>
      <Form.Item name="to" label={t("network.to")} rules={required}>
        <Select
          showSearch={{ optionFilterProp: "label" }}
          disabled={path !== undefined}
          options={[{ value: "*", label: `* · ${t("network.everyHelp")}` }, ...ends]}
        />
      </Form.Item>
      <div className="yh-cols-2">
        <Form.Item name="latency" label={t("network.latency")}>
          <InputNumber min={0} max={1_000_000} suffix="ms" />
        </Form.Item>
        <Form.Item name="jitter" label={t("network.jitter")}>
          <InputNumber min={0} max={1_000_000} suffix="ms" />
        </Form.Item>
        <Form.Item name="loss" label={t("network.loss")}>
          <InputNumber min={0} max={100} suffix="%" />
        </Form.Item>
        <Form.Item name="bandwidth" label={t("network.bandwidth")}>
          <InputNumber min={0.001} suffix="Mbit/s" />
        </Form.Item>
        <Form.Item
          name="fee"
          label={t("network.fee")}
          rules={[
            {
              validator: (_, text?: string) =>
                !text || parseYuan(text) !== undefined ? Promise.resolve() : Promise.reject(new Error(t("form.yuan"))),
            },
          ]}
        >
          <Input prefix="¥" autoComplete="off" />
        </Form.Item>
        <Form.Item name="note" label={t("network.note")}>
          <Input maxLength={256} autoComplete="off" />
        </Form.Item>
      </div>
      <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save-path">
        {t("network.declare")}
      </Button>
    </Form>
  );
}
