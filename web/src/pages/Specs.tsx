import { PlusOutlined } from "@ant-design/icons";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import {
  App,
  Button,
  Checkbox,
  Drawer,
  Form,
  Input,
  InputNumber,
  Popconfirm,
  Select,
  Space,
  Table,
  type TableColumnsType,
} from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import { Fen, Loaded, Nothing, PageHead, Panel } from "../components/bits";
import { useServerErrors } from "../components/useServerErrors";
import type { Offer, Spec } from "../gen/yunhe/registry/v1/registry_pb";
import { type FieldPath, messageOf } from "../lib/errors";
import { fenToInput, NONE, parseYuan } from "../lib/format";
import { priceRange, quantityText } from "../lib/specs";
import { useCenterNames, useCenters, useSpecs } from "../queries";
import { useClients, useSession } from "../session";

export function Specs() {
  const { t } = useTranslation();
  const { can } = useSession();
  const specs = useSpecs();
  const [creating, setCreating] = useState(false);
  const { remove } = useSpecChanges();
  const write = can("registry.write");
  const columns: TableColumnsType<Spec> = [
    {
      title: t("spec.name"),
      key: "name",
      ellipsis: true,
      width: 180,
      render: (_, s) => (
        <span className="yh-job-link">
          <b>{s.resourceSpecName || s.resourceSpecId}</b>
          <small>{s.resourceSpecId}</small>
        </span>
      ),
    },
    { title: t("spec.quantity"), key: "quantity", width: 190, render: (_, s) => quantityText(s.resourceQuantity) },
    {
      title: t("spec.serviceType"),
      key: "service",
      width: 150,
      render: (_, s) => <ServiceTypes value={s.serviceType} />,
    },
    { title: t("spec.listPrice"), key: "price", width: 110, align: "right", render: (_, s) => <Fen fen={s.price} /> },
    {
      title: t("spec.offerPrice"),
      key: "offers",
      width: 150,
      align: "right",
      render: (_, s) => <span className="yh-num">{s.offers.length > 0 ? priceRange(s) : NONE}</span>,
    },
    {
      title: t("spec.centers"),
      key: "centers",
      width: 80,
      align: "right",
      render: (_, s) => <span className="yh-num">{s.offers.length}</span>,
    },
  ];
  if (write) {
    columns.push({
      title: "",
      key: "actions",
      width: 84,
      align: "right",
      render: (_, s) => (
        <Popconfirm
          title={t("spec.deleteTitle", { id: s.resourceSpecId })}
          description={t("spec.deleteHelp")}
          okText={t("common.delete")}
          okButtonProps={{ danger: true }}
          onConfirm={() => remove.mutateAsync(s.resourceSpecId).catch(() => undefined)}
        >
          <Button size="small" type="text" danger>
            {t("common.delete")}
          </Button>
        </Popconfirm>
      ),
    });
  }
  return (
    <>
      <PageHead
        title={t("nav.specs")}
        sub={t("spec.sub")}
        extra={
          write && (
            <Button type="primary" icon={<PlusOutlined />} onClick={() => setCreating(true)}>
              {t("spec.create")}
            </Button>
          )
        }
      />
      <Panel flush>
        <Loaded query={specs} rows={6}>
          {(list) => (
            <Table
              size="small"
              rowKey="resourceSpecId"
              columns={columns}
              dataSource={list}
              tableLayout="fixed"
              scroll={{ x: 980 }}
              pagination={list.length > 100 ? { pageSize: 100, showSizeChanger: false, size: "small" } : false}
              locale={{ emptyText: <Nothing text={t("spec.none")} /> }}
              expandable={{ expandedRowRender: (s) => <Offers spec={s} write={write} /> }}
            />
          )}
        </Loaded>
      </Panel>
      <Drawer open={creating} onClose={() => setCreating(false)} size={520} title={t("spec.create")} destroyOnHidden>
        <CreateSpec onDone={() => setCreating(false)} />
      </Drawer>
    </>
  );
}

