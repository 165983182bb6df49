// Queues: who may use how much, what is used, how work is ordered, and how fast it is placed.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  App,
  Button,
  Checkbox,
  Drawer,
  Form,
  Input,
  InputNumber,
  Radio,
  Select,
  Table,
  type TableColumnsType,
  Tooltip,
} from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import { CreateButton, Fact, Loaded, Moment, Nothing } from "../components/bits";
import { ConfirmButton } from "../components/ConfirmButton";
import { ListTable } from "../components/Pager";
import { TabbedPage } from "../components/TabbedPage";
import { useServerErrors } from "../components/useServerErrors";
import { type Queue, type QueueSettings, QueueSettings_Order } from "../gen/yunhe/scheduler/v1/queues_pb";
import { quantity, typedAmounts } from "../lib/control";
import type { FieldPath } from "../lib/errors";
import { messageOf } from "../lib/errors";
import { formatCount, formatMillis, NONE } from "../lib/format";
import { type QueueAmount, type QueueNode, queueAmounts, queueTree, within } from "../lib/queues";
import { useClients, useSession } from "../session";
import { Budgets } from "./queues/Budgets";

const EVERY_MS = 5000;

export function Queues() {
  const { t } = useTranslation();
  const tabs = [
    { key: "queues", label: t("queue.queues"), children: <Tree /> },
    { key: "budgets", label: t("budget.budgets"), children: <Budgets /> },
    { key: "stats", label: t("queue.stats"), children: <Stats /> },
    { key: "settings", label: t("queue.settings"), children: <Settings /> },
  ];
  return <TabbedPage title={t("nav.queues")} sub={t("queue.sub")} tabs={tabs} />;
}

function Tree() {
  const { t } = useTranslation();
  const { queues } = useClients();
  const { can } = useSession();
  const [open, setOpen] = useState<Queue | "new">();
  const list = useQuery({
    queryKey: ["queues"],
    queryFn: async ({ signal }) => (await queues.listQueues({}, call(signal))).queues,
    refetchInterval: EVERY_MS,
  });
  const write = can("scheduler.write");
  const columns: TableColumnsType<QueueNode> = [
    {
      title: t("queue.queue"),
      key: "queue",
      width: 240,
      ellipsis: true,
      render: (_, { queue: q }) =>
        write ? (
          <Button type="link" className="yh-link-cell yh-inline" onClick={() => setOpen(q)}>
            {q.queueId}
          </Button>
        ) : (
          <b>{q.queueId}</b>
        ),
    },
    {
      title: t("queue.weight"),
      key: "weight",
      width: 90,
      align: "right",
      render: (_, { queue: q }) => <span className="yh-num">{formatCount(q.weight || 1n)}</span>,
    },
    {
      title: t("queue.use"),
      key: "use",
      render: (_, { queue: q }) => <Amounts of={q} />,
    },
    {
      title: t("queue.share"),
      key: "share",
      width: 120,
      align: "right",
      render: (_, { queue: q }) => <span className="yh-num">{(Number(q.sharePpm) / 10_000).toFixed(2)} %</span>,
    },
    {
      title: t("queue.waiting"),
      key: "waiting",
      width: 110,
      align: "right",
      render: (_, { queue: q }) => <span className="yh-num">{formatCount(q.waitingJobs)}</span>,
    },
    {
      title: t("common.updated"),
      key: "updated",
      width: 132,
      render: (_, { queue: q }) => <Moment at={q.updatedAt} />,
    },
  ];
  return (
    <>
      {write && (
        <div className="yh-tab-actions">
          <CreateButton text={t("queue.create")} onClick={() => setOpen("new")} testId="new-queue" />
        </div>
      )}
      <Loaded query={list} rows={5}>
        {(data) => (
          <Table
            // What is open at first follows from the rows there are then.
            key={data.length > 0 ? "some" : "none"}
            size="small"
            rowKey={(n) => n.queue.queueId}
            columns={columns}
            dataSource={queueTree(data)}
            tableLayout="fixed"
            scroll={{ x: 980 }}
            pagination={false}
            expandable={{ childrenColumnName: "below", defaultExpandAllRows: true }}
            data-testid="queues"
            locale={{ emptyText: <Nothing text={t("queue.none")} /> }}
          />
        )}
      </Loaded>
      <Drawer
        open={open !== undefined}
        onClose={() => setOpen(undefined)}
        size={560}
        title={open === "new" ? t("queue.create") : open?.queueId}
        destroyOnHidden
      >
        {open && (
          <QueueForm
            queue={open === "new" ? undefined : open}
            all={list.data ?? []}
            onDone={() => setOpen(undefined)}
          />
        )}
      </Drawer>
    </>
  );
}

