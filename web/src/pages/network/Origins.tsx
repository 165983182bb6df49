// Origins: where users are, and whose jobs come from there.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Drawer, Form, Input, InputNumber, Popconfirm, Select, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call } from "../../api";
import { CreateButton, Moment } from "../../components/bits";
import { PagedTable, usePaged } from "../../components/Pager";
import { useServerErrors } from "../../components/useServerErrors";
import type { Origin } from "../../gen/yunhe/network/v1/network_pb";
import { messageOf } from "../../lib/errors";
import { NONE } from "../../lib/format";
import { degrees, millionths } from "../../lib/network";
import { useTenants, useUsers } from "../../queries";
import { useClients, useSession } from "../../session";

export function Origins() {
  const { t } = useTranslation();
  const { network } = useClients();
  const { can } = useSession();
  const { message } = App.useApp();
  const client = useQueryClient();
  const [open, setOpen] = useState<Origin | "new">();
  const write = can("registry.write");
  const paged = usePaged({
    key: ["network", "origins"],
    everyMs: 10_000,
    fetchPage: async (pageToken, signal) => {
      const res = await network.listOrigins({ pageSize: 50, pageToken }, call(signal));
      return { items: res.origins, nextPageToken: res.nextPageToken };
    },
  });
  const remove = useMutation({
    mutationFn: (originId: string) => network.deleteOrigin({ originId }, call()),
    onSuccess: async () => {
      void message.success(t("network.deleted"));
      await client.invalidateQueries({ queryKey: ["network"] });
    },
    onError: (e) => void message.error(messageOf(e)),
  });
  const columns: TableColumnsType<Origin> = [
    {
      title: t("network.origin"),
      key: "origin",
      width: 220,
      ellipsis: true,
      render: (_, o) => (
        <Link to={`/network?tab=paths&end=${encodeURIComponent(`origin:${o.originId}`)}`} className="yh-job-link">
          <b>{o.name || o.originId}</b>
          <small>{o.originId}</small>
        </Link>
      ),
    },
    { title: t("network.region"), key: "region", width: 140, ellipsis: true, render: (_, o) => o.region || NONE },
    {
      title: t("network.place"),
      key: "place",
      width: 180,
      render: (_, o) =>
        o.longitude === undefined || o.latitude === undefined ? (
          NONE
        ) : (
          <span className="yh-num">
            {degrees(o.longitude).toFixed(4)}°, {degrees(o.latitude).toFixed(4)}°
          </span>
        ),
    },
    {
      title: t("network.tenants"),
      key: "tenants",
      width: 200,
      ellipsis: true,
      render: (_, o) => o.tenantIds.join(", ") || NONE,
    },
    {
      title: t("network.users"),
      key: "users",
      width: 200,
      ellipsis: true,
      render: (_, o) => o.userIds.join(", ") || NONE,
    },
    { title: t("common.updated"), key: "updated", width: 132, render: (_, o) => <Moment at={o.updatedAt} /> },
    ...(write
      ? [
          {
            key: "actions",
            width: 170,
            align: "right" as const,
            render: (_: unknown, o: Origin) => (
              <div className="yh-row yh-row-end">
                <Button size="small" onClick={() => setOpen(o)}>
                  {t("registry.edit")}
                </Button>
                <Popconfirm
                  title={t("network.deleteTitle", { name: o.name || o.originId })}
                  description={t("network.deleteHelp")}
                  okText={t("common.delete")}
                  okButtonProps={{ danger: true }}
                  onConfirm={() => remove.mutateAsync(o.originId).catch(() => undefined)}
                >
                  <Button size="small" danger>
                    {t("common.delete")}
                  </Button>
                </Popconfirm>
              </div>
            ),
          },
        ]
      : []),
  ];
  return (
    <>
      {write && (
        <div className="yh-tab-actions">
          <CreateButton text={t("network.newOrigin")} onClick={() => setOpen("new")} testId="new-origin" />
        </div>
      )}
      <PagedTable
        paged={paged}
        rowKey="originId"
        columns={columns}
        scroll={{ x: write ? 1240 : 1070 }}
        data-testid="origins"
        empty={t("network.noOrigins")}
      />
      <Drawer
        open={open !== undefined}
        onClose={() => setOpen(undefined)}
        size={560}
        title={open === "new" ? t("network.newOrigin") : open?.originId}
        destroyOnHidden
      >
        {open && <OriginForm origin={open === "new" ? undefined : open} onDone={() => setOpen(undefined)} />}
      </Drawer>
    </>
  );
}

