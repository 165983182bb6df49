// Budgets: what work may cost in a period, and what is spent of it.
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  App,
  Button,
  DatePicker,
  Drawer,
  Form,
  Input,
  InputNumber,
  Progress,
  Select,
  type TableColumnsType,
} from "antd";
import dayjs, { type Dayjs } from "dayjs";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { CreateButton, Loaded, Moment } from "../../components/bits";
import { ConfirmButton } from "../../components/ConfirmButton";
import { ListTable } from "../../components/Pager";
import { useServerErrors } from "../../components/useServerErrors";
import { type Budget, Budget_Action, Budget_Period } from "../../gen/yunhe/budgets/v1/budgets_pb";
import { ACTIONS, budgetShare, microsOf, moneyOf, PERIODS, yuanOf } from "../../lib/budgets";
import type { FieldPath } from "../../lib/errors";
import { messageOf } from "../../lib/errors";
import { NONE } from "../../lib/format";
import { useClients, useSession } from "../../session";

const EVERY_MS = 5000;

export function Budgets() {
  const { t } = useTranslation();
  const { budgets } = useClients();
  const { can } = useSession();
  const [open, setOpen] = useState<Budget | "new">();
  const list = useQuery({
    queryKey: ["budgets"],
    queryFn: async ({ signal }) => (await budgets.listBudgets({}, call(signal))).budgets,
    refetchInterval: EVERY_MS,
  });
  const write = can("scheduler.write");
  const money = (micros: bigint) => <span className="yh-num">{moneyOf(micros)}</span>;
  const columns: TableColumnsType<Budget> = [
    {
      title: t("budget.budget"),
      key: "budget",
      width: 180,
      ellipsis: true,
      render: (_, b) =>
        write ? (
          <Button type="link" className="yh-link-cell yh-inline" onClick={() => setOpen(b)}>
            {b.budgetId}
          </Button>
        ) : (
          <b>{b.budgetId}</b>
        ),
    },
    {
      title: t("budget.of"),
      key: "of",
      render: (_, b) => {
        const of = [
          b.tenantId && `${t("registry.tenant")} ${b.tenantId}`,
          b.userId && `${t("budget.user")} ${b.userId}`,
          b.project && `${t("budget.project")} ${b.project}`,
        ].filter(Boolean);
        return of.length > 0 ? of.join(" · ") : t("budget.everybody");
      },
    },
    { title: t("budget.amount"), key: "amount", width: 120, align: "right", render: (_, b) => money(b.amountMicros) },
    {
      title: t("budget.period"),
      key: "period",
      width: 100,
      render: (_, b) => t(`budget.periods.${PERIODS.find((p) => p.value === b.period)?.word ?? "month"}`),
    },
    {
      title: t("budget.spent"),
      key: "spent",
      width: 220,
      render: (_, b) => (
        <Progress
          percent={Math.min(100, budgetShare(b))}
          status={b.reachedPercent === 100 ? "exception" : "normal"}
          size="small"
          format={() => `${moneyOf(b.spentMicros)} (${budgetShare(b).toFixed(1)} %)`}
          aria-label={t("budget.spent")}
        />
      ),
    },
    {
      title: t("budget.committed"),
      key: "committed",
      width: 120,
      align: "right",
      render: (_, b) => money(b.committedMicros),
    },
    {
      title: t("budget.action"),
      key: "action",
      width: 130,
      render: (_, b) => t(`budget.actions.${ACTIONS.find((a) => a.value === b.action)?.word ?? "hold"}`),
    },
    {
      title: t("budget.until"),
      key: "until",
      width: 132,
      render: (_, b) => (b.periodEnd ? <Moment at={b.periodEnd} /> : <span className="yh-none">{NONE}</span>),
    },
  ];
  return (
    <>
      {write && (
        <div className="yh-tab-actions">
          <CreateButton text={t("budget.create")} onClick={() => setOpen("new")} testId="new-budget" />
        </div>
      )}
      <Loaded query={list} rows={5}>
        {(data) => (
          <ListTable
            rowKey="budgetId"
            columns={columns}
            dataSource={data}
            tableLayout="fixed"
            scroll={{ x: 1180 }}
            pageSize={50}
            data-testid="budgets"
            empty={t("budget.none")}
          />
        )}
      </Loaded>
      <Drawer
        open={open !== undefined}
        onClose={() => setOpen(undefined)}
        size={560}
        title={open === "new" ? t("budget.create") : open?.budgetId}
        destroyOnHidden
      >
        {open && <BudgetForm budget={open === "new" ? undefined : open} onDone={() => setOpen(undefined)} />}
      </Drawer>
    </>
  );
}

interface Values {
  budgetId: string;
  tenantId: string;
  userId: string;
  project: string;
  amount: string;
  period: Budget_Period;
  timeZone: string;
  startAt?: Dayjs | null;
  warn: string[];
  action: Budget_Action;
  grace: number;
}

const FIELDS: Record<string, string> = { amountMicros: "amount", warnPercents: "warn", graceSeconds: "grace" };
// "warnPercents.1" is shown where the percents are typed.
const budgetField = (path: FieldPath) => [FIELDS[String(path[0])] ?? String(path[0])];

