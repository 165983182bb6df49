// Reservations: room promised for later, made, looked at and given back.

import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  App,
  Button,
  Checkbox,
  DatePicker,
  Descriptions,
  Drawer,
  Form,
  Input,
  InputNumber,
  Radio,
  Select,
  type TableColumnsType,
} from "antd";
import type { Dayjs } from "dayjs";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { useSearchParams } from "react-router";
import { call } from "../../api";
import { CreateButton, Loaded, Moment, Tag } from "../../components/bits";
import { ConfirmButton } from "../../components/ConfirmButton";
import { ListTable, PagedTable, usePaged } from "../../components/Pager";
import { useRequestId } from "../../components/useRequestId";
import { useServerErrors } from "../../components/useServerErrors";
import type { Occurrence, Reservation } from "../../gen/yunhe/calendar/v1/calendar_pb";
import { calendarTone, presentTime, reservationOver, reservationStateName, timeStateName } from "../../lib/calendar";
import { amountsOf, typedAmounts } from "../../lib/control";
import { messageOf } from "../../lib/errors";
import { NONE } from "../../lib/format";
import { useCenterNames, useCenters, useSpecs } from "../../queries";
import { useClients, useSession } from "../../session";

const PAGE = 50;
const EVERY_MS = 5000;

const amountsText = (amounts: Record<string, string>) =>
  amountsOf(amounts)
    .map((x) => `${x.name} ${x.text}`)
    .join(", ");

const what = (r: Reservation) =>
  r.resourceSpecId ? `${r.count.toString()} × ${r.resourceSpecId}` : amountsText(r.amounts) || NONE;

function State({ name }: { name: ReturnType<typeof timeStateName> }) {
  const { t } = useTranslation();
  return <Tag tone={calendarTone(name)} text={t(`calendar.states.${name}`)} />;
}

export function Reservations() {
  const { t } = useTranslation();
  const { calendar } = useClients();
  const { can } = useSession();
  const centerName = useCenterNames();
  const [params, setParams] = useSearchParams();
  const [making, setMaking] = useState(false);
  const shown = params.get("id") ?? "";
  const show = (id: string) =>
    setParams(id ? { tab: "reservations", id } : { tab: "reservations" }, { replace: true, preventScrollReset: true });
  const paged = usePaged({
    key: ["reservations", "list"],
    everyMs: EVERY_MS,
    fetchPage: async (pageToken, signal) => {
      const res = await calendar.listReservations({ pageSize: PAGE, pageToken }, call(signal));
      return { items: res.reservations, nextPageToken: res.nextPageToken };
    },
  });
  const columns: TableColumnsType<Reservation> = [
    {
      title: t("calendar.reservation"),
      key: "name",
      width: 240,
      ellipsis: true,
      render: (_, r) => (
        <Button type="link" className="yh-link-cell" onClick={() => show(r.reservationId)}>
          <span className="yh-job-link">
            <b>{r.name || r.reservationId}</b>
            {r.name && <small>{r.reservationId}</small>}
          </span>
        </Button>
      ),
    },
    {
      title: t("registry.state"),
      key: "state",
      width: 170,
      ellipsis: true,
      render: (_, r) => (
        <span title={r.reason}>
          <State name={reservationStateName(r.state)} />
          {r.reason && <small className="yh-reason">{r.reason}</small>}
        </span>
      ),
    },
    { title: t("allocation.what"), key: "what", width: 200, ellipsis: true, render: (_, r) => what(r) },
    {
      title: t("center.name"),
      key: "center",
      width: 170,
      ellipsis: true,
      render: (_, r) =>
        presentTime(r)
          ?.parts.map((p) => centerName(p.aiCenterId))
          .join(", "),
    },
    { title: t("registry.tenant"), key: "tenant", width: 120, ellipsis: true, dataIndex: "tenantId" },
    { title: t("calendar.from"), key: "from", width: 132, render: (_, r) => <Moment at={presentTime(r)?.startAt} /> },
    { title: t("allocation.to"), key: "to", width: 132, render: (_, r) => <Moment at={presentTime(r)?.endAt} /> },
  ];
  return (
    <>
      {can("jobs.write") && (
        <div className="yh-tab-actions">
          <CreateButton text={t("calendar.reserve")} onClick={() => setMaking(true)} testId="new-reservation" />
        </div>
      )}
      <PagedTable
        paged={paged}
        rowKey="reservationId"
        columns={columns}
        scroll={{ x: 1170 }}
        data-testid="reservations"
        empty={t("calendar.noReservations")}
      />
      <Drawer open={making} onClose={() => setMaking(false)} size={600} title={t("calendar.reserve")} destroyOnHidden>
        <Reserve
          onDone={(id) => {
            setMaking(false);
            show(id);
          }}
        />
      </Drawer>
      <Drawer open={shown !== ""} onClose={() => show("")} size={720} title={shown} destroyOnHidden>
        {shown && <Detail id={shown} />}
      </Drawer>
    </>
  );
}

