// Volumes: files at a center that outlive the runs that use them.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Form, Input, InputNumber, Modal, Popconfirm, Select, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call } from "../api";
import { CreateButton, Moment, PageHead, Panel, Tag, UseBar } from "../components/bits";
import { PagedTable, usePaged } from "../components/Pager";
import { useServerErrors } from "../components/useServerErrors";
import { type Volume, VolumeState } from "../gen/yunhe/volumes/v1/volumes_pb";
import { messageOf } from "../lib/errors";
import { formatBytes } from "../lib/format";
import type { Tone } from "../lib/states";
import { useCenterNames, useCenters } from "../queries";
import { useClients, useSession } from "../session";

const GIB = 2 ** 30;

const STATES: Record<
  VolumeState,
  { word: "unknown" | "creating" | "ready" | "growing" | "deleting" | "lost"; tone: Tone }
> = {
  [VolumeState.UNSPECIFIED]: { word: "unknown", tone: "neutral" },
  [VolumeState.CREATING]: { word: "creating", tone: "waiting" },
  [VolumeState.READY]: { word: "ready", tone: "good" },
  [VolumeState.GROWING]: { word: "growing", tone: "active" },
  [VolumeState.DELETING]: { word: "deleting", tone: "active" },
  [VolumeState.LOST]: { word: "lost", tone: "bad" },
};

