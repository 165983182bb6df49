// The accelerator pool: its nodes and devices, what is lent and waits, and by which rules.
import { useQuery } from "@tanstack/react-query";
import { Button, Checkbox, Form, Grid, Modal, Popconfirm, Radio, Select, Table, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { allPages, call } from "../api";
import { Loaded, Moment, Nothing, Tag, UseBar } from "../components/bits";
import { PagedTable, usePaged } from "../components/Pager";
import { TabbedPage } from "../components/TabbedPage";
import {
  type PoolDevice,
  type PoolNode,
  PoolNode_Mode,
  PoolPolicy_Local,
  PoolPolicy_Spread,
  type Slice,
  Slice_State,
  SetPoolDeviceRequest_Virtualization as Virtualization,
} from "../gen/yunhe/pool/v1/pool_pb";
import { formatBytes, formatMillis, NONE } from "../lib/format";
import { EVERY_MS, MIB, share, useChange } from "../lib/pool";
import type { Tone } from "../lib/states";
import { useClients, useSession } from "../session";
import { Components } from "./pool/Components";
import { DevicePower } from "./pool/DevicePower";
import { Logs } from "./pool/Logs";
import { PoolAlarms } from "./pool/PoolAlarms";
import { Groups, Specs } from "./pool/Records";
import { Statistics } from "./pool/Statistics";

export function Pool() {
  const { t } = useTranslation();
  const tabs = [
    { key: "nodes", label: t("pool.nodes"), children: <Nodes /> },
    { key: "slices", label: t("pool.slices"), children: <Slices /> },
    { key: "specs", label: t("pool.specs"), children: <Specs /> },
    { key: "groups", label: t("pool.groups"), children: <Groups /> },
    { key: "policy", label: t("pool.policy"), children: <Policy /> },
    { key: "components", label: t("poolops.components"), children: <Components /> },
    { key: "logs", label: t("poolops.logs"), children: <Logs /> },
    { key: "alarms", label: t("poolops.alarms"), children: <PoolAlarms /> },
    { key: "statistics", label: t("poolops.statistics"), children: <Statistics /> },
  ];
  return <TabbedPage title={t("nav.pool")} sub={t("pool.sub")} tabs={tabs} />;
}

/** By what programs use a device. */
function apiName(api: string) {
  return api === CUDA ? "CUDA" : "OpenCL";
}
const CUDA = "cuda";

interface DeviceRow {
  node: PoolNode;
  device?: PoolDevice;
  first: boolean;
}

function deviceState({ node, device }: DeviceRow): {
  word: "online" | "offline" | "disabled" | "draining" | "gone" | "deviceDisabled";
  tone: Tone;
} {
  if (!node.online) return { word: "offline", tone: "bad" };
  if (node.mode === PoolNode_Mode.DRAINING) return { word: "draining", tone: "warn" };
  if (node.mode === PoolNode_Mode.DISABLED) return { word: "disabled", tone: "neutral" };
  if (device && !device.present) return { word: "gone", tone: "bad" };
  if (device?.disabled) return { word: "deviceDisabled", tone: "neutral" };
  return { word: "online", tone: "good" };
}

function Nodes() {
  const { t } = useTranslation();
  const { pool } = useClients();
  const { can } = useSession();
  // What is beside the table's other columns would cover them on a phone.
  const wide = Grid.useBreakpoint().lg;
  const list = useQuery({
    queryKey: ["pool", "nodes"],
    queryFn: async ({ signal }) => (await pool.listPoolNodes({}, call(signal))).nodes,
    refetchInterval: EVERY_MS,
  });
  const setNode = useChange((x: { nodeId: string; mode: PoolNode_Mode }) => pool.setPoolNode(x, call()));
  const setDevice = useChange(
    (x: {
      nodeId: string;
      deviceId: string;
      disabled?: boolean;
      virtualization?: Virtualization;
      powerLimitWatts?: bigint;
    }) => pool.setPoolDevice(x, call()),
  );
  const columns: TableColumnsType<DeviceRow> = [
    {
      title: t("pool.node"),
      key: "node",
      width: 150,
      ellipsis: true,
      render: (_, { node, first }) => first && <b>{node.nodeId}</b>,
    },
    {
      title: t("pool.state"),
      key: "state",
      width: 130,
      render: (_, r) => {
        const s = deviceState(r);
        return <Tag tone={s.tone} text={t(`pool.${s.word}`)} />;
      },
    },
    {
      title: t("pool.device"),
      key: "device",
      width: 240,
      ellipsis: true,
      render: (_, { device: d }) =>
        d ? (
          <span className="yh-job-link" title={d.model}>
            <b>{d.deviceId}</b>
            <small>{[d.model, d.bus].filter(Boolean).join(" · ")}</small>
          </span>
        ) : (
          NONE
        ),
    },
    {
      title: t("pool.api"),
      key: "api",
      width: 100,
      render: (_, { device: d }) =>
        d && (
          <span title={d.sameCardDeviceId && t("pool.sameCard", { device: d.sameCardDeviceId })}>
            {apiName(d.api)}
            {d.sameCardDeviceId && <small className="yh-reason">{`= ${d.sameCardDeviceId}`}</small>}
          </span>
        ),
    },
    {
      title: t("pool.kind"),
      key: "kind",
      width: 110,
      render: (_, { device: d }) =>
        d && <Tag tone={d.physical ? "waiting" : "active"} text={t(d.physical ? "pool.physical" : "pool.virtual")} />,
    },
    {
      title: t("pool.compute"),
      key: "compute",
      width: 190,
      render: (_, { device: d }) =>
        d && (
          <UseBar
            label={t("pool.compute")}
            used={d.computeLentPercent}
            total={d.computeLimitPercent}
            format={(n) => `${n} %`}
          />
        ),
    },
    {
      title: t("pool.memory"),
      key: "memory",
      width: 210,
      render: (_, { device: d }) =>
        d && (
          <UseBar
            label={t("pool.memory")}
            used={d.memoryLentMib * MIB}
            total={d.memoryLimitMib * MIB}
            format={formatBytes}
          />
        ),
    },
    {
      title: t("pool.power"),
      key: "power",
      width: 150,
      render: (_, { node: { nodeId, figures }, device: d }) =>
        d && (
          <DevicePower
            figures={figures.find((f) => f.deviceId === d.deviceId)}
            onLimit={
              can("adapters.write")
                ? (watts) => setDevice.mutate({ nodeId, deviceId: d.deviceId, powerLimitWatts: BigInt(watts) })
                : undefined
            }
          />
        ),
    },
    {
      title: t("pool.sliceCount"),
      key: "slices",
      width: 90,
      align: "right",
      render: (_, { device: d }) => <span className="yh-num">{String(d?.slices ?? 0)}</span>,
    },
  ];
  if (can("adapters.write"))
    columns.push({
      key: "actions",
      width: 300,
      align: "right",
      ...(wide && { fixed: "right" }),
      render: (_, { node: n, device: d, first }) => (
        <div className="yh-row yh-row-end yh-row-wrap">
          {d && (
            <Button
              size="small"
              onClick={() => setDevice.mutate({ nodeId: n.nodeId, deviceId: d.deviceId, disabled: !d.disabled })}
            >
              {`${t(d.disabled ? "pool.enable" : "pool.disable")} ${d.deviceId}`}
            </Button>
          )}
          {d && (
            <Button
              size="small"
              disabled={d.slices > 0n}
              title={d.slices > 0n ? t("pool.switchHelp") : undefined}
              onClick={() =>
                setDevice.mutate({
                  nodeId: n.nodeId,
                  deviceId: d.deviceId,
                  virtualization: d.physical ? Virtualization.ON : Virtualization.OFF,
                })
              }
            >
              {t(d.physical ? "pool.virtualize" : "pool.devirtualize")}
            </Button>
          )}
          {first && n.mode === PoolNode_Mode.ENABLED && (
            <Popconfirm
              title={t("pool.drainTitle", { name: n.nodeId })}
              description={t("pool.drainHelp")}
              okText={t("pool.drain")}
              onConfirm={() => setNode.mutate({ nodeId: n.nodeId, mode: PoolNode_Mode.DRAINING })}
            >
              <Button size="small">{t("pool.drain")}</Button>
            </Popconfirm>
          )}
          {first && (
            <Button
              size="small"
              onClick={() =>
                setNode.mutate({
                  nodeId: n.nodeId,
                  mode: n.mode === PoolNode_Mode.ENABLED ? PoolNode_Mode.DISABLED : PoolNode_Mode.ENABLED,
                })
              }
            >
              {`${t(n.mode === PoolNode_Mode.ENABLED ? "pool.disable" : "pool.enable")} ${n.nodeId}`}
            </Button>
          )}
        </div>
      ),
    });
  return (
    <Loaded query={list} rows={4}>
      {(nodes) => (
        <Table
          size="small"
          rowKey={({ node, device }) => `${node.nodeId}/${device?.deviceId ?? ""}`}
          columns={columns}
          dataSource={nodes.flatMap((node): DeviceRow[] =>
            node.devices.length === 0
              ? [{ node, first: true }]
              : node.devices.map((device, i) => ({ node, device, first: i === 0 })),
          )}
          expandable={{
            rowExpandable: ({ device }) => (device?.slices ?? 0n) > 0n,
            expandedRowRender: ({ node, device }) =>
              device && <SlicesOf nodeId={node.nodeId} deviceId={device.deviceId} />,
          }}
          tableLayout="fixed"
          scroll={{ x: 1520 }}
          pagination={false}
          data-testid="pool-nodes"
          locale={{ emptyText: <Nothing text={t("pool.noNodes")} /> }}
        />
      )}
    </Loaded>
  );
}

/** What of a device is lent, and to whom. */
function SlicesOf({ nodeId, deviceId }: { nodeId: string; deviceId: string }) {
  const { t } = useTranslation();
  const { pool } = useClients();
  const list = useQuery({
    queryKey: ["pool", "slices", "of", nodeId, deviceId],
    queryFn: ({ signal }) =>
      allPages(
        (pageToken) => pool.listSlices({ nodeId, deviceId, pageSize: 1000, pageToken }, call(signal)),
        (p) => p.slices,
      ),
    refetchInterval: EVERY_MS,
  });
  return (
    <Loaded query={list} rows={1}>
      {(slices) => (
        <ul className="yh-flush" data-testid="slices-of-device">
          {slices.map((s) => (
            <li key={s.sliceId}>
              <b>{s.name || NONE}</b> {s.sliceId} · {t(`pool.states.${STATES[s.state].word}`)} ·{" "}
              {String(s.computePercent)}% · {formatBytes(s.memoryMib * MIB)} · {s.userId}
            </li>
          ))}
        </ul>
      )}
    </Loaded>
  );
}

const STATES: Record<Slice_State, { word: "unknown" | "waiting" | "assigned" | "running" | "ended"; tone: Tone }> = {
  [Slice_State.UNSPECIFIED]: { word: "unknown", tone: "neutral" },
  [Slice_State.WAITING]: { word: "waiting", tone: "waiting" },
  [Slice_State.ASSIGNED]: { word: "assigned", tone: "active" },
  [Slice_State.RUNNING]: { word: "running", tone: "good" },
  [Slice_State.ENDED]: { word: "ended", tone: "neutral" },
};

const LIVE = [Slice_State.WAITING, Slice_State.ASSIGNED, Slice_State.RUNNING];

function Slices() {
  const { t } = useTranslation();
  const { pool } = useClients();
  const { can } = useSession();
  const [ended, setEnded] = useState(false);
  const [moving, setMoving] = useState<Slice>();
  const paged = usePaged({
    key: ["pool", "slices", ended],
    everyMs: EVERY_MS,
    fetchPage: async (pageToken, signal) => {
      const states = ended ? [...LIVE, Slice_State.ENDED] : LIVE;
      const res = await pool.listSlices({ pageSize: 50, pageToken, states }, call(signal));
      return { items: res.slices, nextPageToken: res.nextPageToken };
    },
  });
  const release = useChange((sliceId: string) => pool.releaseSlice({ sliceId }, call()));
  const columns: TableColumnsType<Slice> = [
    {
      title: t("pool.slice"),
      key: "slice",
      width: 250,
      ellipsis: true,
      render: (_, s) => (
        <span className="yh-job-link">
          <b>{s.name || NONE}</b>
          <small>{s.sliceId}</small>
        </span>
      ),
    },
    {
      title: t("pool.state"),
      key: "state",
      width: 220,
      ellipsis: true,
      render: (_, s) => {
        const reason = [
          s.position > 0n && t("pool.place", { n: String(s.position) }),
          s.position > 0n && s.priority !== 0 && t("pool.rank", { n: s.priority }),
          s.position > 0n && s.jobPriority !== 0 && t("pool.jobRank", { n: s.jobPriority }),
          s.movingToNodeId && t("pool.moving", { to: `${s.movingToNodeId}/${s.movingToDeviceId}` }),
          s.moveError && t("pool.notMoved", { why: s.moveError }),
          s.cardSliceIds.length > 1 &&
            t("pool.ofCards", { i: s.cardSliceIds.indexOf(s.sliceId) + 1, n: s.cardSliceIds.length }),
          s.reason,
        ]
          .filter(Boolean)
          .join(": ");
        return (
          <span title={reason}>
            <Tag tone={STATES[s.state].tone} text={t(`pool.states.${STATES[s.state].word}`)} />
            {reason && <small className="yh-reason">{reason}</small>}
          </span>
        );
      },
    },
    { title: t("pool.group"), key: "group", width: 110, ellipsis: true, render: (_, s) => s.groupId },
    { title: t("pool.user"), key: "user", width: 110, ellipsis: true, render: (_, s) => s.userId },
    {
      title: t("pool.device"),
      key: "device",
      width: 170,
      ellipsis: true,
      render: (_, s) => (s.nodeId ? `${s.nodeId}/${s.deviceId || "*"}` : NONE),
    },
    { title: t("pool.api"), key: "api", width: 90, render: (_, s) => apiName(s.api) },
    {
      title: t("pool.share"),
      key: "share",
      width: 100,
      align: "right",
      render: (_, s) => (
        <span className="yh-num">
          {s.physical ? t("pool.card") : share(s.computePercent, s.weighted, t("pool.weight"))}
        </span>
      ),
    },
    {
      title: t("pool.size"),
      key: "size",
      width: 180,
      render: (_, s) => (
        <UseBar label={t("pool.size")} used={s.memoryUsedBytes} total={s.memoryMib * MIB} format={formatBytes} />
      ),
    },
    {
      title: t("pool.time"),
      key: "time",
      width: 110,
      align: "right",
      render: (_, s) => <span className="yh-num">{formatMillis(s.deviceMicros / 1000n)}</span>,
    },
    { title: t("common.created"), key: "created", width: 132, render: (_, s) => <Moment at={s.createdAt} /> },
  ];
  if (can("jobs.write"))
    columns.push({
      key: "actions",
      width: 180,
      align: "right",
      render: (_, s) =>
        s.state !== Slice_State.ENDED && (
          <div className="yh-row yh-row-end">
            {s.state !== Slice_State.WAITING && (
              <Button
                size="small"
                disabled={s.movingToNodeId !== "" || stays(s)}
                title={stays(s) ? t("pool.stays") : undefined}
                onClick={() => setMoving(s)}
              >
                {t("pool.migrate")}
              </Button>
            )}
            <Popconfirm
              title={t("pool.releaseTitle")}
              description={t("pool.releaseHelp")}
              okText={t("pool.release")}
              okButtonProps={{ danger: true }}
              onConfirm={() => release.mutate(s.sliceId)}
            >
              <Button size="small">{t("pool.release")}</Button>
            </Popconfirm>
          </div>
        ),
    });
  return (
    <>
      <div className="yh-tab-actions">
        <Checkbox checked={ended} onChange={(e) => setEnded(e.target.checked)}>
          {t("pool.showEnded")}
        </Checkbox>
      </div>
      <PagedTable
        paged={paged}
        rowKey="sliceId"
        columns={columns}
        scroll={{ x: 1660 }}
        data-testid="slices"
        empty={t("pool.noSlices")}
      />
      <Modal
        open={moving !== undefined}
        onCancel={() => setMoving(undefined)}
        footer={null}
        title={t("pool.migrate")}
        destroyOnHidden
      >
        {moving && <Move slice={moving} done={() => setMoving(undefined)} />}
      </Modal>
    </>
  );
}

/** Programs of CUDA do not move. */
function stays(s: Slice) {
  return s.api === CUDA && s.state === Slice_State.RUNNING;
}

/** Moves a slice to a device of another node, or another of its own. */
function Move({ slice, done }: { slice: Slice; done: () => void }) {
  const { t } = useTranslation();
  const { pool } = useClients();
  const nodes = useQuery({
    queryKey: ["pool", "nodes"],
    queryFn: async ({ signal }) => (await pool.listPoolNodes({}, call(signal))).nodes,
  });
  const move = useChange(async (to: string) => {
    const [nodeId = "", deviceId = ""] = to.split("/");
    await pool.moveSlice({ sliceId: slice.sliceId, nodeId, deviceId }, call());
    done();
  });
  const at = nodes.data?.find((n) => n.nodeId === slice.nodeId)?.devices.find((d) => d.deviceId === slice.deviceId);
  const targets = (nodes.data ?? [])
    .filter((n) => n.online && n.mode === PoolNode_Mode.ENABLED)
    .flatMap((n) => n.devices.map((d) => ({ id: `${n.nodeId}/${d.deviceId}`, d })))
    .filter(
      ({ id, d }) =>
        id !== `${slice.nodeId}/${slice.deviceId}` &&
        !d.disabled &&
        d.api === slice.api &&
        d.model === at?.model &&
        d.driver === at?.driver,
    );
  return (
    <Form layout="vertical" onFinish={(v: { to: string }) => move.mutate(v.to)}>
      <p>{t("pool.migrateHelp")}</p>
      <Form.Item name="to" label={t("pool.target")} rules={[{ required: true }]}>
        <Select options={targets.map(({ id }) => ({ value: id, label: id }))} />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={move.isPending} data-testid="migrate">
        {t("pool.migrate")}
      </Button>
    </Form>
  );
}

function Policy() {
  const { t } = useTranslation();
  const { pool } = useClients();
  const { can } = useSession();
  const policy = useQuery({
    queryKey: ["pool", "policy"],
    queryFn: ({ signal }) => pool.getPoolPolicy({}, call(signal)),
  });
  const save = useChange((p: { local?: PoolPolicy_Local; nodes?: PoolPolicy_Spread; devices?: PoolPolicy_Spread }) =>
    pool.setPoolPolicy({ policy: p }, call()),
  );
  const disabled = !can("scheduler.write") || save.isPending;
  const spreads = [
    { value: PoolPolicy_Spread.BALANCED, label: t("pool.spreads.balanced") },
    { value: PoolPolicy_Spread.COMPACT, label: t("pool.spreads.compact") },
  ];
  return (
    <Loaded query={policy} rows={3}>
      {(p) => (
        <Form layout="vertical" className="yh-pad" data-testid="pool-policy">
          <p>{t("pool.policyHelp")}</p>
          <Form.Item label={t("pool.local")}>
            <Radio.Group
              optionType="button"
              value={p.local}
              disabled={disabled}
              onChange={(e) => save.mutate({ local: e.target.value as PoolPolicy_Local })}
              options={[
                { value: PoolPolicy_Local.ANY, label: t("pool.locals.any") },
                { value: PoolPolicy_Local.FIRST, label: t("pool.locals.first") },
                { value: PoolPolicy_Local.ONLY, label: t("pool.locals.only") },
              ]}
            />
          </Form.Item>
          <Form.Item label={t("pool.spreadNodes")}>
            <Radio.Group
              optionType="button"
              value={p.nodes}
              disabled={disabled}
              onChange={(e) => save.mutate({ nodes: e.target.value as PoolPolicy_Spread })}
              options={spreads}
            />
          </Form.Item>
          <Form.Item label={t("pool.spreadDevices")}>
            <Radio.Group
              optionType="button"
              value={p.devices}
              disabled={disabled}
              onChange={(e) => save.mutate({ devices: e.target.value as PoolPolicy_Spread })}
              options={spreads}
            />
          </Form.Item>
        </Form>
      )}
    </Loaded>
  );
}
