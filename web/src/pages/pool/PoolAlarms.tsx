// The alarms of the pool: records, the rules that raise them, and how people are told.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  App,
  Button,
  DatePicker,
  Descriptions,
  Form,
  InputNumber,
  Modal,
  Segmented,
  Select,
  Switch,
  Table,
  type TableColumnsType,
} from "antd";
import { type ComponentProps, useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Loaded, Moment } from "../../components/bits";
import { PagedTable, usePaged } from "../../components/Pager";
import { useServerErrors } from "../../components/useServerErrors";
import { type Alarm, AlarmState, type Severity } from "../../gen/yunhe/alarms/v1/alarms_pb";
import { type PoolAlarmRule, PoolAlarmRule_Kind } from "../../gen/yunhe/pool/v1/operation_pb";
import { alarmStateName } from "../../lib/alarms";
import { messageOf } from "../../lib/errors";
import { formatCount, NONE } from "../../lib/format";
import { POOL_KINDS, ruleOf, severityOf, stampOf } from "../../lib/poolops";
import { useClients, useSession } from "../../session";
import { Notify } from "./Notify";

type Range = ComponentProps<typeof DatePicker.RangePicker>["value"];
type View = "records" | "rules" | "notify";

const KINDS = Object.values(PoolAlarmRule_Kind).filter((k): k is PoolAlarmRule_Kind => typeof k === "number" && k > 0);

export function PoolAlarms() {
  const { t } = useTranslation();
  const { can } = useSession();
  const [view, setView] = useState<View>("records");
  const options: { value: View; label: string }[] = [
    { value: "records", label: t("poolops.records") },
    { value: "rules", label: t("poolops.rules") },
  ];
  if (can("adapters.write")) options.push({ value: "notify", label: t("poolops.notify") });
  return (
    <>
      <div className="yh-tab-actions">
        <Segmented value={view} onChange={setView} options={options} />
      </div>
      {view === "records" && <Records />}
      {view === "rules" && <Rules />}
      {view === "notify" && <Notify />}
    </>
  );
}

export function SeverityMark({ severity }: { severity: number }) {
  const { t } = useTranslation();
  const name = severityOf(severity);
  return <span className={`yh-severity yh-severity-${name}`}>{t(`alarm.severities.${name}`)}</span>;
}

function Records() {
  const { t } = useTranslation();
  const { alarms } = useClients();
  const [open, setOpen] = useState<"open" | "all">("open");
  const [kind, setKind] = useState<PoolAlarmRule_Kind>();
  const [severity, setSeverity] = useState<Severity>();
  const [range, setRange] = useState<Range>();
  const [chosen, setChosen] = useState<Alarm>();
  const from = range?.[0]?.valueOf();
  const to = range?.[1]?.valueOf();
  const paged = usePaged({
    key: ["pool", "alarms", open, kind, severity, from, to],
    everyMs: 3000,
    fetchPage: async (pageToken, signal) => {
      const res = await alarms.listAlarms(
        {
          pageSize: 50,
          pageToken,
          kinds: (kind === undefined ? KINDS : [kind]).map((k) => k + POOL_KINDS),
          states: open === "open" ? [] : [AlarmState.ACTIVE, AlarmState.ACKNOWLEDGED, AlarmState.CLEARED],
          severity: severity ?? 0,
          from: stampOf(from),
          to: stampOf(to),
        },
        call(signal),
      );
      return { items: res.alarms, nextPageToken: res.nextPageToken };
    },
  });
  const columns: TableColumnsType<Alarm> = [
    { title: t("poolops.time"), key: "first", width: 150, render: (_, a) => <Moment at={a.firstAt} /> },
    {
      title: t("poolops.severity"),
      key: "severity",
      width: 110,
      render: (_, a) => <SeverityMark severity={a.severity} />,
    },
    {
      title: t("poolops.rule"),
      key: "rule",
      width: 180,
      render: (_, a) => t(`poolops.kinds.${ruleOf(a.kind - POOL_KINDS).name}`),
    },
    { title: t("poolops.node"), key: "node", width: 120, ellipsis: true, render: (_, a) => a.node || NONE },
    {
      title: t("poolops.message"),
      key: "message",
      ellipsis: true,
      render: (_, a) => (
        <Button type="link" size="small" className="yh-flush" onClick={() => setChosen(a)}>
          {a.message}
        </Button>
      ),
    },
    {
      title: t("alarm.state"),
      key: "state",
      width: 130,
      render: (_, a) => t(`alarm.states.${alarmStateName(a.state)}`),
    },
  ];
  return (
    <>
      <div className="yh-tab-actions">
        <Segmented
          value={open}
          onChange={setOpen}
          options={[
            { value: "open", label: t("poolops.open") },
            { value: "all", label: t("poolops.all") },
          ]}
        />
        <Select
          allowClear
          className="yh-w-180"
          placeholder={t("poolops.rule")}
          aria-label={t("poolops.rule")}
          value={kind}
          onChange={(v?: PoolAlarmRule_Kind) => setKind(v)}
          options={KINDS.map((value) => ({ value, label: t(`poolops.kinds.${ruleOf(value).name}`) }))}
        />
        <Select
          allowClear
          className="yh-w-180"
          placeholder={t("poolops.anySeverity")}
          aria-label={t("poolops.severity")}
          value={severity}
          onChange={(v?: Severity) => setSeverity(v)}
          options={[1, 2, 3].map((value) => ({
            value,
            label: t("poolops.atLeast", { level: t(`alarm.severities.${severityOf(value)}`) }),
          }))}
        />
        <DatePicker.RangePicker
          showTime={{ format: "HH:mm:ss" }}
          allowEmpty={[true, true]}
          placeholder={[t("poolops.from"), t("poolops.to")]}
          value={range}
          onChange={setRange}
        />
      </div>
      <PagedTable
        paged={paged}
        rowKey="alarmId"
        columns={columns}
        scroll={{ x: 1100 }}
        data-testid="pool-alarms"
        empty={t("poolops.noRecords")}
      />
      <Modal open={!!chosen} onCancel={() => setChosen(undefined)} footer={null} title={chosen?.alarmId} width={720}>
        {chosen && (
          <Descriptions
            column={1}
            size="small"
            bordered
            data-testid="pool-alarm"
            items={[
              { key: "m", label: t("poolops.message"), children: chosen.message },
              { key: "s", label: t("poolops.severity"), children: <SeverityMark severity={chosen.severity} /> },
              { key: "n", label: t("poolops.node"), children: chosen.node || NONE },
              { key: "t", label: t("alarm.state"), children: t(`alarm.states.${alarmStateName(chosen.state)}`) },
              { key: "c", label: t("alarm.count"), children: formatCount(chosen.count) },
              { key: "f", label: t("alarm.first"), children: <Moment at={chosen.firstAt} /> },
              { key: "l", label: t("alarm.last"), children: <Moment at={chosen.lastAt} /> },
              {
                key: "x",
                label: t("alarm.states.cleared"),
                children: chosen.clearedAt ? <Moment at={chosen.clearedAt} /> : NONE,
              },
            ]}
          />
        )}
      </Modal>
    </>
  );
}