function useSpecChanges() {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { registry } = useClients();
  const client = useQueryClient();
  const done = (text: string) => {
    void message.success(text);
    return client.invalidateQueries({ queryKey: ["specs"] });
  };
  const onError = (error: unknown) => void message.error(messageOf(error));
  const remove = useMutation({
    mutationFn: (resourceSpecId: string) => registry.deleteSpec({ resourceSpecId }, call()),
    onSuccess: () => done(t("spec.deleted")),
    onError,
  });
  const offer = useMutation({
    mutationFn: (v: { resourceSpecId: string; aiCenterId: string; price: bigint }) => registry.setOffer(v, call()),
    onSuccess: () => done(t("spec.offerSet")),
    onError,
  });
  const withdraw = useMutation({
    mutationFn: (v: { resourceSpecId: string; aiCenterId: string }) => registry.deleteOffer(v, call()),
    onSuccess: () => done(t("spec.offerWithdrawn")),
    onError,
  });
  return { remove, offer, withdraw };
}

const SERVICE_TYPES = ["interactive", "batch", "streaming", "others"] as const;

function ServiceTypes({ value }: { value: string }) {
  const { t } = useTranslation();
  const parts = value.split(",").map((p) => p.trim());
  return parts
    .filter(Boolean)
    .map((p) => {
      const known = SERVICE_TYPES.find((s) => s === p);
      return known ? t(`spec.service.${known}`) : p;
    })
    .join(", ");
}

