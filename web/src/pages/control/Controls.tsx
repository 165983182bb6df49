// Nodes that are to be otherwise than free, with whether they are.
import type { TableColumnsType } from "antd";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call } from "../../api";
import { Moment, Tag } from "../../components/bits";
import { NodeActions } from "../../components/NodeControl";
import { PagedTable, usePaged } from "../../components/Pager";
import type { NodeControl } from "../../gen/yunhe/control/v1/control_pb";
import { NONE } from "../../lib/format";
import { useCenterNames } from "../../queries";
import { useClients, useSession } from "../../session";

const PAGE = 50;

export function Controls() {
  const { t } = useTranslation();
  const { control } = useClients();
  const { can } = useSession();
  const centerName = useCenterNames();
  const paged = usePaged({
    key: ["node-controls", "all"],
    everyMs: 5000,
    fetchPage: async (pageToken, signal) => {
      const res = await control.listNodeControls({ pageSize: PAGE, pageToken }, call(signal));
      return { items: res.controls, nextPageToken: res.nextPageToken };
    },
  });
  const columns: TableColumnsType<NodeControl> = [
    { title: t("node.name"), key: "node", width: 180, ellipsis: true, render: (_, c) => <b>{c.node}</b> },
    {
      title: t("center.name"),
      key: "center",
      width: 170,
      ellipsis: true,
      render: (_, c) => <Link to={`/centers/${encodeURIComponent(c.aiCenterId)}`}>{centerName(c.aiCenterId)}</Link>,
    },
    {
      title: t("allocation.wanted"),
      key: "wanted",
      width: 210,
      ellipsis: true,
      render: (_, c) =>
        c.allocationId ? (
          <Link to={`/allocations?id=${encodeURIComponent(c.allocationId)}`}>{c.allocationId}</Link>
        ) : c.maintenanceId ? (
          <Link to="/allocations?tab=maintenance">{t("calendar.maintenance")}</Link>
        ) : c.isolated ? (
          t("allocation.isolated")
        ) : (
          t("allocation.free")
        ),
    },
    {
      title: t("registry.state"),
      key: "state",
      width: 170,
      render: (_, c) =>
        c.applied ? (
          <Tag tone="good" text={t("allocation.done")} />
        ) : (
          <Tag tone="waiting" text={t("allocation.notYet")} />
        ),
    },
    {
      title: t("control.reason"),
      key: "reason",
      ellipsis: true,
      render: (_, c) => [c.reason, c.problem].filter(Boolean).join(" · ") || NONE,
    },
    { title: t("operation.by"), key: "by", width: 110, ellipsis: true, render: (_, c) => c.userName || NONE },
    { title: t("node.changed"), key: "changed", width: 132, render: (_, c) => <Moment at={c.changedAt} /> },
  ];
  if (can("registry.write"))
    columns.push({
      key: "actions",
      width: 210,
      align: "right",
      render: (_, c) => <NodeActions aiCenterId={c.aiCenterId} node={c.node} isolated={c.isolated} small />,
    });
  return (
    <>
      <p className="yh-muted yh-pad yh-flat">{t("allocation.controlsHelp")}</p>
      <PagedTable
        paged={paged}
        rowKey={(c) => `${c.aiCenterId}/${c.node}`}
        columns={columns}
        scroll={{ x: 1280 }}
        data-testid="node-controls"
        empty={t("allocation.allFree")}
      />
    </>
  );
}
