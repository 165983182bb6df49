import { DeploymentUnitOutlined, LinkOutlined } from "@ant-design/icons";
import { Button, Input, Table, type TableColumnsType } from "antd";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { CenterTag, Loaded, Moment, Nothing, PageHead, Panel, UseBar } from "../components/bits";
import type { Center } from "../gen/yunhe/registry/v1/registry_pb";
import { formatCount, formatMiB, NONE } from "../lib/format";
import { useCenters } from "../queries";
import { useSession } from "../session";

export function Centers() {
  const { t } = useTranslation();
  const { can } = useSession();
  const centers = useCenters();
  const [search, setSearch] = useState("");
  const shown = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    return centers.data?.filter((c) =>
      [c.name, c.aiCenterId, c.region].some((text) => text.toLowerCase().includes(wanted)),
    );
  }, [centers.data, search]);
  return (
    <>
      <PageHead
        title={t("nav.centers")}
        sub={t("centers.sub")}
        extra={
          <div className="yh-row">
            <Input.Search
              allowClear
              className="yh-w-200"
              placeholder={t("centers.search")}
              aria-label={t("centers.search")}
              onChange={(e) => setSearch(e.target.value)}
            />
            <Link to="/topology">
              <Button icon={<DeploymentUnitOutlined aria-hidden />}>{t("nav.topology")}</Button>
            </Link>
            {can("adapters.write") && (
              <Link to="/connect">
                <Button type="primary" icon={<LinkOutlined />}>
                  {t("centers.connect")}
                </Button>
              </Link>
            )}
          </div>
        }
      />
      <Panel flush>
        <Loaded query={{ ...centers, data: shown }} rows={8}>
          {(list) => <CenterTable centers={list} />}
        </Loaded>
      </Panel>
    </>
  );
}

function CenterTable({ centers }: { centers: Center[] }) {
  const { t } = useTranslation();
  const accelerators = centers.some((c) => c.resources && c.resources.gpu + c.resources.npu + c.resources.mlu > 0n);
  const columns: TableColumnsType<Center> = [
    {
      title: t("center.name"),
      key: "name",
      ellipsis: true,
      width: 160,
      sorter: (a, b) => (a.name < b.name ? -1 : 1),
      render: (_, c) => (
        <Link to={`/centers/${encodeURIComponent(c.aiCenterId)}`} className="yh-job-link">
          <b>{c.name || c.aiCenterId}</b>
          <small>{c.aiCenterId}</small>
        </Link>
      ),
    },
    {
      title: t("center.status"),
      key: "status",
      width: 104,
      render: (_, c) => <CenterTag status={c.status} drained={c.drained} />,
    },
    {
      title: t("center.region"),
      dataIndex: "region",
      key: "region",
      width: 96,
      ellipsis: true,
      sorter: (a, b) => (a.region < b.region ? -1 : 1),
    },
    {
      title: t("resource.cpu"),
      key: "cpu",
      width: 140,
      sorter: (a, b) => Number((a.monitoring?.cpuUsed ?? 0n) - (b.monitoring?.cpuUsed ?? 0n)),
      render: (_, c) => (
        <UseBar
          label={t("resource.cpu")}
          used={c.monitoring?.cpuUsed ?? 0n}
          total={c.resources?.cpu ?? 0n}
          format={formatCount}
        />
      ),
    },
    {
      title: t("resource.memory"),
      key: "memory",
      width: 160,
      render: (_, c) => (
        <UseBar
          label={t("resource.memory")}
          used={c.monitoring?.memoryUsed ?? 0n}
          total={c.resources?.memory ?? 0n}
          format={formatMiB}
        />
      ),
    },
  ];
  if (accelerators) {
    columns.push({
      title: t("resource.accelerators"),
      key: "accelerators",
      width: 120,
      render: (_, c) => {
        const total = c.resources ? c.resources.gpu + c.resources.npu + c.resources.mlu : 0n;
        if (total === 0n) return <span className="yh-none">{NONE}</span>;
        const m = c.monitoring;
        return (
          <UseBar
            label={t("resource.accelerators")}
            used={m ? m.gpuUsed + m.npuUsed + m.mluUsed : 0n}
            total={total}
            format={formatCount}
          />
        );
      },
    });
  }
  columns.push(
    {
      title: t("center.runningWaiting"),
      key: "running",
      width: 100,
      align: "right",
      sorter: (a, b) => Number((a.monitoring?.runningTaskNum ?? 0n) - (b.monitoring?.runningTaskNum ?? 0n)),
      render: (_, c) => (
        <span className="yh-num">
          {c.monitoring
            ? `${formatCount(c.monitoring.runningTaskNum)} / ${formatCount(c.monitoring.waitingTaskNum)}`
            : NONE}
        </span>
      ),
    },
    {
      title: t("center.grade"),
      key: "grade",
      width: 76,
      align: "right",
      render: (_, c) => <span className="yh-num">{c.securityGrade.toString()}</span>,
    },
    { title: t("center.lastSeen"), key: "seen", width: 124, render: (_, c) => <Moment at={c.lastSeenAt} /> },
  );
  return (
    <Table
      size="small"
      rowKey="aiCenterId"
      columns={columns}
      dataSource={centers}
      tableLayout="fixed"
      scroll={{ x: accelerators ? 1010 : 900 }}
      pagination={centers.length > 100 ? { pageSize: 100, showSizeChanger: false, size: "small" } : false}
      locale={{ emptyText: <Nothing text={t("centers.none")} /> }}
    />
  );
}