function Amounts({ of: q }: { of: Queue }) {
  const list = queueAmounts(q);
  if (list.length === 0) return <span className="yh-none">{NONE}</span>;
  return (
    <div className="yh-quotas">
      {list.map((a) => (
        <Quota key={a.name} of={a} />
      ))}
    </div>
  );
}

/** What is used, up to what is guaranteed, what may be borrowed, and the limit. */
function Quota({ of: a }: { of: QueueAmount }) {
  const { t } = useTranslation();
  const part = (n: number) => (a.full > 0 ? `${Math.min(100, (n / a.full) * 100)}%` : "0%");
  const text = (n: number | undefined) => (n === undefined ? NONE : quantity(a.name, n));
  const over = a.limit !== undefined && a.used >= a.limit;
  const borrowing = a.guaranteed !== undefined && a.used > a.guaranteed;
  const bounded = (a.limit ?? a.reach ?? a.guaranteed) !== undefined;
  const words = t("queue.quota", {
    used: text(a.used),
    guaranteed: text(a.guaranteed),
    reach: text(a.reach),
    limit: text(a.limit),
  });
  return (
    <Tooltip title={words}>
      <div className={`yh-quota yh-tone-${over ? "bad" : borrowing ? "warn" : "active"}`}>
        <code>{a.name}</code>
        <div
          className="yh-quota-bar"
          role="progressbar"
          aria-valuetext={words}
          aria-label={a.name}
          aria-valuemin={0}
          aria-valuemax={a.full}
          aria-valuenow={a.used}
        >
          {bounded && <div style={{ width: part(a.used) }} />}
          {a.guaranteed !== undefined && <i className="yh-quota-guaranteed" style={{ left: part(a.guaranteed) }} />}
          {a.limit !== undefined && <i className="yh-quota-limit" style={{ left: part(a.limit) }} />}
        </div>
        <span className="yh-num">
          {text(a.used)} <em className="yh-of">/ {text(a.limit ?? a.reach ?? a.guaranteed)}</em>
        </span>
      </div>
    </Tooltip>
  );
}

interface Values {
  queueId: string;
  parentId?: string;
  weight?: number;
  guaranteed: string[];
  borrowable: string[];
  limit: string[];
}

const typedOf = (amounts: Record<string, string>) => Object.entries(amounts).map(([k, v]) => `${k}=${v}`);
// "guaranteed.cpu" is shown where the amounts are typed.
const queueField = (path: FieldPath) => path.slice(0, 1);

function QueueForm({ queue: q, all, onDone }: { queue?: Queue; all: Queue[]; onDone: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { queues } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "queue", queueField);
  const below = q ? within(all, q.queueId) : new Set<string>();
  const done = async () => {
    await client.invalidateQueries({ queryKey: ["queues"] });
    onDone();
  };
  const save = useMutation({
    mutationFn: (v: Values) => {
      const queueId = q?.queueId ?? v.queueId.trim();
      const queue = {
        queueId,
        parentId: v.parentId ?? "",
        weight: BigInt(v.weight ?? 1),
        guaranteed: typedAmounts(v.guaranteed) ?? {},
        borrowable: typedAmounts(v.borrowable) ?? {},
        limit: typedAmounts(v.limit) ?? {},
      };
      return queues.setQueue({ queueId, queue }, call());
    },
    onSuccess: async () => {
      void message.success(t("queue.saved"));
      await done();
    },
    onError: errors.show,
  });
  const remove = useMutation({
    mutationFn: () => queues.deleteQueue({ queueId: q?.queueId ?? "" }, call()),
    onSuccess: done,
    onError: (e) => void message.error(messageOf(e)),
  });
  const amounts = (name: "guaranteed" | "borrowable" | "limit") => (
    <Form.Item
      name={name}
      label={t(`queue.${name}`)}
      extra={t(`queue.${name}Help`)}
      rules={[
        {
          validator: (_, texts?: string[]) =>
            typedAmounts(texts ?? []) ? Promise.resolve() : Promise.reject(new Error(t("allocation.amountsHelp"))),
        },
      ]}
    >
      <Select mode="tags" open={false} suffixIcon={null} tokenSeparators={[",", " "]} placeholder="cpu=16" />
    </Form.Item>
  );
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{
        queueId: q?.queueId ?? "",
        parentId: q?.parentId || undefined,
        weight: Number(q?.weight || 1n),
        guaranteed: typedOf(q?.guaranteed ?? {}),
        borrowable: typedOf(q?.borrowable ?? {}),
        limit: typedOf(q?.limit ?? {}),
      }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      <Form.Item
        name="queueId"
        label={t("queue.id")}
        extra={t("queue.idHelp")}
        rules={[
          { required: true, whitespace: true, message: t("form.required") },
          { max: 32, message: t("form.max", { count: 32 }) },
        ]}
      >
        <Input disabled={q !== undefined} autoFocus={!q} autoComplete="off" />
      </Form.Item>
      <div className="yh-cols-2">
        <Form.Item name="parentId" label={t("queue.parent")}>
          <Select
            allowClear
            placeholder={t("queue.top")}
            options={all.filter((x) => !below.has(x.queueId)).map((x) => ({ value: x.queueId, label: x.queueId }))}
          />
        </Form.Item>
        <Form.Item name="weight" label={t("queue.weight")} extra={t("queue.weightHelp")}>
          <InputNumber min={1} max={1_000_000} precision={0} />
        </Form.Item>
      </div>
      {amounts("guaranteed")}
      {amounts("borrowable")}
      {amounts("limit")}
      <div className="yh-row">
        <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save-queue">
          {t("common.save")}
        </Button>
        {q && (
          <ConfirmButton
            title={t("queue.deleteTitle", { id: q.queueId })}
            content={t("queue.deleteHelp")}
            act={() => remove.mutateAsync()}
            pending={remove.isPending}
          />
        )}
      </div>
    </Form>
  );
}

