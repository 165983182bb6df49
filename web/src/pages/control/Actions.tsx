// Changes an allocation, or gives it back, after a question.
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Checkbox, DatePicker, Form, InputNumber, Modal, Select } from "antd";
import dayjs, { type Dayjs } from "dayjs";
import { useTranslation } from "react-i18next";
import { call, newRequestId } from "../../api";
import { useServerErrors } from "../../components/useServerErrors";
import type { Allocation } from "../../gen/yunhe/control/v1/control_pb";
import { typedAmounts } from "../../lib/control";
import { millis } from "../../lib/format";
import { useClients } from "../../session";

interface Props {
  allocation: Allocation;
  open: boolean;
  onClose: () => void;
}

export function Adjust({ allocation: a, open, onClose }: Props) {
  const { t } = useTranslation();
  return (
    <Modal
      open={open}
      onCancel={onClose}
      footer={null}
      title={t("allocation.adjustTitle", { name: a.name || a.allocationId })}
      destroyOnHidden
    >
      <AdjustForm allocation={a} onClose={onClose} />
    </Modal>
  );
}

function AdjustForm({ allocation: a, onClose }: Omit<Props, "open">) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { control } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<{ count?: number; amounts?: string[]; endAt?: Dayjs; belowUse?: boolean }>();
  const errors = useServerErrors(form, "");
  const end = millis(a.endAt);
  const adjust = useMutation({
    mutationFn: (v: { count?: number; amounts?: string[]; endAt?: Dayjs; belowUse?: boolean }) => {
      const bySpec = a.resourceSpecId !== "";
      const endAt = v.endAt?.valueOf();
      return control.adjustAllocation(
        {
          allocationId: a.allocationId,
          requestId: newRequestId(),
          count: bySpec && v.count !== Number(a.count) ? BigInt(v.count ?? 0) : 0n,
          amounts: bySpec || a.nodes.length > 0 ? {} : (typedAmounts(v.amounts ?? []) ?? {}),
          endAt: endAt !== undefined && endAt !== end ? timestampFromMs(endAt) : undefined,
          belowUse: v.belowUse ?? false,
        },
        call(),
      );
    },
    onSuccess: async () => {
      void message.success(t("allocation.adjusted"));
      onClose();
      await client.invalidateQueries({ queryKey: ["allocations"] });
      await client.invalidateQueries({ queryKey: ["operations"] });
    },
    onError: errors.show,
  });
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{
        count: Number(a.count),
        amounts: Object.entries(a.amounts).map(([k, v]) => `${k}=${v}`),
        endAt: end === undefined ? undefined : dayjs(end),
      }}
      onFinish={(v) => {
        errors.show(undefined);
        adjust.mutate(v);
      }}
    >
      {errors.alert}
      {a.nodes.length > 0 ? null : a.resourceSpecId ? (
        <Form.Item name="count" label={t("allocation.count")}>
          <InputNumber min={1} max={100_000} precision={0} autoFocus />
        </Form.Item>
      ) : (
        <Form.Item
          name="amounts"
          label={t("allocation.amounts")}
          extra={t("allocation.amountsHelp")}
          rules={[
            {
              validator: (_, texts?: string[]) =>
                typedAmounts(texts ?? []) ? Promise.resolve() : Promise.reject(new Error(t("allocation.amountsHelp"))),
            },
          ]}
        >
          <Select mode="tags" open={false} suffixIcon={null} tokenSeparators={[",", " "]} />
        </Form.Item>
      )}
      <Form.Item name="endAt" label={t("allocation.to")}>
        <DatePicker showTime className="yh-wide" allowClear={false} />
      </Form.Item>
      <Form.Item name="belowUse" valuePropName="checked">
        <Checkbox>{t("allocation.belowUse")}</Checkbox>
      </Form.Item>
      <div className="yh-row">
        <Button type="primary" htmlType="submit" loading={adjust.isPending} data-testid="adjust-send">
          {t("allocation.adjust")}
        </Button>
        <Button onClick={onClose}>{t("common.cancel")}</Button>
      </div>
    </Form>
  );
}

export function Release({ allocation: a, open, onClose }: Props) {
  const { t } = useTranslation();
  return (
    <Modal
      open={open}
      onCancel={onClose}
      footer={null}
      title={t("allocation.releaseTitle", { name: a.name || a.allocationId })}
      destroyOnHidden
    >
      <ReleaseForm allocation={a} onClose={onClose} />
    </Modal>
  );
}

function ReleaseForm({ allocation: a, onClose }: Omit<Props, "open">) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { control } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<{ stop?: boolean }>();
  const errors = useServerErrors(form, "");
  const release = useMutation({
    mutationFn: (v: { stop?: boolean }) =>
      control.releaseAllocation(
        { allocationId: a.allocationId, requestId: newRequestId(), stop: v.stop ?? false },
        call(),
      ),
    onSuccess: async () => {
      void message.success(t("allocation.releaseDone"));
      onClose();
      await client.invalidateQueries({ queryKey: ["allocations"] });
      await client.invalidateQueries({ queryKey: ["operations"] });
    },
    onError: errors.show,
  });
  return (
    <Form
      form={form}
      layout="vertical"
      onFinish={(v) => {
        errors.show(undefined);
        release.mutate(v);
      }}
    >
      {errors.alert}
      <p>{t("allocation.releaseHelp")}</p>
      <Form.Item name="stop" valuePropName="checked">
        <Checkbox>{t("allocation.stopRuns")}</Checkbox>
      </Form.Item>
      <div className="yh-row">
        <Button type="primary" danger htmlType="submit" loading={release.isPending} data-testid="release-send">
          {t("allocation.release")}
        </Button>
        <Button onClick={onClose}>{t("common.cancel")}</Button>
      </div>
    </Form>
  );
}
