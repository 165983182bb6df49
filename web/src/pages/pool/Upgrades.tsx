// Upgrades of the pool's nodes, and of the platform: what is under way, what came of the last ones, and a new one.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  Button,
  Checkbox,
  Form,
  InputNumber,
  Modal,
  Popconfirm,
  Select,
  Space,
  Table,
  type TableColumnsType,
} from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Loaded, Moment, Nothing, Tag } from "../../components/bits";
import { useServerErrors } from "../../components/useServerErrors";
import {
  ChangePoolUpgradeRequest_Action as Action,
  PoolUpgrade_Node_State as NodeState,
  type PoolUpgrade,
  PoolUpgrade_State as State,
} from "../../gen/yunhe/pool/v1/operation_pb";
import { NONE } from "../../lib/format";
import { NODE_STEPS, UPGRADES } from "../../lib/poolops";
import { useClients, useSession } from "../../session";

export function Upgrades() {
  const { t } = useTranslation();
  const { poolOps } = useClients();
  const { can } = useSession();
  const client = useQueryClient();
  const list = useQuery({
    queryKey: ["pool", "upgrades"],
    queryFn: ({ signal }) => poolOps.listPoolUpgrades({}, call(signal)),
    refetchInterval: 2000,
  });
  const change = useMutation({
    mutationFn: (v: { upgradeId: string; action: Action }) => poolOps.changePoolUpgrade(v, call()),
    onSettled: () => client.invalidateQueries({ queryKey: ["pool", "upgrades"] }),
  });
  const button = (x: PoolUpgrade, action: Action, name: "continue" | "stop" | "rollBack") => (
    <Popconfirm
      key={name}
      title={t(`poolops.upgrade.sure.${name}`)}
      okText={t(`poolops.upgrade.${name}`)}
      onConfirm={() => change.mutate({ upgradeId: x.upgradeId, action })}
    >
      <Button size="small">{t(`poolops.upgrade.${name}`)}</Button>
    </Popconfirm>
  );
  const columns: TableColumnsType<PoolUpgrade> = [
    { title: t("poolops.time"), key: "at", width: 140, render: (_, x) => <Moment at={x.createdAt} /> },
    {
      title: t("poolops.upgrade.to"),
      key: "to",
      width: 200,
      render: (_, x) => (
        <>
          <b>{x.release?.version}</b> <small className="yh-mono yh-muted">{x.release?.sha256.slice(0, 12)}</small>
        </>
      ),
    },
    {
      title: t("poolops.state"),
      key: "state",
      width: 220,
      render: (_, x) => (
        <>
          <Tag tone={UPGRADES[x.state].tone} text={t(`poolops.upgrade.states.${UPGRADES[x.state].name}`)} />
          {x.reason && <small> {x.reason}</small>}
        </>
      ),
    },
    {
      title: t("poolops.upgrade.nodes"),
      key: "nodes",
      render: (_, x) =>
        x.nodes.map((n) => (
          <div key={n.nodeId}>
            {n.nodeId || t("poolops.upgrade.platform")} <span className="yh-muted">{n.fromVersion || NONE}</span>{" "}
            <Tag tone={NODE_STEPS[n.state].tone} text={t(`poolops.upgrade.states.${NODE_STEPS[n.state].name}`)} />
            {n.state === NodeState.FAILED && n.reason}
          </div>
        )),
    },
    {
      title: "",
      key: "do",
      width: 240,
      render: (_, x) =>
        can("adapters.write") && (
          <Space>
            {x.state === State.WAITING && button(x, Action.CONTINUE, "continue")}
            {(x.state === State.WAITING || x.state === State.RUNNING) && button(x, Action.STOP, "stop")}
            {x.state !== State.ROLLING_BACK && x.state !== State.ROLLED_BACK && button(x, Action.ROLL_BACK, "rollBack")}
          </Space>
        ),
    },
  ];
  return (
    <>
      <h3 className="yh-tab-heading">{t("poolops.upgrade.title")}</h3>
      <Loaded query={list} rows={2}>
        {(data) => (
          <Table
            size="small"
            rowKey="upgradeId"
            columns={columns}
            dataSource={data.upgrades}
            pagination={{ pageSize: 10, hideOnSinglePage: true }}
            scroll={{ x: 1000 }}
            data-testid="pool-upgrades"
            locale={{ emptyText: <Nothing text={t("poolops.upgrade.none")} /> }}
          />
        )}
      </Loaded>
    </>
  );
}

interface Values {
  sha256: string;
  batch: number;
  gray: boolean;
  platform: boolean;
}

/** StartUpgrade asks what nodes are upgraded to, and how. */
export function StartUpgrade({ nodeIds, open, done }: { nodeIds: string[]; open: boolean; done: () => void }) {
  const { t } = useTranslation();
  const { poolOps } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "");
  const [busy, setBusy] = useState(false);
  const releases = useQuery({
    queryKey: ["pool", "releases"],
    queryFn: ({ signal }) => poolOps.listPoolReleases({}, call(signal)),
    enabled: open,
  });
  const start = async (v: Values) => {
    errors.show(undefined);
    setBusy(true);
    try {
      await poolOps.startPoolUpgrade({ ...v, nodeIds, batch: BigInt(v.batch ?? 0) }, call());
      done();
      await client.invalidateQueries({ queryKey: ["pool"] });
    } catch (error) {
      errors.show(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Modal
      open={open}
      onCancel={done}
      footer={null}
      title={t("poolops.upgrade.start", { count: nodeIds.length })}
      destroyOnHidden
    >
      <Form form={form} layout="vertical" initialValues={{ batch: 0, gray: false, platform: false }} onFinish={start}>
        {errors.alert}
        <p>{nodeIds.join(" ")}</p>
        <Form.Item name="sha256" label={t("poolops.upgrade.to")} rules={[{ required: true }]}>
          <Select
            loading={releases.isPending}
            notFoundContent={t("poolops.upgrade.noReleases")}
            options={releases.data?.releases.map((r) => ({ value: r.sha256, label: r.version }))}
          />
        </Form.Item>
        <Form.Item name="batch" label={t("poolops.upgrade.batch")}>
          <InputNumber min={0} max={1000} precision={0} className="yh-w-200" />
        </Form.Item>
        <Form.Item name="gray" valuePropName="checked">
          <Checkbox>{t("poolops.upgrade.gray")}</Checkbox>
        </Form.Item>
        <Form.Item name="platform" valuePropName="checked">
          <Checkbox>{t("poolops.upgrade.withPlatform")}</Checkbox>
        </Form.Item>
        <Button type="primary" htmlType="submit" loading={busy} data-testid="upgrade">
          {t("poolops.upgrade.begin")}
        </Button>
      </Form>
    </Modal>
  );
}