const WINDOWS = [60, 300, 3600, 86_400] as const;

function Stats() {
  const { t } = useTranslation();
  const { scheduler } = useClients();
  const [seconds, setSeconds] = useState<number>(300);
  const stats = useQuery({
    queryKey: ["scheduling-stats", seconds],
    queryFn: ({ signal }) => scheduler.getSchedulingStats({ windowSeconds: BigInt(seconds) }, call(signal)),
    refetchInterval: 3000,
    placeholderData: (before) => before,
  });
  return (
    <div className="yh-pad">
      <Radio.Group
        value={seconds}
        optionType="button"
        aria-label={t("chart.window")}
        onChange={(e) => setSeconds(e.target.value as number)}
        options={WINDOWS.map((w) => ({ value: w, label: t(`queue.windows.${w}`) }))}
      />
      <Loaded query={stats} rows={5}>
        {(s) => {
          const w = s.window;
          const rows = [
            {
              key: "window",
              name: t("queue.inWindow"),
              jobs: w?.jobsScheduled ?? 0n,
              replicas: w?.replicasPlaced ?? 0n,
              p50: w?.schedulingP50Microseconds ?? 0n,
              p95: w?.schedulingP95Microseconds ?? 0n,
              p99: w?.schedulingP99Microseconds ?? 0n,
              rate: w?.throughputPerSecond ?? 0,
            },
            {
              key: "since",
              name: t("queue.inAll"),
              jobs: s.jobsScheduled,
              replicas: s.replicasPlaced,
              p50: s.schedulingP50Microseconds,
              p95: s.schedulingP95Microseconds,
              p99: s.schedulingP99Microseconds,
              rate: s.throughputPerSecond,
            },
          ];
          const time = (micros: bigint) => <span className="yh-num">{micros > 0n ? formatMillis(micros) : NONE}</span>;
          return (
            <>
              <div className="yh-facts yh-after-bars">
                <Fact label={t("queue.queued")}>
                  <span className="yh-num yh-strong" data-testid="queued">
                    {formatCount(s.queued)}
                  </span>
                </Fact>
                <Fact label={t("queue.jobsPerSecond")}>
                  <span className="yh-num">{(w?.jobsPerSecond ?? 0).toFixed(2)}</span>
                </Fact>
                <Fact label={t("queue.slowest")}>{time(w?.schedulingMaxMicroseconds ?? 0n)}</Fact>
                <Fact label={t("queue.since")}>
                  <Moment at={s.since} />
                </Fact>
              </div>
              <Table
                className="yh-after-bars"
                size="small"
                rowKey="key"
                dataSource={rows}
                pagination={false}
                scroll={{ x: 720 }}
                data-testid="scheduling-stats"
                columns={[
                  { title: t("chart.window"), dataIndex: "name" },
                  { title: t("queue.jobs"), key: "jobs", align: "right", render: (_, r) => formatCount(r.jobs) },
                  {
                    title: t("queue.replicas"),
                    key: "replicas",
                    align: "right",
                    render: (_, r) => formatCount(r.replicas),
                  },
                  { title: "T p50", key: "p50", align: "right", render: (_, r) => time(r.p50) },
                  { title: "T p95", key: "p95", align: "right", render: (_, r) => time(r.p95) },
                  { title: "T p99", key: "p99", align: "right", render: (_, r) => time(r.p99) },
                  {
                    title: t("queue.throughput"),
                    key: "rate",
                    align: "right",
                    render: (_, r) => <span className="yh-num">{r.rate > 0 ? `${formatCount(r.rate)} /s` : NONE}</span>,
                  },
                ]}
              />
              <p className="yh-muted yh-after-bars">{t("queue.statsHelp")}</p>
              <h3 className="yh-small-title">{t("queue.byTenant")}</h3>
              <ListTable
                rowKey="tenantId"
                dataSource={s.tenants}
                empty={t("queue.nothingWaits")}
                columns={[
                  { title: t("registry.tenant"), dataIndex: "tenantId" },
                  { title: t("queue.jobs"), key: "jobs", align: "right", render: (_, r) => formatCount(r.jobs) },
                  {
                    title: t("queue.replicas"),
                    key: "replicas",
                    align: "right",
                    render: (_, r) => formatCount(r.replicas),
                  },
                  { title: t("queue.oldest"), key: "oldest", render: (_, r) => <Moment at={r.oldestAt} /> },
                ]}
              />
            </>
          );
        }}
      </Loaded>
    </div>
  );
}

