// Applies for resources: packages of a specification, amounts, or whole nodes.
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Checkbox, DatePicker, Form, Input, InputNumber, Radio, Select } from "antd";
import type { Dayjs } from "dayjs";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { useRequestId } from "../../components/useRequestId";
import { useServerErrors } from "../../components/useServerErrors";
import { allocationStateName, typedAmounts } from "../../lib/control";
import { useCenters, useSpecs } from "../../queries";
import { useClients, useSession } from "../../session";

interface Values {
  name?: string;
  by: "spec" | "amounts" | "nodes";
  resourceSpecId?: string;
  count?: number;
  amounts?: string[];
  nodes?: string[];
  aiCenterId?: string;
  region?: string;
  startAt?: Dayjs;
  endAt?: Dayjs;
  noWait?: boolean;
}

export function Apply({ onDone }: { onDone: (allocationId: string) => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { control } = useClients();
  const { can } = useSession();
  const client = useQueryClient();
  const specs = useSpecs();
  const centers = useCenters();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "");
  const by = Form.useWatch("by", form) ?? "spec";
  const requestId = useRequestId();
  const apply = useMutation({
    mutationFn: (v: Values) => {
      const body = {
        name: v.name?.trim() ?? "",
        resourceSpecId: v.by === "spec" ? (v.resourceSpecId ?? "") : "",
        count: v.by === "spec" ? BigInt(v.count ?? 0) : 0n,
        amounts: v.by === "amounts" ? (typedAmounts(v.amounts ?? []) ?? {}) : {},
        nodes: v.by === "nodes" ? (v.nodes ?? []) : [],
        aiCenterId: v.aiCenterId ?? "",
        region: v.region?.trim() ?? "",
        startAt: v.startAt && timestampFromMs(v.startAt.valueOf()),
        endAt: v.endAt && timestampFromMs(v.endAt.valueOf()),
        noWait: v.noWait ?? false,
      };
      return control.applyAllocation({ ...body, requestId: requestId.of(body) }, call());
    },
    onSuccess: async (a) => {
      requestId.done();
      void message.success(t(`allocation.answer.${allocationStateName(a.state)}`));
      await client.invalidateQueries({ queryKey: ["allocations"] });
      onDone(a.allocationId);
    },
    onError: errors.show,
  });
  const required = [{ required: true, message: t("form.required") }];
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ by: "spec", count: 1, noWait: false }}
      scrollToFirstError={{ block: "center", focus: true }}
      onFinish={(v) => {
        errors.show(undefined);
        apply.mutate(v);
      }}
    >
      {errors.alert}
      <Form.Item name="name" label={t("allocation.name")}>
        <Input maxLength={63} autoFocus autoComplete="off" />
      </Form.Item>
      <Form.Item name="by" label={t("allocation.what")}>
        <Radio.Group
          options={[
            { value: "spec", label: t("allocation.bySpec") },
            { value: "amounts", label: t("allocation.byAmounts") },
            ...(can("registry.write") ? [{ value: "nodes", label: t("allocation.byNodes") }] : []),
          ]}
        />
      </Form.Item>
      {by === "spec" && (
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
      )}
      {by === "amounts" && (
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
          <Select mode="tags" open={false} suffixIcon={null} tokenSeparators={[",", " "]} placeholder="cpu=4" />
        </Form.Item>
      )}
      {by === "nodes" && (
        <Form.Item name="nodes" label={t("nav.nodes")} extra={t("allocation.nodesHelp")} rules={required}>
          <Select
            mode="tags"
            open={false}
            suffixIcon={null}
            tokenSeparators={[",", " "]}
            placeholder={t("form.words")}
          />
        </Form.Item>
      )}
      <div className="yh-cols-2">
        <Form.Item name="aiCenterId" label={t("center.name")} rules={by === "nodes" ? required : []}>
          <Select
            allowClear
            showSearch={{ optionFilterProp: "label" }}
            placeholder={t("allocation.anywhere")}
            options={(centers.data ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
          />
        </Form.Item>
        <Form.Item name="region" label={t("registry.region")}>
          <Input autoComplete="off" />
        </Form.Item>
        <Form.Item name="startAt" label={t("allocation.start")} extra={t("allocation.startHelp")}>
          <DatePicker showTime className="yh-wide" />
        </Form.Item>
        <Form.Item name="endAt" label={t("allocation.to")} extra={t("allocation.endHelp")}>
          <DatePicker showTime className="yh-wide" />
        </Form.Item>
      </div>
      <Form.Item name="noWait" valuePropName="checked">
        <Checkbox>{t("allocation.noWait")}</Checkbox>
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={apply.isPending} data-testid="apply-send">
        {t("allocation.apply")}
      </Button>
    </Form>
  );
}
