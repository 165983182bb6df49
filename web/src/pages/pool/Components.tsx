// The components of the pool's nodes: state, versions, and configuration and upgrade of one node or several at once.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Button, Form, InputNumber, Modal, Select, Space, Table, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Loaded, Moment, Nothing, Tag } from "../../components/bits";
import { useServerErrors } from "../../components/useServerErrors";
import { LogLevel, PoolComponent_Kind, type PoolNodeComponents } from "../../gen/yunhe/pool/v1/operation_pb";
import { formatDuration, NONE } from "../../lib/format";
import { type ConfigValues, configChange, configInCommon, levelName } from "../../lib/poolops";
import { useClients, useSession } from "../../session";
import { StartUpgrade, Upgrades } from "./Upgrades";

const PARTS = {
  [PoolComponent_Kind.UNSPECIFIED]: "node",
  [PoolComponent_Kind.NODE]: "node",
  [PoolComponent_Kind.WORKER]: "worker",
  [PoolComponent_Kind.LIBRARY]: "library",
} as const;

export function Components() {
  const { t } = useTranslation();
  const { poolOps } = useClients();
  const { can } = useSession();
  const [selected, setSelected] = useState<string[]>([]);
  const [open, setOpen] = useState(false);
  const [upgrading, setUpgrading] = useState(false);
  const list = useQuery({
    queryKey: ["pool", "components"],
    queryFn: ({ signal }) => poolOps.listPoolComponents({}, call(signal)),
    refetchInterval: 3000,
  });
  // A node may have left since.
  const chosen = selected.filter((id) => list.data?.nodes.some((n) => n.nodeId === id));
  const columns: TableColumnsType<PoolNodeComponents> = [
    { title: t("poolops.node"), key: "node", width: 140, ellipsis: true, render: (_, n) => <b>{n.nodeId}</b> },
    {
      title: t("poolops.state"),
      key: "state",
      width: 110,
      render: (_, n) => <Tag tone={n.online ? "good" : "bad"} text={t(n.online ? "pool.online" : "pool.offline")} />,
    },
    {
      title: t("poolops.component"),
      key: "parts",
      width: 380,
      render: (_, n) =>
        n.components.length === 0
          ? NONE
          : n.components.map((p) => (
              <div key={p.kind}>
                {t(`poolops.parts.${PARTS[p.kind]}`)} <span className="yh-mono">{p.version || NONE}</span>
                {p.kind === PoolComponent_Kind.WORKER && ` · ${t("poolops.running")}: ${p.running}`}
              </div>
            )),
    },
    {
      title: t("poolops.config"),
      key: "config",
      render: (_, n) => {
        const c = n.config;
        return (
          <>
            <div>
              {n.generation === 0n
                ? t("poolops.neverSet")
                : t(n.generation === n.appliedGeneration ? "poolops.taken" : "poolops.notTaken", {
                    n: String(n.generation),
                  })}
              {n.problem && `: ${n.problem}`}
            </div>
            <small className="yh-muted">
              {[
                `${t("poolops.logLevel")}: ${t(`poolops.levels.${levelName(c?.logLevel ?? LogLevel.INFO)}`)}`,
                c?.idleLimitSeconds && t("poolops.idleOf", { time: formatDuration(c.idleLimitSeconds * 1_000_000n) }),
                c?.runLimitSeconds && t("poolops.runOf", { time: formatDuration(c.runLimitSeconds * 1_000_000n) }),
              ]
                .filter(Boolean)
                .join(" · ")}
            </small>
          </>
        );
      },
    },
    { title: t("poolops.time"), key: "told", width: 140, render: (_, n) => <Moment at={n.toldAt} /> },
  ];
  return (
    <Loaded query={list} rows={3}>
      {(data) => (
        <>
          <div className="yh-tab-actions">
            <span className="yh-muted">{`${t("poolops.platformVersion")}: ${data.platformVersion}`}</span>
            {can("adapters.write") && (
              <Space>
                <Button disabled={chosen.length === 0} onClick={() => setUpgrading(true)}>
                  {t("poolops.upgrade.start", { count: chosen.length })}
                </Button>
                <Button type="primary" disabled={chosen.length === 0} onClick={() => setOpen(true)}>
                  {t("poolops.configure", { count: chosen.length })}
                </Button>
              </Space>
            )}
          </div>
          <Table
            size="small"
            rowKey="nodeId"
            columns={columns}
            dataSource={data.nodes}
            pagination={false}
            scroll={{ x: 1100 }}
            data-testid="pool-components"
            rowSelection={
              can("adapters.write")
                ? { selectedRowKeys: chosen, onChange: (keys) => setSelected(keys.map(String)) }
                : undefined
            }
            locale={{ emptyText: <Nothing text={t("pool.noNodes")} /> }}
          />
          <Upgrades />
          <StartUpgrade nodeIds={chosen} open={upgrading} done={() => setUpgrading(false)} />
          <Modal
            open={open}
            onCancel={() => setOpen(false)}
            footer={null}
            title={t("poolops.configure", { count: chosen.length })}
            destroyOnHidden
          >
            {open && (
              <Configure nodes={data.nodes.filter((n) => chosen.includes(n.nodeId))} done={() => setOpen(false)} />
            )}
          </Modal>
        </>
      )}
    </Loaded>
  );
}

function Configure({ nodes, done }: { nodes: PoolNodeComponents[]; done: () => void }) {
  const { t } = useTranslation();
  const { poolOps } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<ConfigValues>();
  const errors = useServerErrors(form, "change");
  // As it was when they were to be configured: what is asked for later may say something else.
  const [was] = useState(() => configInCommon(nodes));
  const nodeIds = nodes.map((n) => n.nodeId);
  const save = useMutation({
    mutationFn: async (v: ConfigValues) => {
      const change = configChange(was, v);
      if (change) await poolOps.configurePoolNodes({ nodeIds, change }, call());
    },
    onSuccess: async () => {
      done();
      await client.invalidateQueries({ queryKey: ["pool"] });
    },
    onError: errors.show,
  });
  const differs = (field: keyof ConfigValues) =>
    was[field] === undefined ? { placeholder: t("poolops.differs") } : {};
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={was}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      <p>{nodeIds.join(" ")}</p>
      {nodes.length > 1 && <p className="yh-muted">{t("poolops.eachKeeps")}</p>}
      <Form.Item name="logLevel" label={t("poolops.logLevel")}>
        <Select
          placeholder={t("poolops.differs")}
          options={[LogLevel.DEBUG, LogLevel.INFO, LogLevel.WARN, LogLevel.ERROR].map((value) => ({
            value,
            label: t(`poolops.levels.${levelName(value)}`),
          }))}
        />
      </Form.Item>
      <Form.Item name="idleLimitSeconds" label={t("poolops.idleLimit")}>
        <InputNumber min={0} precision={0} className="yh-w-200" {...differs("idleLimitSeconds")} />
      </Form.Item>
      <Form.Item name="runLimitSeconds" label={t("poolops.runLimit")}>
        <InputNumber min={0} precision={0} className="yh-w-200" {...differs("runLimitSeconds")} />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save">
        {t("common.save")}
      </Button>
    </Form>
  );
}