const ORDERS = [
  { value: QueueSettings_Order.PRIORITY, word: "priority" },
  { value: QueueSettings_Order.FAIR, word: "fair" },
  { value: QueueSettings_Order.FIRST_COME, word: "firstCome" },
] as const;

function Settings() {
  const { queues } = useClients();
  const settings = useQuery({
    queryKey: ["queue-settings"],
    queryFn: ({ signal }) => queues.getQueueSettings({}, call(signal)),
  });
  return (
    <div className="yh-pad">
      <Loaded query={settings} rows={6}>
        {(s) => <SettingsForm key={settings.dataUpdatedAt} settings={s} />}
      </Loaded>
    </div>
  );
}

interface SettingsValues {
  order: QueueSettings_Order;
  halfLife: number;
  ageing: number;
  ageingMost: number;
  backfill: boolean;
  preemptPriority: boolean;
  preemptReclaim: boolean;
}

const SETTINGS_FIELDS: Record<string, string> = {
  halfLifeSeconds: "halfLife",
  ageingSeconds: "ageing",
  ageingMost: "ageingMost",
};
const settingsField = (path: FieldPath) => [SETTINGS_FIELDS[String(path[0])] ?? String(path[0])];

function SettingsForm({ settings: s }: { settings: QueueSettings }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const { message } = App.useApp();
  const { queues } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<SettingsValues>();
  const errors = useServerErrors(form, "settings", settingsField);
  const write = can("scheduler.write");
  const save = useMutation({
    mutationFn: (v: SettingsValues) =>
      queues.setQueueSettings(
        {
          settings: {
            order: v.order,
            halfLifeSeconds: BigInt(v.halfLife ?? 0),
            ageingSeconds: BigInt(v.ageing ?? 0),
            ageingMost: BigInt(v.ageingMost ?? 0),
            backfill: v.backfill,
            preemptPriority: v.preemptPriority,
            preemptReclaim: v.preemptReclaim,
          },
        },
        call(),
      ),
    onSuccess: (answer) => {
      client.setQueryData(["queue-settings"], answer);
      void message.success(t("queue.settingsSaved"));
    },
    onError: errors.show,
  });
  const check = (name: "backfill" | "preemptPriority" | "preemptReclaim") => (
    <Form.Item name={name} valuePropName="checked" extra={t(`queue.${name}Help`)}>
      <Checkbox>{t(`queue.${name}`)}</Checkbox>
    </Form.Item>
  );
  return (
    <Form
      form={form}
      layout="vertical"
      className="yh-narrow"
      disabled={!write}
      initialValues={{
        order: s.order || QueueSettings_Order.PRIORITY,
        halfLife: Number(s.halfLifeSeconds),
        ageing: Number(s.ageingSeconds),
        ageingMost: Number(s.ageingMost),
        backfill: s.backfill,
        preemptPriority: s.preemptPriority,
        preemptReclaim: s.preemptReclaim,
      }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      <Form.Item name="order" label={t("queue.order")}>
        <Radio.Group
          className="yh-radio-lines"
          options={ORDERS.map((o) => ({ value: o.value, label: t(`queue.orders.${o.word}`) }))}
        />
      </Form.Item>
      <div className="yh-cols-2">
        <Form.Item name="halfLife" label={t("queue.halfLife")} extra={t("queue.halfLifeHelp")}>
          <InputNumber min={0} max={2_592_000} precision={0} />
        </Form.Item>
        <span />
        <Form.Item name="ageing" label={t("queue.ageing")} extra={t("queue.ageingHelp")}>
          <InputNumber min={0} max={2_592_000} precision={0} />
        </Form.Item>
        <Form.Item name="ageingMost" label={t("queue.ageingMost")} extra={t("queue.ageingMostHelp")}>
          <InputNumber min={0} precision={0} />
        </Form.Item>
      </div>
      {check("backfill")}
      {check("preemptPriority")}
      {check("preemptReclaim")}
      {write && (
        <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save-settings">
          {t("common.save")}
        </Button>
      )}
    </Form>
  );
}
