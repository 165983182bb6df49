// The alarms of the pool: records, the rules that raise them, and how people are told.
import { Button, DatePicker, Descriptions, Modal, Segmented, Select, type TableColumnsType } from "antd";
import { type ComponentProps, useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { AlarmRules, SeverityMark } from "../../components/AlarmRules";
import { Moment } from "../../components/bits";
import { PagedTable, usePaged } from "../../components/Pager";
import { type Alarm, AlarmState, type Severity } from "../../gen/yunhe/alarms/v1/alarms_pb";
import { PoolAlarmRule_Kind } from "../../gen/yunhe/pool/v1/operation_pb";
import { alarmStateName } from "../../lib/alarms";
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
  const { poolOps } = useClients();
  const { can } = useSession();
  return (
    <AlarmRules
      queryKey={["pool"]}
      list={async (signal) => (await poolOps.listPoolAlarmRules({}, call(signal))).rules}
      set={(r) => poolOps.setPoolAlarmRule({ kind: r.kind, rule: r }, call())}
      keyOf={(r) => ruleOf(r.kind).name}
      nameOf={(r) => t(`poolops.kinds.${ruleOf(r.kind).name}`)}
      unitOf={(r) => (ruleOf(r.kind).unit === "none" ? "" : t(`poolops.units.${ruleOf(r.kind).unit}`))}
      write={can("adapters.write")}
      testId="pool-rules"
    />
  );
}
