// Makes a token with which one compute gateway may join the network.
import { useMutation } from "@tanstack/react-query";
import { Button, Form, Input, InputNumber } from "antd";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import type { CreateJoinTokenResponse } from "../gen/yunhe/adapters/v1/adapters_pb";
import { useClients } from "../session";
import { useServerErrors } from "./useServerErrors";

interface Values {
  aiCenterId?: string;
  minutes: number;
}

/** A token and the center it is for, "" if the gateway names it. */
export interface JoinToken {
  token: CreateJoinTokenResponse;
  centerId: string;
}

/** Asks for a token. before is called first, onMade with the token, which is shown once. */
export function JoinForm({ before, onMade }: { before: () => Promise<void>; onMade: (made: JoinToken) => void }) {
  const { t } = useTranslation();
  const { adapters } = useClients();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "");
  const make = useMutation({
    mutationFn: async (v: Values) => {
      const centerId = v.aiCenterId?.trim() ?? "";
      await before();
      const token = await adapters.createJoinToken(
        { aiCenterId: centerId, ttlSeconds: BigInt(v.minutes) * 60n },
        call(),
      );
      return { token, centerId };
    },
    onSuccess: onMade,
    onError: errors.show,
  });
  return (
    <Form form={form} layout="vertical" initialValues={{ minutes: 60 }} onFinish={(v) => make.mutate(v)}>
      <p className="yh-muted">{t("join.help")}</p>
      {errors.alert}
      <Form.Item name="aiCenterId" label={t("join.center")} extra={t("join.centerHelp")} rules={[{ max: 32 }]}>
        <Input autoComplete="off" />
      </Form.Item>
      <Form.Item name="minutes" label={t("join.minutes")} rules={[{ required: true }]}>
        <InputNumber min={1} max={10_080} precision={0} />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={make.isPending} data-testid="make-token">
        {t("join.make")}
      </Button>
    </Form>
  );
}