function Offers({ spec, write }: { spec: Spec; write: boolean }) {
  const { t } = useTranslation();
  const name = useCenterNames();
  const { data: centers } = useCenters();
  const { offer, withdraw } = useSpecChanges();
  const [editing, setEditing] = useState<string>();
  const [price, setPrice] = useState("");
  const [adding, setAdding] = useState<string>();
  const fen = parseYuan(price);
  const columns: TableColumnsType<Offer> = [
    { title: t("replica.center"), key: "center", render: (_, o) => name(o.aiCenterId) },
    {
      title: t("center.price"),
      key: "price",
      align: "right",
      width: 260,
      render: (_, o) =>
        editing === o.aiCenterId ? (
          <Space.Compact size="small">
            <Input
              size="small"
              autoFocus
              prefix="¥"
              aria-label={t("center.price")}
              status={fen === undefined ? "error" : undefined}
              value={price}
              onChange={(e) => setPrice(e.target.value)}
            />
            <Button
              size="small"
              type="primary"
              disabled={fen === undefined}
              loading={offer.isPending}
              onClick={() =>
                fen !== undefined &&
                offer
                  .mutateAsync({ resourceSpecId: spec.resourceSpecId, aiCenterId: o.aiCenterId, price: fen })
                  .then(() => setEditing(undefined))
                  .catch(() => undefined)
              }
            >
              {t("common.save")}
            </Button>
            <Button size="small" onClick={() => setEditing(undefined)}>
              {t("common.cancel")}
            </Button>
          </Space.Compact>
        ) : (
          <Fen fen={o.price} />
        ),
    },
  ];
  if (write) {
    columns.push({
      title: "",
      key: "actions",
      align: "right",
      width: 180,
      render: (_, o) => (
        <Space size={0}>
          <Button
            size="small"
            type="link"
            onClick={() => {
              setEditing(o.aiCenterId);
              setPrice(fenToInput(o.price));
            }}
          >
            {t("spec.changePrice")}
          </Button>
          <Popconfirm
            title={t("spec.withdrawTitle")}
            description={t("spec.withdrawHelp")}
            onConfirm={() =>
              withdraw
                .mutateAsync({ resourceSpecId: spec.resourceSpecId, aiCenterId: o.aiCenterId })
                .catch(() => undefined)
            }
          >
            <Button size="small" type="link" danger>
              {t("spec.withdraw")}
            </Button>
          </Popconfirm>
        </Space>
      ),
    });
  }
  const free = (centers ?? []).filter((c) => !spec.offers.some((o) => o.aiCenterId === c.aiCenterId));
  return (
    <div className="yh-nested">
      <Table
        size="small"
        rowKey="aiCenterId"
        columns={columns}
        dataSource={spec.offers}
        pagination={false}
        locale={{ emptyText: t("spec.noOffers") }}
      />
      {write && free.length > 0 && (
        <Space className="yh-nested-add">
          <Select
            size="small"
            className="yh-w-200"
            placeholder={t("spec.offerAt")}
            aria-label={t("spec.offerAt")}
            value={adding}
            onChange={setAdding}
            options={free.map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
          />
          <Button
            size="small"
            disabled={!adding}
            onClick={() =>
              adding &&
              offer
                .mutateAsync({ resourceSpecId: spec.resourceSpecId, aiCenterId: adding, price: spec.price })
                .then(() => setAdding(undefined))
                .catch(() => undefined)
            }
          >
            {t("spec.offer")}
          </Button>
        </Space>
      )}
    </div>
  );
}

interface SpecValues {
  resourceSpecId: string;
  resourceSpecName: string;
  cpu: number;
  memory: number;
  others?: { name: string; amount: string }[];
  serviceType: string[];
  price: string;
}

// Quantities are one map in the contract and several fields here.
function specField(path: FieldPath): FieldPath | undefined {
  if (path[0] !== "resourceQuantity") return path;
  return path[1] === "memory" ? ["memory"] : ["cpu"];
}

function CreateSpec({ onDone }: { onDone: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { registry } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<SpecValues>();
  const errors = useServerErrors(form, "spec", specField);
  const create = useMutation({
    mutationFn: (v: SpecValues) =>
      registry.createSpec(
        {
          spec: {
            resourceSpecId: v.resourceSpecId,
            resourceSpecName: v.resourceSpecName,
            resourceQuantity: {
              cpu: `${v.cpu}`,
              memory: `${v.memory}Mi`,
              ...Object.fromEntries((v.others ?? []).map((o) => [o.name, o.amount])),
            },
            serviceType: v.serviceType.join(","),
            price: parseYuan(v.price) ?? 0n,
          },
        },
        call(),
      ),
    onSuccess: async () => {
      void message.success(t("spec.created"));
      await client.invalidateQueries({ queryKey: ["specs"] });
      onDone();
    },
    onError: errors.show,
  });
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ cpu: 1, memory: 1024, serviceType: ["batch"], price: "0.10" }}
      onFinish={(v) => {
        errors.show(undefined);
        create.mutate(v);
      }}
    >
      {errors.alert}
      <Form.Item
        name="resourceSpecId"
        label={t("spec.id")}
        rules={[{ required: true }, { max: 32 }, { pattern: /^\S+$/, message: t("form.noSpaces") }]}
      >
        <Input autoFocus />
      </Form.Item>
      <Form.Item name="resourceSpecName" label={t("spec.name")} rules={[{ required: true }]}>
        <Input />
      </Form.Item>
      <div className="yh-cols-2">
        <Form.Item name="cpu" label={t("resource.cpu")} rules={[{ required: true }]}>
          <InputNumber min={0.001} step={1} suffix={t("resource.cores")} />
        </Form.Item>
        <Form.Item name="memory" label={t("resource.memory")} rules={[{ required: true }]}>
          <InputNumber min={1} precision={0} suffix="MiB" />
        </Form.Item>
      </div>
      <Form.Item label={t("spec.others")} extra={t("spec.othersHelp")}>
        <Form.List name="others">
          {(fields, { add, remove }) => (
            <>
              {fields.map(({ key, name }) => (
                <Space.Compact key={key} className="yh-pair">
                  <Form.Item name={[name, "name"]} noStyle rules={[{ required: true, message: t("form.required") }]}>
                    <Input placeholder="gpu" aria-label={t("spec.resource")} />
                  </Form.Item>
                  <Form.Item name={[name, "amount"]} noStyle rules={[{ required: true, message: t("form.required") }]}>
                    <Input placeholder="1" aria-label={t("spec.amount")} />
                  </Form.Item>
                  <Button onClick={() => remove(name)}>{t("common.remove")}</Button>
                </Space.Compact>
              ))}
              <Button size="small" onClick={() => add()} icon={<PlusOutlined />}>
                {t("common.add")}
              </Button>
            </>
          )}
        </Form.List>
      </Form.Item>
      <Form.Item name="serviceType" label={t("spec.serviceType")} rules={[{ required: true }]}>
        <Checkbox.Group options={SERVICE_TYPES.map((s) => ({ value: s, label: t(`spec.service.${s}`) }))} />
      </Form.Item>
      <Form.Item
        name="price"
        label={t("spec.listPrice")}
        rules={[
          { required: true },
          {
            validator: (_, v: string) =>
              parseYuan(v ?? "") === undefined ? Promise.reject(new Error(t("form.yuan"))) : Promise.resolve(),
          },
        ]}
      >
        <Input prefix="¥" className="yh-w-180" />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={create.isPending}>
        {t("common.create")}
      </Button>
    </Form>
  );
}