interface Values {
  originId: string;
  name?: string;
  region?: string;
  longitude?: number | null;
  latitude?: number | null;
  tenantIds?: string[];
  userIds?: string[];
}

function OriginForm({ origin, onDone }: { origin?: Origin; onDone: () => void }) {
  const { t } = useTranslation();
  const { network } = useClients();
  const { message } = App.useApp();
  const client = useQueryClient();
  const tenants = useTenants();
  const users = useUsers();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "origin");
  const coordinate = (v: number | null | undefined) => (v === null || v === undefined ? undefined : millionths(v));
  const save = useMutation({
    mutationFn: (v: Values) =>
      network.setOrigin(
        {
          origin: {
            originId: origin?.originId ?? v.originId.trim(),
            name: v.name?.trim() ?? "",
            region: v.region?.trim() ?? "",
            longitude: coordinate(v.longitude),
            latitude: coordinate(v.latitude),
            tenantIds: v.tenantIds ?? [],
            userIds: v.userIds ?? [],
          },
        },
        call(),
      ),
    onSuccess: async () => {
      void message.success(t("network.originSaved"));
      await client.invalidateQueries({ queryKey: ["network"] });
      onDone();
    },
    onError: errors.show,
  });
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{
        originId: origin?.originId,
        name: origin?.name ?? "",
        region: origin?.region ?? "",
        longitude: origin?.longitude === undefined ? undefined : degrees(origin.longitude),
        latitude: origin?.latitude === undefined ? undefined : degrees(origin.latitude),
        tenantIds: origin?.tenantIds ?? [],
        userIds: origin?.userIds ?? [],
      }}
      scrollToFirstError={{ block: "center", focus: true }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      <div className="yh-cols-2">
        <Form.Item
          name="originId"
          label={t("registry.id")}
          rules={[
            { required: true, message: t("form.required") },
            { max: 32, message: t("form.max", { count: 32 }) },
          ]}
        >
          <Input disabled={origin !== undefined} autoFocus={!origin} autoComplete="off" />
        </Form.Item>
        <Form.Item name="name" label={t("registry.name")}>
          <Input maxLength={128} autoComplete="off" />
        </Form.Item>
      </div>
      <Form.Item name="region" label={t("network.region")}>
        <Input maxLength={64} autoComplete="off" />
      </Form.Item>
      <div className="yh-cols-2">
        <Form.Item name="longitude" label={t("network.longitude")} extra={t("network.bothOrNeither")}>
          <InputNumber min={-180} max={180} suffix="°" />
        </Form.Item>
        <Form.Item name="latitude" label={t("network.latitude")}>
          <InputNumber min={-90} max={90} suffix="°" />
        </Form.Item>
      </div>
      <Form.Item name="tenantIds" label={t("network.tenants")} extra={t("network.tenantsHelp")}>
        <Select mode="tags" options={(tenants.data ?? []).map((x) => ({ value: x.tenantId, label: x.tenantId }))} />
      </Form.Item>
      <Form.Item name="userIds" label={t("network.users")}>
        <Select mode="tags" options={(users.data ?? []).map((x) => ({ value: x.userId, label: x.userId }))} />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save-origin">
        {t("common.save")}
      </Button>
    </Form>
  );
}
