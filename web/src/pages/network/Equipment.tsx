// Switches, routers and the like: how they and their ports are, and the rules of their alarms.
import { useQuery } from "@tanstack/react-query";
import { Button, Descriptions, Modal, Segmented, Table, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call } from "../../api";
import { AlarmRules } from "../../components/AlarmRules";
import { Loaded, Moment, Tag } from "../../components/bits";
import { PagedTable, usePaged } from "../../components/Pager";
import type { Port } from "../../gen/yunhe/adapter/v1/adapter_pb";
import type { NetworkEquipment } from "../../gen/yunhe/network/v1/equipment_pb";
import { equipmentKind, equipmentRule, equipmentState, leadsTo, percentOf, portState } from "../../lib/equipment";
import { formatCount, NONE } from "../../lib/format";
import { useCenterNames } from "../../queries";
import { useClients, useSession } from "../../session";

function State({ of }: { of: NetworkEquipment }) {
  const { t } = useTranslation();
  const state = equipmentState(of.equipment?.state ?? 0);
  return (
    <>
      <Tag tone={state.tone} text={t(`network.equipment.states.${state.name}`)} />
      {of.silent && <small className="yh-muted"> {t("network.equipment.silent")}</small>}
    </>
  );
}

export function Equipment() {
  const { t } = useTranslation();
  const { equipment } = useClients();
  const centerName = useCenterNames();
  const [troubled, setTroubled] = useState(false);
  const [chosen, setChosen] = useState<NetworkEquipment>();
  const paged = usePaged({
    key: ["equipment", "list", troubled],
    everyMs: 5000,
    fetchPage: async (pageToken, signal) => {
      const res = await equipment.listEquipment({ pageSize: 50, pageToken, troubled }, call(signal));
      return { items: res.equipment, nextPageToken: res.nextPageToken };
    },
  });
  const columns: TableColumnsType<NetworkEquipment> = [
    {
      title: t("network.equipment.name"),
      key: "name",
      render: (_, e) => (
        <Button type="link" size="small" className="yh-flush" onClick={() => setChosen(e)}>
          {e.equipment?.name}
        </Button>
      ),
    },
    {
      title: t("plugin.center"),
      key: "center",
      render: (_, e) => <Link to={`/centers/${encodeURIComponent(e.aiCenterId)}`}>{centerName(e.aiCenterId)}</Link>,
    },
    {
      title: t("network.equipment.kind"),
      key: "kind",
      render: (_, e) => t(`network.equipment.kinds.${equipmentKind(e.equipment?.kind ?? 0)}`),
    },
    { title: t("network.equipment.state"), key: "state", render: (_, e) => <State of={e} /> },
    {
      title: t("network.equipment.ports"),
      key: "ports",
      align: "right",
      render: (_, e) => (
        <span className="yh-num">
          {e.portsDown > 0n
            ? t("network.equipment.portsDown", { ports: formatCount(e.ports), down: formatCount(e.portsDown) })
            : formatCount(e.ports)}
        </span>
      ),
    },
    {
      title: t("network.equipment.errors"),
      key: "errors",
      align: "right",
      render: (_, e) => <span className="yh-num">{percentOf(e.worstErrorsPpm) || NONE}</span>,
    },
    {
      title: t("network.loss"),
      key: "loss",
      align: "right",
      render: (_, e) => <span className="yh-num">{percentOf(e.worstLossPpm) || NONE}</span>,
    },
    { title: t("network.since"), key: "since", width: 150, render: (_, e) => <Moment at={e.since} /> },
    { title: t("network.equipment.source"), key: "source", render: (_, e) => e.source },
  ];
  return (
    <>
      <div className="yh-tab-actions">
        <Segmented
          value={troubled ? "troubled" : "all"}
          onChange={(v) => setTroubled(v === "troubled")}
          options={[
            { value: "all", label: t("network.equipment.all") },
            { value: "troubled", label: t("network.equipment.troubled") },
          ]}
        />
      </div>
      <PagedTable
        paged={paged}
        rowKey={(e) => `${e.aiCenterId}/${e.equipment?.name}`}
        columns={columns}
        scroll={{ x: 1100 }}
        data-testid="equipment"
        empty={troubled ? t("network.equipment.noneTroubled") : t("network.equipment.none")}
      />
      <Modal
        open={!!chosen}
        onCancel={() => setChosen(undefined)}
        footer={null}
        title={chosen?.equipment?.name}
        width={900}
        destroyOnHidden
      >
        {chosen && <Detail of={chosen} />}
      </Modal>
    </>
  );
}

function Detail({ of }: { of: NetworkEquipment }) {
  const { t } = useTranslation();
  const { equipment } = useClients();
  const name = of.equipment?.name ?? "";
  const query = useQuery({
    queryKey: ["equipment", "of", of.aiCenterId, name],
    queryFn: ({ signal }) => equipment.getEquipment({ aiCenterId: of.aiCenterId, name }, call(signal)),
    refetchInterval: 5000,
  });
  const columns: TableColumnsType<Port> = [
    { title: t("network.equipment.port"), key: "name", render: (_, p) => p.name },
    {
      title: t("network.equipment.state"),
      key: "state",
      render: (_, p) => (
        <>
          <Tag tone={portState(p.state).tone} text={t(`network.equipment.states.${portState(p.state).name}`)} />
          {p.reason && <small className="yh-muted"> {p.reason}</small>}
        </>
      ),
    },
    { title: t("network.equipment.leadsTo"), key: "peer", render: (_, p) => leadsTo(p) || NONE },
    {
      title: t("network.equipment.errors"),
      key: "errors",
      align: "right",
      render: (_, p) => <span className="yh-num">{percentOf(p.errorsPpm) || NONE}</span>,
    },
    {
      title: t("network.loss"),
      key: "loss",
      align: "right",
      render: (_, p) => <span className="yh-num">{percentOf(p.lossPpm) || NONE}</span>,
    },
  ];
  return (
    <Loaded query={query} rows={4}>
      {(e) => (
        <>
          <Descriptions
            column={2}
            size="small"
            items={[
              { key: "s", label: t("network.equipment.state"), children: <State of={e} /> },
              { key: "r", label: t("network.equipment.reason"), children: e.equipment?.reason || NONE },
              {
                key: "m",
                label: t("network.equipment.model"),
                children: [e.equipment?.vendor, e.equipment?.model].filter(Boolean).join(" ") || NONE,
              },
              { key: "a", label: t("network.equipment.address"), children: e.equipment?.address || NONE },
            ]}
          />
          <Table
            size="small"
            rowKey="name"
            columns={columns}
            dataSource={e.equipment?.ports}
            pagination={{ pageSize: 50, hideOnSinglePage: true }}
            data-testid="ports"
          />
        </>
      )}
    </Loaded>
  );
}

export function EquipmentRules() {
  const { t } = useTranslation();
  const { equipment } = useClients();
  const { can } = useSession();
  return (
    <AlarmRules
      queryKey={["equipment"]}
      list={async (signal) => (await equipment.listEquipmentRules({}, call(signal))).rules}
      set={(rule) => equipment.setEquipmentRule({ rule }, call())}
      keyOf={(r) => equipmentRule(r.kind).name}
      nameOf={(r) => t(`alarm.kinds.${equipmentRule(r.kind).name}`)}
      unitOf={(r) =>
        equipmentRule(r.kind).unit === "none" ? "" : t(`network.equipment.units.${equipmentRule(r.kind).unit}`)
      }
      write={can("registry.write")}
      testId="equipment-rules"
    />
  );
}