function Rules() {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { poolOps } = useClients();
  const { can } = useSession();
  const client = useQueryClient();
  const [edited, setEdited] = useState<PoolAlarmRule>();
  const list = useQuery({
    queryKey: ["pool", "rules"],
    queryFn: async ({ signal }) => (await poolOps.listPoolAlarmRules({}, call(signal))).rules,
  });
  const enable = useMutation({
    mutationFn: ({ rule: r, enabled }: { rule: PoolAlarmRule; enabled: boolean }) =>
      poolOps.setPoolAlarmRule(
        { kind: r.kind, rule: { kind: r.kind, enabled, threshold: r.threshold, severity: r.severity } },
        call(),
      ),
    onSuccess: () => client.invalidateQueries({ queryKey: ["pool"] }),
    onError: (e) => void message.error(messageOf(e)),
  });
  const write = can("adapters.write");
  const columns: TableColumnsType<PoolAlarmRule> = [
    { title: t("poolops.rule"), key: "rule", render: (_, r) => <b>{t(`poolops.kinds.${ruleOf(r.kind).name}`)}</b> },
    {
      title: t("poolops.enabled"),
      key: "enabled",
      width: 110,
      render: (_, r) => (
        <Switch
          size="small"
          checked={r.enabled}
          disabled={!write || enable.isPending}
          aria-label={`${t("poolops.enabled")} ${t(`poolops.kinds.${ruleOf(r.kind).name}`)}`}
          onChange={(enabled) => enable.mutate({ rule: r, enabled })}
        />
      ),
    },
    {
      title: t("poolops.threshold"),
      key: "threshold",
      width: 200,
      align: "right",
      render: (_, r) => (
        <span className="yh-num">
          {ruleOf(r.kind).unit === "none" ? NONE : `${r.threshold} ${t(`poolops.units.${ruleOf(r.kind).unit}`)}`}
        </span>
      ),
    },
    {
      title: t("poolops.severity"),
      key: "severity",
      width: 140,
      render: (_, r) => <SeverityMark severity={r.severity} />,
    },
  ];
  if (write)
    columns.push({
      key: "actions",
      width: 100,
      align: "right",
      render: (_, r) => (
        <Button size="small" onClick={() => setEdited(r)}>
          {t("poolops.edit")}
        </Button>
      ),
    });
  return (
    <Loaded query={list} rows={5}>
      {(rules) => (
        <>
          <Table
            size="small"
            rowKey={(r) => ruleOf(r.kind).name}
            columns={columns}
            dataSource={rules}
            pagination={false}
            data-testid="pool-rules"
          />
          <Modal
            open={!!edited}
            onCancel={() => setEdited(undefined)}
            footer={null}
            title={edited && t(`poolops.kinds.${ruleOf(edited.kind).name}`)}
            destroyOnHidden
          >
            {edited && <EditRule rule={edited} done={() => setEdited(undefined)} />}
          </Modal>
        </>
      )}
    </Loaded>
  );
}

interface RuleValues {
  threshold?: number;
  severity: number;
}

function EditRule({ rule, done }: { rule: PoolAlarmRule; done: () => void }) {
  const { t } = useTranslation();
  const { poolOps } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<RuleValues>();
  const errors = useServerErrors(form, "rule");
  const save = useMutation({
    mutationFn: (v: RuleValues) =>
      poolOps.setPoolAlarmRule(
        {
          kind: rule.kind,
          rule: {
            kind: rule.kind,
            enabled: rule.enabled,
            threshold: BigInt(v.threshold ?? 0),
            severity: v.severity,
          },
        },
        call(),
      ),
    onSuccess: async () => {
      done();
      await client.invalidateQueries({ queryKey: ["pool"] });
    },
    onError: errors.show,
  });
  const { unit } = ruleOf(rule.kind);
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ threshold: Number(rule.threshold), severity: rule.severity }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      {unit !== "none" && (
        <Form.Item name="threshold" label={`${t("poolops.threshold")} (${t(`poolops.units.${unit}`)})`}>
          <InputNumber min={0} precision={0} className="yh-w-200" />
        </Form.Item>
      )}
      <Form.Item name="severity" label={t("poolops.severity")}>
        <Select options={[1, 2, 3].map((value) => ({ value, label: t(`alarm.severities.${severityOf(value)}`) }))} />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save">
        {t("common.save")}
      </Button>
    </Form>
  );
}