function Detail({ id }: { id: string }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { calendar } = useClients();
  const { can } = useSession();
  const client = useQueryClient();
  const centerName = useCenterNames();
  const one = useQuery({
    queryKey: ["reservations", "one", id],
    queryFn: ({ signal }) => calendar.getReservation({ reservationId: id }, call(signal)),
    refetchInterval: EVERY_MS,
  });
  const cancel = useMutation({
    mutationFn: () => calendar.cancelReservation({ reservationId: id, stop: true }, call()),
    onSuccess: () => client.invalidateQueries({ queryKey: ["reservations"] }),
    onError: (e) => void message.error(messageOf(e)),
  });
  const columns: TableColumnsType<Occurrence> = [
    { title: t("calendar.from"), key: "from", width: 132, render: (_, o) => <Moment at={o.startAt} /> },
    { title: t("allocation.to"), key: "to", width: 132, render: (_, o) => <Moment at={o.endAt} /> },
    { title: t("registry.state"), key: "state", width: 120, render: (_, o) => <State name={timeStateName(o.state)} /> },
    {
      title: t("center.name"),
      key: "where",
      render: (_, o) => o.parts.map((p) => `${centerName(p.aiCenterId)}: ${amountsText(p.amounts)}`).join("; "),
    },
  ];
  return (
    <Loaded query={one} rows={6}>
      {(r) => (
        <>
          <Descriptions
            size="small"
            column={1}
            items={[
              { key: "state", label: t("registry.state"), children: <State name={reservationStateName(r.state)} /> },
              { key: "reason", label: t("calendar.reason"), children: r.reason || NONE },
              { key: "what", label: t("allocation.what"), children: what(r) },
              { key: "user", label: t("allocation.user"), children: `${r.userName} (${r.tenantId})` },
              { key: "repeat", label: t("calendar.repeat"), children: r.recurrence || NONE },
              { key: "made", label: t("calendar.made"), children: <Moment at={r.createdAt} long /> },
            ]}
          />
          <ListTable rowKey="number" columns={columns} dataSource={r.occurrences} />
          {can("jobs.write") && !reservationOver(r) && (
            <ConfirmButton
              text={t("calendar.giveBack")}
              title={t("calendar.cancelTitle", { id })}
              content={t("calendar.cancelHelp")}
              act={() => cancel.mutateAsync()}
              pending={cancel.isPending}
              testId="cancel-reservation"
            />
          )}
        </>
      )}
    </Loaded>
  );
}

interface Values {
  name?: string;
  by: "spec" | "amounts";
  resourceSpecId?: string;
  count?: number;
  amounts?: string[];
  aiCenterIds?: string[];
  startAt?: Dayjs;
  endAt?: Dayjs;
  recurrence?: string;
  timeZone?: string;
  preempt?: boolean;
}