function BudgetForm({ budget: b, onDone }: { budget?: Budget; onDone: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { budgets } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "budget", budgetField);
  const period = Form.useWatch("period", form);
  const action = Form.useWatch("action", form);
  const done = async () => {
    await client.invalidateQueries({ queryKey: ["budgets"] });
    onDone();
  };
  const save = useMutation({
    mutationFn: (v: Values) => {
      const budgetId = b?.budgetId ?? v.budgetId.trim();
      const budget = {
        tenantId: v.tenantId.trim(),
        userId: v.userId.trim(),
        project: v.project.trim(),
        amountMicros: microsOf(v.amount) ?? 0n,
        period: v.period,
        timeZone: v.timeZone.trim(),
        warnPercents: v.warn.map(Number),
        action: v.action,
        graceSeconds: v.action === Budget_Action.STOP ? BigInt(v.grace ?? 0) : 0n,
        ...(v.period === Budget_Period.ONCE && v.startAt ? { startAt: timestampFromDate(v.startAt.toDate()) } : {}),
      };
      return budgets.setBudget({ budgetId, budget }, call());
    },
    onSuccess: async () => {
      void message.success(t("budget.saved"));
      await done();
    },
    onError: errors.show,
  });
  const remove = useMutation({
    mutationFn: () => budgets.deleteBudget({ budgetId: b?.budgetId ?? "" }, call()),
    onSuccess: done,
    onError: (e) => void message.error(messageOf(e)),
  });
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{
        budgetId: b?.budgetId ?? "",
        tenantId: b?.tenantId ?? "",
        userId: b?.userId ?? "",
        project: b?.project ?? "",
        amount: b ? yuanOf(b.amountMicros) : "",
        period: b?.period || Budget_Period.MONTH,
        timeZone: b?.timeZone ?? Intl.DateTimeFormat().resolvedOptions().timeZone,
        startAt: b?.startAt ? dayjs(timestampDate(b.startAt)) : null,
        warn: (b?.warnPercents ?? [80]).map(String),
        action: b?.action || Budget_Action.HOLD,
        grace: Number(b?.graceSeconds ?? 0n),
      }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      <Form.Item
        name="budgetId"
        label={t("queue.id")}
        rules={[
          { required: true, whitespace: true, message: t("form.required") },
          { max: 32, message: t("form.max", { count: 32 }) },
        ]}
      >
        <Input disabled={b !== undefined} autoFocus={!b} autoComplete="off" />
      </Form.Item>
      <div className="yh-cols-2">
        <Form.Item name="tenantId" label={t("registry.tenant")} extra={t("budget.tenantHelp")}>
          <Input autoComplete="off" />
        </Form.Item>
        <Form.Item name="userId" label={t("budget.user")} extra={t("budget.userHelp")}>
          <Input autoComplete="off" />
        </Form.Item>
        <Form.Item name="project" label={t("budget.project")} extra={t("budget.projectHelp")}>
          <Input autoComplete="off" />
        </Form.Item>
        <Form.Item
          name="amount"
          label={t("budget.amount")}
          extra={t("budget.amountHelp")}
          rules={[
            {
              validator: (_, text: string) =>
                microsOf(text) ? Promise.resolve() : Promise.reject(new Error(t("budget.amountHelp"))),
            },
          ]}
        >
          <Input autoComplete="off" inputMode="decimal" />
        </Form.Item>
        <Form.Item name="period" label={t("budget.period")}>
          <Select options={PERIODS.map((p) => ({ value: p.value, label: t(`budget.periods.${p.word}`) }))} />
        </Form.Item>
        {period === Budget_Period.ONCE ? (
          <Form.Item name="startAt" label={t("budget.startAt")} extra={t("budget.startAtHelp")}>
            <DatePicker showTime />
          </Form.Item>
        ) : (
          <Form.Item name="timeZone" label={t("budget.timeZone")} extra={t("budget.timeZoneHelp")}>
            <Input autoComplete="off" />
          </Form.Item>
        )}
        <Form.Item name="action" label={t("budget.action")} extra={t("budget.actionHelp")}>
          <Select options={ACTIONS.map((a) => ({ value: a.value, label: t(`budget.actions.${a.word}`) }))} />
        </Form.Item>
        {action === Budget_Action.STOP && (
          <Form.Item name="grace" label={t("budget.grace")} extra={t("budget.graceHelp")}>
            <InputNumber min={0} max={604_800} precision={0} />
          </Form.Item>
        )}
      </div>
      <Form.Item
        name="warn"
        label={t("budget.warn")}
        extra={t("budget.warnHelp")}
        rules={[
          {
            validator: (_, texts?: string[]) =>
              (texts ?? []).every((x) => /^[1-9][0-9]?$/.test(x))
                ? Promise.resolve()
                : Promise.reject(new Error(t("budget.warnHelp"))),
          },
        ]}
      >
        <Select mode="tags" open={false} suffixIcon={null} tokenSeparators={[",", " "]} placeholder="80" />
      </Form.Item>
      <div className="yh-row">
        <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save-budget">
          {t("common.save")}
        </Button>
        {b && (
          <ConfirmButton
            title={t("budget.deleteTitle", { id: b.budgetId })}
            content={t("budget.deleteHelp")}
            act={() => remove.mutateAsync()}
            pending={remove.isPending}
          />
        )}
      </div>
    </Form>
  );
}
