// Services: jobs that answer requests, and the weights by which these are sent.
import { Modal, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call } from "../api";
import { CreateButton, Moment, PageHead, Panel } from "../components/bits";
import { PagedTable, usePaged } from "../components/Pager";
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
            <CreateButton text={t("service.create")} onClick={() => setOpen(true)} testId="new-service" />
          )
        }
      />
      <Panel flush>
        <PagedTable
          paged={paged}
          rowKey="serviceId"
          columns={columns}
          scroll={{ x: 900 }}
          data-testid="services"
          empty={t("service.none")}
        />
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
