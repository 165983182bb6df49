// Registers a plug-in that runs elsewhere by its addresses, or changes them.
import { CloseOutlined, PlusOutlined } from "@ant-design/icons";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Form, Input, Modal } from "antd";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import type { Plugin } from "../gen/yunhe/adapters/v1/adapters_pb";
import { isAddress } from "../lib/plugins";
import { useClients } from "../session";
import { useServerErrors } from "./useServerErrors";

const MAX_ADDRESSES = 128;

interface Values {
  name: string;
  endpoints: (string | undefined)[];
}

/** plugin is the one whose addresses are changed; without it a new one is registered. */
export function RegisterPlugin(props: {
  open: boolean;
  plugin?: Plugin;
  onClose: () => void;
  onDone: (name: string) => void;
}) {
  const { t } = useTranslation();
  return (
    <Modal
      open={props.open}
      onCancel={props.onClose}
      footer={null}
      width={600}
      title={t(props.plugin ? "plugin.addresses" : "plugin.register")}
      destroyOnHidden
    >
      <RegisterForm {...props} />
    </Modal>
  );
}

function RegisterForm({ plugin, onDone }: { plugin?: Plugin; onDone: (name: string) => void }) {
  const { t } = useTranslation();
  const { message, modal } = App.useApp();
  const { adapters } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "");
  const save = useMutation({
    mutationFn: (v: Values) =>
      adapters.setPlugin({ name: v.name, endpoints: v.endpoints.map((e) => e?.trim() ?? "") }, call()),
    onSuccess: async (saved) => {
      void message.success(t(plugin ? "plugin.addressesSaved" : "plugin.registered", { name: saved.name }));
      await client.invalidateQueries({ queryKey: ["plugins"] });
      onDone(saved.name);
    },
    onError: errors.show,
  });
  const submit = (v: Values) => {
    errors.show(undefined);
    const kept = new Set(v.endpoints.map((e) => e?.trim()));
    const gone = (plugin?.endpoints ?? []).filter((e) => !kept.has(e));
    if (gone.length === 0) {
      save.mutate(v);
      return;
    }
    void modal.confirm({
      title: t("plugin.dropTitle", { count: gone.length }),
      content: (
        <>
          <p>{t("plugin.dropHelp")}</p>
          {gone.map((e) => (
            <div key={e}>
              <code>{e}</code>
            </div>
          ))}
        </>
      ),
      okText: t("common.save"),
      okButtonProps: { danger: true },
      onOk: () => save.mutateAsync(v).catch(() => undefined),
    });
  };
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ name: plugin?.name, endpoints: plugin?.endpoints ?? [""] }}
      onFinish={submit}
    >
      <p className="yh-muted">{t("plugin.registerHelp")}</p>
      {errors.alert}
      <Form.Item
        name="name"
        label={t("plugin.name")}
        hidden={plugin !== undefined}
        rules={[
          { required: true, message: t("form.required") },
          { max: 32, message: t("form.max", { count: 32 }) },
          { pattern: /^[A-Za-z0-9][A-Za-z0-9._-]*$/, message: t("form.id") },
        ]}
      >
        <Input autoFocus={!plugin} autoComplete="off" />
      </Form.Item>
      <Form.List name="endpoints">
        {(rows, { add, remove }) => (
          <fieldset className="yh-fieldset">
            <legend>{t("plugin.endpoints")}</legend>
            {rows.map((row, i) => (
              <div key={row.key} className="yh-map-row">
                <Form.Item
                  name={row.name}
                  className="yh-map-value"
                  rules={[
                    { required: true, whitespace: true, message: t("form.required") },
                    {
                      validator: (_, text: string | undefined) =>
                        !text?.trim() || isAddress(text.trim())
                          ? Promise.resolve()
                          : Promise.reject(new Error(t("plugin.notAddress"))),
                    },
                  ]}
                >
                  <Input
                    className="yh-mono"
                    placeholder="http://10.0.0.7:7070"
                    aria-label={`${t("plugin.endpoint")} ${i + 1}`}
                    autoComplete="off"
                  />
                </Form.Item>
                <Button
                  icon={<CloseOutlined aria-hidden />}
                  disabled={rows.length === 1}
                  aria-label={`${t("common.remove")}: ${t("plugin.endpoint")} ${i + 1}`}
                  onClick={() => remove(row.name)}
                />
              </div>
            ))}
            {rows.length < MAX_ADDRESSES && (
              <Button size="small" icon={<PlusOutlined aria-hidden />} onClick={() => add("")}>
                {t("plugin.addEndpoint")}
              </Button>
            )}
          </fieldset>
        )}
      </Form.List>
      <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="register">
        {t(plugin ? "common.save" : "plugin.register")}
      </Button>
    </Form>
  );
}
