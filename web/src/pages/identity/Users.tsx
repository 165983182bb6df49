import { PlusOutlined } from "@ant-design/icons";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Drawer, Form, Input, Select, Table } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Loaded, Moment, Nothing } from "../../components/bits";
import { useServerErrors } from "../../components/useServerErrors";
import { Role } from "../../gen/yunhe/identity/v1/identity_pb";
import { useTenants, useUsers } from "../../queries";
import { useClients, useSession } from "../../session";

const ROLES = [Role.ADMIN, Role.OPERATOR, Role.USER, Role.AUDITOR] as const;

export function Users() {
  const { t } = useTranslation();
  const { can } = useSession();
  const users = useUsers();
  const [creating, setCreating] = useState(false);
  return (
    <>
      {can("identity.write") && (
        <div className="yh-tab-actions">
          <Button type="primary" icon={<PlusOutlined />} onClick={() => setCreating(true)}>
            {t("user.create")}
          </Button>
        </div>
      )}
      <Loaded query={users}>
        {(list) => (
          <Table
            size="small"
            rowKey="userId"
            dataSource={list}
            pagination={list.length > 50 ? { pageSize: 50, showSizeChanger: false, size: "small" } : false}
            locale={{ emptyText: <Nothing text={t("user.none")} /> }}
            columns={[
              { title: t("user.id"), key: "id", render: (_, x) => <code>{x.userId}</code> },
              { title: t("user.name"), dataIndex: "name", key: "name" },
              { title: t("user.tenant"), key: "tenant", render: (_, x) => <code>{x.tenantId}</code> },
              { title: t("user.role"), key: "role", render: (_, x) => t(`role.${x.role}`) },
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
      <Drawer open={creating} onClose={() => setCreating(false)} title={t("user.create")} destroyOnHidden>
        <CreateUser onDone={() => setCreating(false)} />
      </Drawer>
    </>
  );
}

interface Values {
  userId: string;
  tenantId: string;
  name: string;
  role: Role;
}

function CreateUser({ onDone }: { onDone: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { identity } = useClients();
  const { data: tenants } = useTenants();
  const client = useQueryClient();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "user");
  const create = useMutation({
    mutationFn: (user: Values) => identity.createUser({ user }, call()),
    onSuccess: async () => {
      void message.success(t("user.created"));
      await client.invalidateQueries({ queryKey: ["users"] });
      onDone();
    },
    onError: errors.show,
  });
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ role: Role.USER }}
      onFinish={(v) => {
        errors.show(undefined);
        create.mutate(v);
      }}
    >
      {errors.alert}
      <Form.Item
        name="userId"
        label={t("user.id")}
        extra={t("user.idHelp")}
        rules={[{ required: true }, { max: 32 }, { pattern: /^[a-z0-9.-]+$/, message: t("user.idHelp") }]}
      >
        <Input autoFocus />
      </Form.Item>
      <Form.Item name="name" label={t("user.name")} rules={[{ required: true }]}>
        <Input />
      </Form.Item>
      <Form.Item name="tenantId" label={t("user.tenant")} rules={[{ required: true }]}>
        <Select
          showSearch
          options={(tenants ?? []).map((x) => ({
            value: x.tenantId,
            label: x.name ? `${x.name} (${x.tenantId})` : x.tenantId,
          }))}
        />
      </Form.Item>
      <Form.Item name="role" label={t("user.role")} rules={[{ required: true }]}>
        <Select
          options={ROLES.map((role) => ({ value: role, label: `${t(`role.${role}`)} — ${t(`roleHelp.${role}`)}` }))}
        />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={create.isPending}>
        {t("common.create")}
      </Button>
    </Form>
  );
}
