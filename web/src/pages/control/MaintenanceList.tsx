// Maintenance: when centers are out of use.

import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  Alert,
  App,
  Button,
  Checkbox,
  DatePicker,
  Drawer,
  Form,
  Input,
  InputNumber,
  Radio,
  Select,
  type TableColumnsType,
} from "antd";
import type { Dayjs } from "dayjs";
import type { TFunction } from "i18next";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call } from "../../api";
import { CreateButton, Moment, Tag } from "../../components/bits";
import { ConfirmButton } from "../../components/ConfirmButton";
import { PagedTable, usePaged } from "../../components/Pager";
import { useServerErrors } from "../../components/useServerErrors";
import { type Maintenance, Maintenance_Runs, Maintenance_State } from "../../gen/yunhe/calendar/v1/calendar_pb";
import { calendarTone, maintenanceStateName, runsName } from "../../lib/calendar";
import { messageOf } from "../../lib/errors";
import { formatUTC, millis } from "../../lib/format";
import { useCenterNames, useCenters } from "../../queries";
import { useClients, useSession } from "../../session";

const PAGE = 50;
const EVERY_MS = 5000;

export function MaintenanceList() {
  const { t } = useTranslation();
  const { calendar } = useClients();
  const { can } = useSession();
  const { message } = App.useApp();
  const client = useQueryClient();
  const centerName = useCenterNames();
  const [planning, setPlanning] = useState(false);
  const [all, setAll] = useState(false);
  const write = can("registry.write");
  const paged = usePaged({
    key: ["maintenance", "list", all],
    everyMs: EVERY_MS,
    fetchPage: async (pageToken, signal) => {
      const res = await calendar.listMaintenance({ pageSize: PAGE, pageToken, all }, call(signal));
      return { items: res.maintenance, nextPageToken: res.nextPageToken };
    },
  });
  const cancel = useMutation({
    mutationFn: (maintenanceId: string) => calendar.cancelMaintenance({ maintenanceId }, call()),
    onSuccess: () => client.invalidateQueries({ queryKey: ["maintenance"] }),
    onError: (e) => void message.error(messageOf(e)),
  });
  const columns: TableColumnsType<Maintenance> = [
    {
      title: t("center.name"),
      key: "center",
      width: 180,
      ellipsis: true,
      render: (_, m) => <Link to={`/centers/${encodeURIComponent(m.aiCenterId)}`}>{centerName(m.aiCenterId)}</Link>,
    },
    {
      title: t("node.total"),
      key: "nodes",
      width: 170,
      ellipsis: true,
      render: (_, m) => nodesOf(t, m),
    },
    {
      title: t("registry.state"),
      key: "state",
      width: 120,
      render: (_, m) => {
        const name = maintenanceStateName(m.state);
        return <Tag tone={calendarTone(name)} text={t(`calendar.states.${name}`)} />;
      },
    },
    {
      title: t("calendar.from"),
      key: "from",
      width: 132,
      render: (_, m) => <Moment at={m.nextStartAt ?? m.startAt} />,
    },
    { title: t("allocation.to"), key: "to", width: 132, render: (_, m) => <Moment at={m.nextEndAt ?? m.endAt} /> },
    { title: t("calendar.repeat"), key: "repeat", width: 180, ellipsis: true, dataIndex: "recurrence" },
    {
      title: t("calendar.runs"),
      key: "runs",
      width: 170,
      render: (_, m) => t(`calendar.runsKinds.${runsName(m.runs)}`),
    },
    { title: t("calendar.reason"), key: "reason", ellipsis: true, dataIndex: "reason" },
    {
      key: "cancel",
      width: 110,
      render: (_, m) =>
        write &&
        (m.state === Maintenance_State.PLANNED || m.state === Maintenance_State.UNDER_WAY) && (
          <ConfirmButton
            text={t("calendar.end")}
            title={t("calendar.endTitle", { name: centerName(m.aiCenterId) })}
            act={() => cancel.mutateAsync(m.maintenanceId)}
            small
          />
        ),
    },
  ];
  return (
    <>
      <div className="yh-tab-actions">
        <Checkbox checked={all} onChange={(e) => setAll(e.target.checked)}>
          {t("calendar.also")}
        </Checkbox>
        {write && <CreateButton text={t("calendar.plan")} onClick={() => setPlanning(true)} testId="new-maintenance" />}
      </div>
      <PagedTable
        paged={paged}
        rowKey="maintenanceId"
        columns={columns}
        scroll={{ x: 1350 }}
        data-testid="maintenance"
        empty={t("calendar.noMaintenance")}
      />
      <Drawer open={planning} onClose={() => setPlanning(false)} size={560} title={t("calendar.plan")} destroyOnHidden>
        <Plan onDone={() => setPlanning(false)} />
      </Drawer>
    </>
  );
}

/** The nodes that it is of, each with why it is not isolated although it is to be. */
const nodesOf = (t: TFunction, m: Maintenance) =>
  m.nodes.map((n) => (n.problem ? `${n.name} (${n.problem})` : n.name)).join(", ") || t("calendar.allNodes");

