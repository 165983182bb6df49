// Registers a resource, or changes one.
import type { JsonObject } from "@bufbuild/protobuf";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Form, Input, Select } from "antd";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Loaded } from "../../components/bits";
import { SchemaFields } from "../../components/SchemaForm";
import { useServerErrors } from "../../components/useServerErrors";
import type { Resource, ResourceType } from "../../gen/yunhe/registry/v1/resource_pb";
import type { FieldPath } from "../../lib/errors";
import { attributesOf, labelsOf, labelTexts, resourceField } from "../../lib/registry";
import { resourceStateName, resourceStateOf, STATE_NAMES } from "../../lib/resourcefile";
import { toForm, toValue } from "../../lib/schema";
import { useCenters } from "../../queries";
import { useClients } from "../../session";
import { useResourceTypes, useTypeTitle } from "./shared";

interface Props {
  /** The one to change; without it one is registered. */
  resource?: Resource;
  type?: string;
  parentId?: string;
  onDone: (resourceId: string) => void;
}

export function ResourceForm(props: Props) {
  const types = useResourceTypes();
  return <Loaded query={types}>{(list) => <Fields {...props} types={list} />}</Loaded>;
}

interface Values {
  resourceId?: string;
  type: string;
  name?: string;
  parentId?: string;
  aiCenterId?: string;
  tenantId?: string;
  region?: string;
  serviceProvider?: string;
  state?: string;
  labels?: string[];
  attributes?: unknown;
}

function Fields({ resource: r, types, onDone, ...given }: Props & { types: ResourceType[] }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { resources } = useClients();
  const client = useQueryClient();
  const title = useTypeTitle();
  const centers = useCenters();
  const [form] = Form.useForm<Values>();
  const usable = types.filter((x) => !x.readOnly);
  const first = r?.type ?? (usable.some((x) => x.type === given.type) ? given.type : usable[0]?.type) ?? "";
  const type = Form.useWatch("type", form) ?? first;
  const schema = useMemo(() => attributesOf(types, type), [types, type]);
  const requires = types.find((x) => x.type === type)?.requires ?? [];
  const toField = useMemo(() => (path: FieldPath) => resourceField(schema, path), [schema]);
  const errors = useServerErrors(form, "resource", toField);
  const save = useMutation({
    mutationFn: (v: Values) => {
      const resource = {
        resourceId: r?.resourceId ?? v.resourceId ?? "",
        type,
        name: v.name ?? "",
        parentId: r?.parentId ?? v.parentId ?? "",
        platformId: r?.platformId ?? "",
        aiCenterId: v.aiCenterId ?? "",
        tenantId: v.tenantId ?? "",
        region: v.region ?? "",
        serviceProvider: v.serviceProvider ?? "",
        state: resourceStateOf(v.state ?? ""),
        labels: labelsOf(v.labels),
        attributes: (schema ? toValue(schema, v.attributes) : r?.attributes) as JsonObject | undefined,
        version: r?.version ?? 0n,
      };
      return r ? resources.updateResource({ resource }, call()) : resources.createResource({ resource }, call());
    },
    onSuccess: async (saved) => {
      void message.success(t(r ? "registry.saved" : "registry.created", { id: saved.resourceId }));
      await client.invalidateQueries({ queryKey: ["resources"] });
      onDone(saved.resourceId);
    },
    onError: errors.show,
  });
  const required = { required: true, message: t("form.required") };
  const needed = (member: string) => (requires.includes(member) ? [required] : []);
  return (
    <Form
      form={form}
      layout="vertical"
      scrollToFirstError={{ block: "center", focus: true }}
      initialValues={{
        ...r,
        type: first,
        state: r ? resourceStateName(r.state) : undefined,
        labels: r ? labelTexts(r.labels) : [],
        parentId: r?.parentId ?? given.parentId,
        attributes: schema && toForm(schema, r?.attributes),
      }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      <div className="yh-cols-2">
        <Form.Item name="type" label={t("registry.type")} rules={[required]}>
          <Select
            disabled={r !== undefined}
            options={(r ? types : usable).map((x) => ({ value: x.type, label: title(x.type) }))}
            onChange={() => form.setFieldValue("attributes", undefined)}
          />
        </Form.Item>
        <Form.Item
          name="resourceId"
          label={t("registry.id")}
          extra={r ? undefined : t("registry.idHelp")}
          rules={[{ max: 32, message: t("form.max", { count: 32 }) }]}
        >
          <Input disabled={r !== undefined} autoComplete="off" />
        </Form.Item>
        <Form.Item name="name" label={t("form.name")}>
          <Input autoComplete="off" />
        </Form.Item>
        <Form.Item name="state" label={t("registry.state")}>
          <Select allowClear options={STATE_NAMES.map((s) => ({ value: s, label: t(`registry.states.${s}`) }))} />
        </Form.Item>
        <Form.Item name="parentId" label={t("registry.parent")} extra={r ? t("registry.moveHelp") : undefined}>
          <Input disabled={r !== undefined} placeholder="center:ID" autoComplete="off" />
        </Form.Item>
        <Form.Item name="aiCenterId" label={t("center.name")}>
          <Select
            allowClear
            showSearch={{ optionFilterProp: "label" }}
            options={(centers.data ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
          />
        </Form.Item>
        <Form.Item name="region" label={t("registry.region")} rules={needed("region")}>
          <Input autoComplete="off" />
        </Form.Item>
        <Form.Item name="serviceProvider" label={t("registry.provider")} rules={needed("service_provider")}>
          <Input autoComplete="off" />
        </Form.Item>
        <Form.Item name="tenantId" label={t("registry.tenant")} extra={t("registry.tenantHelp")}>
          <Input autoComplete="off" />
        </Form.Item>
        <Form.Item name="labels" label={t("center.labels")}>
          <Select
            mode="tags"
            open={false}
            suffixIcon={null}
            tokenSeparators={[","]}
            placeholder={t("registry.labelHint")}
          />
        </Form.Item>
      </div>
      {schema && (
        <fieldset className="yh-fieldset" key={type}>
          <legend>{t("registry.attributes")}</legend>
          <SchemaFields fields={schema.fields} name={["attributes"]} path={["attributes"]} />
        </fieldset>
      )}
      <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save-resource">
        {t(r ? "common.save" : "registry.create")}
      </Button>
    </Form>
  );
}