export function Volumes() {
  const { t } = useTranslation();
  const { volumes } = useClients();
  const { can } = useSession();
  const { message } = App.useApp();
  const client = useQueryClient();
  const centers = useCenters();
  const centerName = useCenterNames();
  const [centerId, setCenterId] = useState("");
  const [open, setOpen] = useState<Volume | "new">();
  const write = can("jobs.write");
  const paged = usePaged({
    key: ["volumes", centerId],
    everyMs: 5000,
    fetchPage: async (pageToken, signal) => {
      const res = await volumes.listVolumes({ pageSize: 50, pageToken, aiCenterId: centerId }, call(signal));
      return { items: res.volumes, nextPageToken: res.nextPageToken };
    },
  });
  const remove = useMutation({
    mutationFn: (volume: string) => volumes.deleteVolume({ volume }, call()),
    onSuccess: () => client.invalidateQueries({ queryKey: ["volumes"] }),
    onError: (e) => void message.error(messageOf(e)),
  });
  const columns: TableColumnsType<Volume> = [
    {
      title: t("volume.volume"),
      key: "name",
      width: 240,
      ellipsis: true,
      render: (_, v) => (
        <span className="yh-job-link">
          <b>{v.name}</b>
          <small>{v.volumeId}</small>
        </span>
      ),
    },
    {
      title: t("registry.state"),
      key: "state",
      width: 180,
      ellipsis: true,
      render: (_, v) => (
        <span title={v.message}>
          <Tag
            tone={STATES[v.state]?.tone ?? "neutral"}
            text={t(`volume.states.${STATES[v.state]?.word ?? "unknown"}`)}
          />
          {v.message && <small className="yh-reason">{v.message}</small>}
        </span>
      ),
    },
    {
      title: t("center.name"),
      key: "center",
      width: 180,
      ellipsis: true,
      render: (_, v) => <Link to={`/centers/${encodeURIComponent(v.aiCenterId)}`}>{centerName(v.aiCenterId)}</Link>,
    },
    {
      title: t("volume.size"),
      key: "size",
      width: 210,
      render: (_, v) =>
        v.usedBytes === undefined ? (
          <span className="yh-num">{formatBytes(v.bytes || v.wantedBytes)}</span>
        ) : (
          <UseBar label={v.name} used={v.usedBytes} total={v.bytes || v.wantedBytes} format={formatBytes} />
        ),
    },
    {
      title: t("volume.enforced"),
      key: "enforced",
      width: 110,
      render: (_, v) => t(v.enforced ? "common.yes" : "common.no"),
    },
    { title: t("registry.tenant"), key: "tenant", width: 120, ellipsis: true, render: (_, v) => v.tenantId },
    { title: t("common.created"), key: "created", width: 132, render: (_, v) => <Moment at={v.createdAt} /> },
  ];
  if (write)
    columns.push({
      key: "actions",
      width: 170,
      align: "right",
      render: (_, v) => (
        <div className="yh-row yh-row-end">
          <Button size="small" onClick={() => setOpen(v)} disabled={v.state === VolumeState.DELETING}>
            {t("volume.grow")}
          </Button>
          <Popconfirm
            title={t("volume.deleteTitle", { name: v.name })}
            description={t("volume.deleteHelp")}
            okText={t("common.delete")}
            okButtonProps={{ danger: true }}
            onConfirm={() => remove.mutateAsync(v.volumeId).catch(() => undefined)}
          >
            <Button size="small" type="text" danger disabled={v.state === VolumeState.DELETING}>
              {t("common.delete")}
            </Button>
          </Popconfirm>
        </div>
      ),
    });
  return (
    <>
      <PageHead
        title={t("nav.volumes")}
        sub={t("volume.sub")}
        extra={write && <CreateButton text={t("volume.create")} onClick={() => setOpen("new")} testId="new-volume" />}
      />
      <Panel flush>
        <Form layout="inline" className="yh-filters" role="search" aria-label={t("jobs.filters")}>
          <Select
            allowClear
            showSearch={{ optionFilterProp: "label" }}
            className="yh-w-200"
            placeholder={t("jobs.anyCenter")}
            aria-label={t("center.name")}
            value={centerId || undefined}
            onChange={(c?: string) => setCenterId(c ?? "")}
            options={(centers.data ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
          />
        </Form>
        <PagedTable
          paged={paged}
          rowKey="volumeId"
          columns={columns}
          scroll={{ x: 1180 }}
          data-testid="volumes"
          empty={t("volume.none")}
        />
      </Panel>
      <Modal
        open={open !== undefined}
        onCancel={() => setOpen(undefined)}
        footer={null}
        title={open === "new" ? t("volume.create") : t("volume.growTitle", { name: open?.name ?? "" })}
        destroyOnHidden
      >
        {open && <VolumeForm volume={open === "new" ? undefined : open} onDone={() => setOpen(undefined)} />}
      </Modal>
    </>
  );
}

interface Values {
  name?: string;
  aiCenterId?: string;
  gib: number;
}

function VolumeForm({ volume: v, onDone }: { volume?: Volume; onDone: () => void }) {
  const { t } = useTranslation();
  const { volumes } = useClients();
  const client = useQueryClient();
  const centers = useCenters();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "", (path) => (path[0] === "bytes" ? ["gib"] : path));
  const save = useMutation({
    mutationFn: ({ name = "", aiCenterId = "", gib }: Values) => {
      const bytes = BigInt(Math.round(gib * GIB));
      return v
        ? volumes.growVolume({ volume: v.volumeId, bytes }, call())
        : volumes.createVolume({ name: name.trim(), aiCenterId, bytes }, call());
    },
    onSuccess: async () => {
      onDone();
      await client.invalidateQueries({ queryKey: ["volumes"] });
    },
    onError: errors.show,
  });
  const required = { required: true, message: t("form.required") };
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ gib: v ? Number(v.wantedBytes) / GIB : 1 }}
      onFinish={(values) => {
        errors.show(undefined);
        save.mutate(values);
      }}
    >
      {errors.alert}
      {!v && (
        <>
          <Form.Item
            name="name"
            label={t("form.name")}
            extra={t("volume.nameHelp")}
            rules={[required, { pattern: /^[a-z][a-z0-9-]{0,31}$/, message: t("volume.nameHelp") }]}
          >
            <Input autoFocus autoComplete="off" />
          </Form.Item>
          <Form.Item name="aiCenterId" label={t("center.name")} rules={[required]}>
            <Select
              showSearch={{ optionFilterProp: "label" }}
              options={(centers.data ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
            />
          </Form.Item>
        </>
      )}
      <Form.Item name="gib" label={t("volume.gib")} rules={[required]}>
        <InputNumber min={0.001} max={1_048_576} autoFocus={v !== undefined} />
      </Form.Item>
      <div className="yh-row">
        <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save-volume">
          {t(v ? "volume.grow" : "common.create")}
        </Button>
        <Button onClick={onDone}>{t("common.cancel")}</Button>
      </div>
    </Form>
  );
}
