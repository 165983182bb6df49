import { PlusOutlined } from "@ant-design/icons";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Drawer, Form, Input, Popconfirm, Select, Table, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import { Loaded, Moment, Nothing, PageHead, Panel } from "../components/bits";
import { useServerErrors } from "../components/useServerErrors";
import type { Image } from "../gen/yunhe/registry/v1/registry_pb";
import { messageOf } from "../lib/errors";
import { NONE } from "../lib/format";
import { useCenterNames, useCenters, useImages, useSpecs } from "../queries";
import { useClients, useSession } from "../session";

export function Images() {
  const { t } = useTranslation();
  const { can } = useSession();
  const { message } = App.useApp();
  const { registry } = useClients();
  const client = useQueryClient();
  const images = useImages();
  const centerName = useCenterNames();
  const [creating, setCreating] = useState(false);
  const write = can("registry.write");
  const remove = useMutation({
    mutationFn: (imageId: string) => registry.deleteImage({ imageId }, call()),
    onSuccess: () => {
      void message.success(t("image.deleted"));
      return client.invalidateQueries({ queryKey: ["images"] });
    },
    onError: (error) => void message.error(messageOf(error)),
  });
  const columns: TableColumnsType<Image> = [
    {
      title: t("image.name"),
      key: "name",
      ellipsis: true,
      width: 220,
      render: (_, i) => (
        <span className="yh-job-link">
          <b>{i.name || i.imageId}</b>
          <small>{i.imageId}</small>
        </span>
      ),
    },
    {
      title: t("image.framework"),
      key: "framework",
      width: 180,
      ellipsis: true,
      render: (_, i) => i.framework || NONE,
    },
    { title: t("image.os"), key: "os", width: 180, ellipsis: true, render: (_, i) => i.baseOs?.baseOs || NONE },
    {
      title: t("image.specs"),
      key: "specs",
      width: 160,
      ellipsis: true,
      render: (_, i) => i.resourceSpec || t("image.anySpec"),
    },
    {
      title: t("image.centers"),
      key: "centers",
      width: 190,
      ellipsis: true,
      render: (_, i) => (i.centers.length > 0 ? i.centers.map(centerName).join(", ") : t("image.everyCenter")),
    },
    { title: t("common.updated"), key: "updated", width: 132, render: (_, i) => <Moment at={i.updatedAt} /> },
  ];
  if (write) {
    columns.push({
      title: "",
      key: "actions",
      width: 84,
      align: "right",
      render: (_, i) => (
        <Popconfirm
          title={t("image.deleteTitle", { id: i.imageId })}
          description={t("image.deleteHelp")}
          okText={t("common.delete")}
          okButtonProps={{ danger: true }}
          onConfirm={() => remove.mutateAsync(i.imageId).catch(() => undefined)}
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
        title={t("nav.images")}
        sub={t("image.sub")}
        extra={
          write && (
            <Button type="primary" icon={<PlusOutlined />} onClick={() => setCreating(true)}>
              {t("image.create")}
            </Button>
          )
        }
      />
      <Panel flush>
        <Loaded query={images} rows={6}>
          {(list) => (
            <Table
              size="small"
              rowKey="imageId"
              columns={columns}
              dataSource={list}
              tableLayout="fixed"
              scroll={{ x: 1000 }}
              pagination={list.length > 100 ? { pageSize: 100, showSizeChanger: false, size: "small" } : false}
              locale={{ emptyText: <Nothing text={t("image.none")} /> }}
            />
          )}
        </Loaded>
      </Panel>
      <Drawer open={creating} onClose={() => setCreating(false)} size={520} title={t("image.create")} destroyOnHidden>
        <CreateImage onDone={() => setCreating(false)} />
      </Drawer>
    </>
  );
}

interface ImageValues {
  imageId: string;
  name: string;
  framework?: string[];
  resourceSpec?: string[];
  centers?: string[];
  baseOs?: { baseOs?: string; cudaVersion?: string; driverVersion?: string; packages?: string[] };
}

function CreateImage({ onDone }: { onDone: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { registry } = useClients();
  const client = useQueryClient();
  const { data: centers } = useCenters();
  const { data: specs } = useSpecs();
  const [form] = Form.useForm<ImageValues>();
  const errors = useServerErrors(form, "image");
  const create = useMutation({
    mutationFn: (v: ImageValues) =>
      registry.createImage(
        {
          image: {
            imageId: v.imageId,
            name: v.name,
            framework: (v.framework ?? []).join(","),
            resourceSpec: (v.resourceSpec ?? []).join(","),
            centers: v.centers ?? [],
            baseOs: {
              baseOs: v.baseOs?.baseOs ?? "",
              cudaVersion: v.baseOs?.cudaVersion ?? "",
              driverVersion: v.baseOs?.driverVersion ?? "",
              packages: v.baseOs?.packages ?? [],
            },
          },
        },
        call(),
      ),
    onSuccess: async () => {
      void message.success(t("image.created"));
      await client.invalidateQueries({ queryKey: ["images"] });
      onDone();
    },
    onError: errors.show,
  });
  return (
    <Form
      form={form}
      layout="vertical"
      onFinish={(v) => {
        errors.show(undefined);
        create.mutate(v);
      }}
    >
      {errors.alert}
      <Form.Item
        name="imageId"
        label={t("image.id")}
        rules={[{ required: true }, { max: 32 }, { pattern: /^\S+$/, message: t("form.noSpaces") }]}
      >
        <Input autoFocus />
      </Form.Item>
      <Form.Item name="name" label={t("image.name")} rules={[{ required: true }]}>
        <Input />
      </Form.Item>
      <Form.Item name="framework" label={t("image.framework")}>
        <Select mode="tags" tokenSeparators={[",", " "]} open={false} suffixIcon={null} placeholder="PyTorch" />
      </Form.Item>
      <Form.Item name="resourceSpec" label={t("image.specs")} extra={t("image.specsHelp")}>
        <Select
          mode="multiple"
          options={(specs ?? []).map((s) => ({ value: s.resourceSpecId, label: s.resourceSpecId }))}
        />
      </Form.Item>
      <Form.Item name="centers" label={t("image.centers")} extra={t("image.centersHelp")}>
        <Select
          mode="multiple"
          options={(centers ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
        />
      </Form.Item>
      <Form.Item name={["baseOs", "baseOs"]} label={t("image.os")}>
        <Input />
      </Form.Item>
      <div className="yh-cols-2">
        <Form.Item name={["baseOs", "cudaVersion"]} label={t("image.cuda")}>
          <Input />
        </Form.Item>
        <Form.Item name={["baseOs", "driverVersion"]} label={t("image.driver")}>
          <Input />
        </Form.Item>
      </div>
      <Form.Item name={["baseOs", "packages"]} label={t("image.packages")}>
        <Select mode="tags" tokenSeparators={[",", " "]} open={false} suffixIcon={null} />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={create.isPending}>
        {t("common.create")}
      </Button>
    </Form>
  );
}
