// Makes a token with which one compute gateway may join the network.
import { useMutation } from "@tanstack/react-query";
import { Button, Form, Input, InputNumber, Result } from "antd";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import { useClients } from "../session";
import { Copyable, Moment } from "./bits";
import { useServerErrors } from "./useServerErrors";

interface Values {
  aiCenterId?: string;
  minutes: number;
}

/** Asks for a token and shows it once; onClose is called when it has been taken. */
export function JoinForm({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const { adapters } = useClients();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "");
  const make = useMutation({
    mutationFn: (v: Values) =>
      adapters.createJoinToken({ aiCenterId: v.aiCenterId?.trim() ?? "", ttlSeconds: BigInt(v.minutes) * 60n }, call()),
    onError: errors.show,
  });
  if (make.data) {
    return (
      <Result
        status="success"
        title={t("join.made")}
        subTitle={
          <>
            {t("join.once")} {t("join.validUntil")} <Moment at={make.data.expiresAt} long />
          </>
        }
        extra={<Button onClick={onClose}>{t("common.close")}</Button>}
      >
        <div className="yh-secret">
          <Copyable text={make.data.token} />
        </div>
      </Result>
    );
  }
  return (
    <Form form={form} layout="vertical" initialValues={{ minutes: 60 }} onFinish={(v) => make.mutate(v)}>
      <p className="yh-muted">{t("join.help")}</p>
      {errors.alert}
      <Form.Item name="aiCenterId" label={t("join.center")} extra={t("join.centerHelp")} rules={[{ max: 32 }]}>
        <Input />
      </Form.Item>
      <Form.Item name="minutes" label={t("join.minutes")} rules={[{ required: true }]}>
        <InputNumber min={1} max={10_080} precision={0} />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={make.isPending}>
        {t("join.make")}
      </Button>
    </Form>
  );
}
