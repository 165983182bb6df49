// The accounts a center books runs on, and whose are booked on which.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Form, Input, Modal, Select, Tooltip } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Loaded, Panel, Tag } from "../../components/bits";
import { ListTable } from "../../components/Pager";
import { useServerErrors } from "../../components/useServerErrors";
import type { Account } from "../../gen/yunhe/adapters/v1/adapters_pb";
import type { Center } from "../../gen/yunhe/registry/v1/registry_pb";
import { messageOf } from "../../lib/errors";
import { formatCount, NONE } from "../../lib/format";
import { usePlugins, useTenants } from "../../queries";
import { useClients, useSession } from "../../session";

const accountsOf = (id: string) => ["accounts", id];

export function AccountsPanel({ center: c }: { center: Center }) {
  const { t } = useTranslation();
  const { adapters } = useClients();
  const { can } = useSession();
  const { message } = App.useApp();
  const client = useQueryClient();
  const [open, setOpen] = useState(false);
  const write = can("adapters.write");
  const kept =
    usePlugins()
      .data?.find((x) => x.name === c.adapter)
      ?.parts.includes("account") ?? false;
  const list = useQuery({
    queryKey: accountsOf(c.aiCenterId),
    queryFn: async ({ signal }) => (await adapters.listAccounts({ aiCenterId: c.aiCenterId }, call(signal))).accounts,
    enabled: kept,
    staleTime: 30_000,
  });
  const remove = useMutation({
    mutationFn: (tenantId: string) => adapters.removeAccount({ aiCenterId: c.aiCenterId, tenantId }, call()),
    onSuccess: async (_, tenant) => {
      void message.success(t("network.accountRemoved", { tenant }));
      await client.invalidateQueries({ queryKey: accountsOf(c.aiCenterId) });
    },
    onError: (e) => void message.error(messageOf(e)),
  });
  if (!kept) return null;
  const used = (a: Account, n: bigint) => <span className="yh-num">{a.useKnown ? formatCount(n) : NONE}</span>;
  return (
    <Panel
      title={t("network.accounts")}
      flush
      extra={
        write && (
          <Button size="small" onClick={() => setOpen(true)} data-testid="set-account">
            {t("network.setAccount")}
          </Button>
        )
      }
    >
      <Loaded query={list} rows={2}>
        {(accounts) => (
          <ListTable<Account>
            rowKey="name"
            dataSource={accounts}
            tableLayout="fixed"
            scroll={{ x: 900 }}
            data-testid="accounts"
            empty={t("network.noAccounts")}
            columns={[
              { title: t("network.account"), dataIndex: "name", width: 170, ellipsis: true },
              {
                title: t("network.accountTenants"),
                key: "tenants",
                render: (_, a) =>
                  a.tenantIds.length === 0
                    ? NONE
                    : a.tenantIds.map((tenant) => (
                        <span key={tenant} className="yh-tenant">
                          {tenant}
                          {write && (
                            <Button
                              type="link"
                              size="small"
                              loading={remove.isPending && remove.variables === tenant}
                              aria-label={t("network.removeAccount", { tenant })}
                              title={t("network.removeAccount", { tenant })}
                              onClick={() => remove.mutate(tenant)}
                            >
                              {t("common.remove")}
                            </Button>
                          )}
                        </span>
                      )),
              },
              {
                title: t("network.cpuUsed"),
                key: "cpu",
                width: 120,
                align: "right",
                render: (_, a) => used(a, a.cpuCoreSeconds),
              },
              {
                title: t("network.cardsUsed"),
                key: "cards",
                width: 120,
                align: "right",
                render: (_, a) => used(a, a.acceleratorSeconds),
              },
              {
                title: t("network.runsUsed"),
                key: "runs",
                width: 90,
                align: "right",
                render: (_, a) => used(a, a.runs),
              },
              {
                title: t("network.accountMade"),
                key: "made",
                width: 100,
                render: (_, a) => t(a.made ? "common.yes" : "common.no"),
              },
              {
                title: t("network.accountState"),
                key: "state",
                width: 120,
                render: (_, a) =>
                  a.missing ? (
                    <Tooltip title={t("network.accountMissingHelp")}>
                      <span>
                        <Tag tone="bad" text={t("network.accountMissing")} />
                      </span>
                    </Tooltip>
                  ) : (
                    <Tag tone="good" text={t("network.accountThere")} />
                  ),
              },
            ]}
          />
        )}
      </Loaded>
      <Modal open={open} onCancel={() => setOpen(false)} footer={null} title={t("network.setAccount")} destroyOnHidden>
        <SetAccount centerId={c.aiCenterId} onDone={() => setOpen(false)} />
      </Modal>
    </Panel>
  );
}

interface Values {
  tenantId: string;
  name?: string;
}

function SetAccount({ centerId, onDone }: { centerId: string; onDone: () => void }) {
  const { t } = useTranslation();
  const { adapters } = useClients();
  const { message } = App.useApp();
  const client = useQueryClient();
  const tenants = useTenants();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "");
  const save = useMutation({
    mutationFn: (v: Values) =>
      adapters.setAccount({ aiCenterId: centerId, tenantId: v.tenantId, name: v.name?.trim() ?? "" }, call()),
    onSuccess: async (account, v) => {
      void message.success(t("network.accountSet", { tenant: v.tenantId, account: account.name }));
      await client.invalidateQueries({ queryKey: accountsOf(centerId) });
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
        save.mutate(v);
      }}
    >
      {errors.alert}
      <p className="yh-help">{t("network.setAccountHelp")}</p>
      <Form.Item name="tenantId" label={t("registry.tenant")} rules={[{ required: true, message: t("form.required") }]}>
        <Select
          showSearch={{ optionFilterProp: "label" }}
          options={(tenants.data ?? []).map((x) => ({ value: x.tenantId, label: x.tenantId }))}
        />
      </Form.Item>
      <Form.Item name="name" label={t("network.accountName")} extra={t("network.accountNameHelp")}>
        <Input maxLength={64} autoComplete="off" />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save-account">
        {t("common.save")}
      </Button>
    </Form>
  );
}
