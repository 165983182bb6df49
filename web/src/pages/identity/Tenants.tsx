import { PlusOutlined } from "@ant-design/icons";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Drawer, Form, Input, Table } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Loaded, Moment, Nothing } from "../../components/bits";
import { useServerErrors } from "../../components/useServerErrors";
import { useTenants } from "../../queries";
import { useClients, useSession } from "../../session";

export function Tenants() {
  const { t } = useTranslation();
  const { can } = useSession();
  const tenants = useTenants();
  const [creating, setCreating] = useState(false);
  return (
    <>
      {can("identity.write") && (
        <div className="yh-tab-actions">
          <Button type="primary" icon={<PlusOutlined />} onClick={() => setCreating(true)}>
            {t("tenant.create")}
          </Button>
        </div>
      )}
      <Loaded query={tenants}>
        {(list) => (
          <Table
            size="small"
            rowKey="tenantId"
            dataSource={list}
            pagination={list.length > 50 ? { pageSize: 50, showSizeChanger: false, size: "small" } : false}
            locale={{ emptyText: <Nothing text={t("tenant.none")} /> }}
            columns={[
              { title: t("tenant.id"), key: "id", render: (_, x) => <code>{x.tenantId}</code> },
              { title: t("tenant.name"), dataIndex: "name", key: "name" },
              {
                title: t("common.created"),
                key: "created",
                width: 180,
                render: (_, x) => <Moment at={x.createdAt} long />,
              },
            ]}
          />
        )}
      </Loaded>
      <Drawer open={creating} onClose={() => setCreating(false)} title={t("tenant.create")} destroyOnHidden>
        <CreateTenant onDone={() => setCreating(false)} />
      </Drawer>
    </>
  );
}

interface Values {
  tenantId: string;
  name: string;
}

function CreateTenant({ onDone }: { onDone: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { identity } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "tenant");
  const create = useMutation({
    mutationFn: (tenant: Values) => identity.createTenant({ tenant }, call()),
    onSuccess: async () => {
      void message.success(t("tenant.created"));
      await client.invalidateQueries({ queryKey: ["tenants"] });
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
        name="tenantId"
        label={t("tenant.id")}
        extra={t("tenant.idHelp")}
        rules={[{ required: true }, { max: 32 }, { pattern: /^[a-z0-9-]+$/, message: t("tenant.idHelp") }]}
      >
        <Input autoFocus />
      </Form.Item>
      <Form.Item name="name" label={t("tenant.name")} rules={[{ required: true }]}>
        <Input />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={create.isPending}>
        {t("common.create")}
      </Button>
    </Form>
  );
}