interface Values {
  aiCenterId: string;
  nodes?: string[];
  reason?: string;
  startAt?: Dayjs;
  endAt?: Dayjs;
  recurrence?: string;
  timeZone?: string;
  runs: "finish" | "requeue";
  noticeSeconds?: number;
}

function Plan({ onDone }: { onDone: () => void }) {
  const { t } = useTranslation();
  const { calendar } = useClients();
  const client = useQueryClient();
  const centers = useCenters();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "");
  const runs = Form.useWatch("runs", form) ?? "finish";
  const center = Form.useWatch("aiCenterId", form);
  const { registry } = useClients();
  const nodes = useQuery({
    queryKey: ["nodes", "of", center],
    queryFn: ({ signal }) => registry.listNodes({ aiCenterId: center, pageSize: 1000 }, call(signal)),
    enabled: !!center,
  });
  const plan = useMutation({
    mutationFn: (v: Values) =>
      calendar.createMaintenance(
        {
          aiCenterId: v.aiCenterId,
          nodes: v.nodes ?? [],
          reason: v.reason?.trim() ?? "",
          startAt: v.startAt && timestampFromMs(v.startAt.valueOf()),
          endAt: v.endAt && timestampFromMs(v.endAt.valueOf()),
          recurrence: v.recurrence?.trim() ?? "",
          timeZone: v.recurrence ? (v.timeZone?.trim() ?? "") : "",
          runs: v.runs === "requeue" ? Maintenance_Runs.REQUEUE : Maintenance_Runs.FINISH,
          noticeSeconds: v.runs === "requeue" ? BigInt(v.noticeSeconds ?? 0) : 0n,
        },
        call(),
      ),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ["maintenance"] });
      onDone();
    },
    onError: errors.show,
  });
  const required = [{ required: true, message: t("form.required") }];
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ runs: "finish", timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone }}
      scrollToFirstError={{ block: "center", focus: true }}
      onFinish={(v) => {
        errors.show(undefined);
        plan.mutate(v);
      }}
    >
      {errors.alert}
      <Form.Item name="aiCenterId" label={t("center.name")} rules={required}>
        <Select
          showSearch={{ optionFilterProp: "label" }}
          options={(centers.data ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
        />
      </Form.Item>
      <Form.Item name="nodes" label={t("node.total")} extra={t("calendar.nodesHelp")}>
        <Select
          mode="tags"
          tokenSeparators={[",", " "]}
          placeholder={t("calendar.allNodes")}
          options={(nodes.data?.nodes ?? []).map((n) => ({ value: n.name, label: n.name }))}
        />
      </Form.Item>
      <Form.Item name="reason" label={t("calendar.reason")}>
        <Input maxLength={255} autoComplete="off" />
      </Form.Item>
      <div className="yh-cols-2">
        <Form.Item name="startAt" label={t("calendar.from")} extra={t("allocation.startHelp")}>
          <DatePicker showTime className="yh-wide" />
        </Form.Item>
        <Form.Item name="endAt" label={t("allocation.to")} rules={required}>
          <DatePicker showTime className="yh-wide" />
        </Form.Item>
        <Form.Item name="recurrence" label={t("calendar.repeat")} extra={t("calendar.repeatHelp")}>
          <Input autoComplete="off" placeholder="FREQ=MONTHLY" />
        </Form.Item>
        <Form.Item name="timeZone" label={t("calendar.zone")}>
          <Input autoComplete="off" />
        </Form.Item>
      </div>
      <Form.Item name="runs" label={t("calendar.runs")}>
        <Radio.Group
          options={[
            { value: "finish", label: t("calendar.runsKinds.finish") },
            { value: "requeue", label: t("calendar.runsKinds.requeue") },
          ]}
        />
      </Form.Item>
      {runs === "requeue" && (
        <Form.Item name="noticeSeconds" label={t("calendar.notice")}>
          <InputNumber min={0} max={86400} precision={0} />
        </Form.Item>
      )}
      <Button type="primary" htmlType="submit" loading={plan.isPending} data-testid="maintenance-send">
        {t("calendar.plan")}
      </Button>
    </Form>
  );
}

/** What is planned for a center, or under way there. */
export function MaintenanceOf({ centerId }: { centerId: string }) {
  const { t } = useTranslation();
  const { calendar } = useClients();
  const list = useQuery({
    queryKey: ["maintenance", "of", centerId],
    queryFn: async ({ signal }) => (await calendar.listMaintenance({ aiCenterId: centerId }, call(signal))).maintenance,
    refetchInterval: 30_000,
  });
  const say = (m: Maintenance) => {
    const [from, to] = [millis(m.nextStartAt), millis(m.nextEndAt)];
    if (from === undefined || to === undefined) return "";
    const text = t(`calendar.says.${maintenanceStateName(m.state)}`, { from: formatUTC(from), to: formatUTC(to) });
    const of = m.nodes.length > 0 ? `${text} (${nodesOf(t, m)})` : text;
    return m.reason ? `${of}: ${m.reason}` : of;
  };
  return (
    <>
      {(list.data ?? []).map((m) => (
        <Alert
          key={m.maintenanceId}
          type={m.state === Maintenance_State.UNDER_WAY ? "warning" : "info"}
          showIcon
          title={say(m)}
          data-testid="center-maintenance"
        />
      ))}
    </>
  );
}