function Reserve({ onDone }: { onDone: (id: string) => void }) {
  const { t } = useTranslation();
  const { calendar } = useClients();
  const { can } = useSession();
  const client = useQueryClient();
  const specs = useSpecs();
  const centers = useCenters();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "");
  const by = Form.useWatch("by", form) ?? "spec";
  const requestId = useRequestId();
  const reserve = useMutation({
    mutationFn: (v: Values) => {
      const body = {
        name: v.name?.trim() ?? "",
        resourceSpecId: v.by === "spec" ? (v.resourceSpecId ?? "") : "",
        count: v.by === "spec" ? BigInt(v.count ?? 0) : 0n,
        amounts: v.by === "amounts" ? (typedAmounts(v.amounts ?? []) ?? {}) : {},
        aiCenterIds: v.aiCenterIds ?? [],
        startAt: v.startAt && timestampFromMs(v.startAt.valueOf()),
        endAt: v.endAt && timestampFromMs(v.endAt.valueOf()),
        recurrence: v.recurrence?.trim() ?? "",
        timeZone: v.recurrence ? (v.timeZone?.trim() ?? "") : "",
        preempt: v.preempt ?? false,
      };
      return calendar.createReservation({ ...body, requestId: requestId.of(body) }, call());
    },
    onSuccess: async (r) => {
      requestId.done();
      await client.invalidateQueries({ queryKey: ["reservations"] });
      onDone(r.reservationId);
    },
    onError: errors.show,
  });
  const required = [{ required: true, message: t("form.required") }];
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ by: "spec", count: 1, timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone }}
      scrollToFirstError={{ block: "center", focus: true }}
      onFinish={(v) => {
        errors.show(undefined);
        reserve.mutate(v);
      }}
    >
      {errors.alert}
      <p className="yh-help">{t("calendar.reserveHelp")}</p>
      <Form.Item name="name" label={t("allocation.name")}>
        <Input maxLength={63} autoFocus autoComplete="off" />
      </Form.Item>
      <Form.Item name="by" label={t("allocation.what")}>
        <Radio.Group
          options={[
            { value: "spec", label: t("allocation.bySpec") },
            { value: "amounts", label: t("calendar.byAmounts") },
          ]}
        />
      </Form.Item>
      {by === "spec" ? (
        <div className="yh-cols-2">
          <Form.Item name="resourceSpecId" label={t("allocation.spec")} rules={required}>
            <Select
              showSearch={{ optionFilterProp: "label" }}
              options={(specs.data ?? []).map((s) => ({ value: s.resourceSpecId, label: s.resourceSpecId }))}
            />
          </Form.Item>
          <Form.Item name="count" label={t("allocation.count")} rules={required}>
            <InputNumber min={1} max={100_000} precision={0} />
          </Form.Item>
        </div>
      ) : (
        <Form.Item
          name="amounts"
          label={t("allocation.amounts")}
          extra={t("allocation.amountsHelp")}
          rules={[
            ...required,
            {
              validator: (_, texts?: string[]) =>
                typedAmounts(texts ?? []) ? Promise.resolve() : Promise.reject(new Error(t("allocation.amountsHelp"))),
            },
          ]}
        >
          <Select mode="tags" open={false} suffixIcon={null} tokenSeparators={[",", " "]} placeholder="gpu=8" />
        </Form.Item>
      )}
      <Form.Item name="aiCenterIds" label={t("center.name")}>
        <Select
          mode="multiple"
          allowClear
          showSearch={{ optionFilterProp: "label" }}
          placeholder={t("allocation.anywhere")}
          options={(centers.data ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
        />
      </Form.Item>
      <div className="yh-cols-2">
        <Form.Item name="startAt" label={t("calendar.from")} extra={t("allocation.startHelp")}>
          <DatePicker showTime className="yh-wide" />
        </Form.Item>
        <Form.Item name="endAt" label={t("allocation.to")} rules={required}>
          <DatePicker showTime className="yh-wide" />
        </Form.Item>
        <Form.Item name="recurrence" label={t("calendar.repeat")} extra={t("calendar.repeatHelp")}>
          <Input autoComplete="off" placeholder="FREQ=WEEKLY;COUNT=4" />
        </Form.Item>
        <Form.Item name="timeZone" label={t("calendar.zone")}>
          <Input autoComplete="off" />
        </Form.Item>
      </div>
      {can("scheduler.write") && (
        <Form.Item name="preempt" valuePropName="checked">
          <Checkbox>{t("calendar.preempt")}</Checkbox>
        </Form.Item>
      )}
      <Button type="primary" htmlType="submit" loading={reserve.isPending} data-testid="reserve-send">
        {t("calendar.reserve")}
      </Button>
    </Form>
  );
}
