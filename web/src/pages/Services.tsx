// Services: jobs that answer requests, and the weights by which these are sent.
import { PlusOutlined } from "@ant-design/icons";
import { Button, Modal, Table, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call } from "../api";
import { Moment, Nothing, PageHead, Panel } from "../components/bits";
import { PagedRows, usePaged } from "../components/Pager";
import type { Service } from "../gen/yunhe/routing/v1/routing_pb";
import { formatCount } from "../lib/format";
import { useClients, useSession } from "../session";
import { ServiceForm } from "./services/ServiceForm";

export function Services() {
  const { t } = useTranslation();
  const { routing } = useClients();
  const { can } = useSession();
  const [open, setOpen] = useState(false);
  const paged = usePaged({
    key: ["services"],
    everyMs: 5000,
    fetchPage: async (pageToken, signal) => {
      const res = await routing.listServices({ pageSize: 50, pageToken }, call(signal));
      return { items: res.services, nextPageToken: res.nextPageToken };
    },
  });
  const columns: TableColumnsType<Service> = [
    {
      title: t("service.service"),
      key: "name",
      ellipsis: true,
      render: (_, s) => (
        <Link to={`/services/${encodeURIComponent(s.serviceId)}`} className="yh-job-link">
          <b>{s.name}</b>
          <small>{s.serviceId}</small>
        </Link>
      ),
    },
    { title: t("registry.tenant"), key: "tenant", width: 140, ellipsis: true, render: (_, s) => s.tenantId },
    {
      title: t("service.jobs"),
      key: "jobs",
      width: 90,
      align: "right",
      render: (_, s) => formatCount(s.jobIds.length),
    },
    {
      title: t("service.origins"),
      key: "origins",
      width: 150,
      align: "right",
      render: (_, s) => formatCount(s.origins.length),
    },
    {
      title: t("service.rate"),
      key: "rate",
      width: 220,
      align: "right",
      render: (_, s) => (
        <span className="yh-num">
          {s.replicaRate} {t("service.perSecond")}
        </span>
      ),
    },
    { title: t("common.created"), key: "created", width: 140, render: (_, s) => <Moment at={s.createdAt} /> },
  ];
  return (
    <>
      <PageHead
        title={t("nav.services")}
        sub={t("service.sub")}
        extra={
          can("jobs.write") && (
            <Button
              type="primary"
              icon={<PlusOutlined aria-hidden />}
              onClick={() => setOpen(true)}
              data-testid="new-service"
            >
              {t("service.create")}
            </Button>
          )
        }
      />
      <Panel flush>
        <PagedRows paged={paged}>
          {(rows) => (
            <Table
              size="small"
              rowKey="serviceId"
              columns={columns}
              dataSource={rows}
              loading={paged.stale}
              scroll={{ x: 900 }}
              pagination={false}
              data-testid="services"
              locale={{ emptyText: <Nothing text={t("service.none")} /> }}
            />
          )}
        </PagedRows>
      </Panel>
      <Modal
        open={open}
        onCancel={() => setOpen(false)}
        footer={null}
        width={720}
        title={t("service.create")}
        destroyOnHidden
      >
        <ServiceForm onDone={() => setOpen(false)} />
      </Modal>
    </>
  );
}
