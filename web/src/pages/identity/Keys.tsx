import { PlusOutlined } from "@ant-design/icons";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Alert, App, Button, Form, Input, Modal, Popconfirm, Select, Table } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Copyable, Loaded, Moment, Nothing, Tag } from "../../components/bits";
import { useServerErrors } from "../../components/useServerErrors";
import type { Key } from "../../gen/yunhe/identity/v1/identity_pb";
import { messageOf } from "../../lib/errors";
import { millis } from "../../lib/format";
import { useKeys, useUsers } from "../../queries";
import { useClients, useSession } from "../../session";

export function Keys() {
  const { t } = useTranslation();
  const { state } = useSession();
  const { message } = App.useApp();
  const { identity } = useClients();
  const client = useQueryClient();
  const keys = useKeys();
  const [creating, setCreating] = useState(false);
  const revoke = useMutation({
    mutationFn: (keyId: string) => identity.revokeKey({ keyId }, call()),
    onSuccess: () => {
      void message.success(t("key.revoked"));
      return client.invalidateQueries({ queryKey: ["keys"] });
    },
    onError: (error) => void message.error(messageOf(error)),
  });
  const own = state.phase === "signedIn" ? state.keyId : "";
  return (
    <>
      <div className="yh-tab-actions">
        <Button type="primary" icon={<PlusOutlined />} onClick={() => setCreating(true)} data-testid="create-key">
          {t("key.create")}
        </Button>
      </div>
      <Loaded query={keys}>
        {(list) => (
          <Table
            size="small"
            rowKey="keyId"
            dataSource={list}
            scroll={{ x: 1000 }}
            pagination={list.length > 50 ? { pageSize: 50, showSizeChanger: false, size: "small" } : false}
            locale={{ emptyText: <Nothing text={t("key.none")} /> }}
            columns={[
              {
                title: t("key.id"),
                key: "id",
                render: (_, k) => (
                  <>
                    <code>{k.keyId}</code> {k.keyId === own && <span className="yh-muted">({t("key.inUse")})</span>}
                  </>
                ),
              },
              { title: t("key.note"), dataIndex: "note", key: "note", ellipsis: true },
              { title: t("key.user"), key: "user", render: (_, k) => `${k.userId} · ${k.tenantId}` },
              { title: t("key.state"), key: "state", width: 110, render: (_, k) => <KeyState of={k} /> },
              { title: t("common.created"), key: "created", width: 136, render: (_, k) => <Moment at={k.createdAt} /> },
              {
                title: t("key.expires"),
                key: "expires",
                width: 136,
                render: (_, k) => (k.expiresAt ? <Moment at={k.expiresAt} /> : t("key.never")),
              },
              {
                title: "",
                key: "actions",
                width: 90,
                align: "right",
                render: (_, k) =>
                  !k.revokedAt && (
                    <Popconfirm
                      title={t("key.revokeTitle", { id: k.keyId })}
                      description={t(k.keyId === own ? "key.revokeOwn" : "key.revokeHelp")}
                      okText={t("key.revoke")}
                      okButtonProps={{ danger: true }}
                      onConfirm={() => revoke.mutateAsync(k.keyId).catch(() => undefined)}
                    >
                      <Button size="small" type="text" danger>
                        {t("key.revoke")}
                      </Button>
                    </Popconfirm>
                  ),
              },
            ]}
          />
        )}
      </Loaded>
      <Modal open={creating} onCancel={() => setCreating(false)} footer={null} title={t("key.create")} destroyOnHidden>
        <CreateKey onDone={() => setCreating(false)} />
      </Modal>
    </>
  );
}

function KeyState({ of }: { of: Key }) {
  const { t } = useTranslation();
  if (of.revokedAt) return <Tag tone="bad" text={t("key.states.revoked")} />;
  const expires = millis(of.expiresAt);
  if (expires !== undefined && expires <= Date.now()) return <Tag tone="neutral" text={t("key.states.expired")} />;
  return <Tag tone="good" text={t("key.states.valid")} />;
}

const DAY = 86_400;
const LIFETIMES = [0, DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY] as const;

interface Values {
  userId?: string;
  note: string;
  ttl: (typeof LIFETIMES)[number];
}

function CreateKey({ onDone }: { onDone: () => void }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const { identity } = useClients();
  const { data: users } = useUsers();
  const client = useQueryClient();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "");
  const create = useMutation({
    mutationFn: (v: Values) =>
      identity.createKey({ userId: v.userId ?? "", note: v.note, ttlSeconds: BigInt(v.ttl) }, call()),
    onSuccess: () => client.invalidateQueries({ queryKey: ["keys"] }),
    onError: errors.show,
  });
  if (create.data) {
    return (
      <>
        <Alert type="warning" showIcon title={t("key.once")} description={t("key.onceHelp")} />
        <div className="yh-secret" data-testid="secret">
          <Copyable text={create.data.secret} />
        </div>
        <Button type="primary" onClick={onDone}>
          {t("key.stored")}
        </Button>
      </>
    );
  }
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ ttl: 90 * DAY }}
      onFinish={(v) => {
        errors.show(undefined);
        create.mutate(v);
      }}
    >
      {errors.alert}
      {can("identity.write") && (
        <Form.Item name="userId" label={t("key.user")} extra={t("key.userHelp")}>
          <Select
            allowClear
            showSearch
            placeholder={t("key.myself")}
            options={(users ?? []).map((u) => ({ value: u.userId, label: `${u.userId} · ${u.tenantId}` }))}
          />
        </Form.Item>
      )}
      <Form.Item name="note" label={t("key.note")} extra={t("key.noteHelp")} rules={[{ required: true }]}>
        <Input autoFocus />
      </Form.Item>
      <Form.Item name="ttl" label={t("key.lifetime")}>
        <Select
          options={LIFETIMES.map((s) => ({
            value: s,
            label: s === 0 ? t("key.never") : t("key.days", { count: s / DAY }),
          }))}
        />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={create.isPending}>
        {t("common.create")}
      </Button>
    </Form>
  );
}
