import { Button, Form, Input, Table } from "antd";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Loaded, Moment, Nothing, Tag } from "../../components/bits";
import { type AuditFilter, useAudit } from "../../queries";

export function Audit() {
  const { t } = useTranslation();
  const [filter, setFilter] = useState<AuditFilter>({ userId: "", method: "" });
  const audit = useAudit(filter);
  const rows = useMemo(() => audit.data?.pages.flatMap((p) => p.events), [audit.data]);
  return (
    <>
      <Form layout="inline" className="yh-filters" role="search" aria-label={t("jobs.filters")}>
        <Input.Search
          allowClear
          className="yh-w-180"
          placeholder={t("jobs.userId")}
          aria-label={t("jobs.userId")}
          onSearch={(userId) => setFilter((f) => ({ ...f, userId: userId.trim() }))}
        />
        <Input.Search
          allowClear
          className="yh-w-320"
          placeholder={t("audit.methodExample")}
          aria-label={t("audit.method")}
          onSearch={(method) => setFilter((f) => ({ ...f, method: method.trim() }))}
        />
        <Button onClick={() => void audit.refetch()} loading={audit.isRefetching}>
          {t("common.refresh")}
        </Button>
      </Form>
      <Loaded query={{ ...audit, data: rows }}>
        {(list) => (
          <Table
            size="small"
            rowKey="eventId"
            dataSource={list}
            loading={audit.isPlaceholderData}
            pagination={false}
            tableLayout="fixed"
            scroll={{ x: 1000 }}
            locale={{ emptyText: <Nothing text={t("audit.none")} /> }}
            columns={[
              { title: t("audit.at"), key: "at", width: 140, render: (_, e) => <Moment at={e.at} /> },
              {
                title: t("audit.who"),
                key: "who",
                width: 160,
                ellipsis: true,
                render: (_, e) => `${e.userId} · ${e.tenantId}`,
              },
              {
                title: t("audit.method"),
                key: "method",
                ellipsis: true,
                render: (_, e) => <code>{e.method.replace(/^yunhe\./, "")}</code>,
              },
              {
                title: t("audit.subject"),
                key: "subject",
                width: 250,
                ellipsis: true,
                render: (_, e) => e.subject && <code>{e.subject}</code>,
              },
              {
                title: t("audit.outcome"),
                key: "outcome",
                width: 180,
                ellipsis: true,
                render: (_, e) => <Tag tone={e.outcome === "OK" ? "good" : "bad"} text={e.outcome} />,
              },
              { title: t("audit.remote"), dataIndex: "remote", key: "remote", width: 150, ellipsis: true },
            ]}
          />
        )}
      </Loaded>
      {audit.hasNextPage && (
        <div className="yh-more">
          <Button onClick={() => void audit.fetchNextPage()} loading={audit.isFetchingNextPage}>
            {t("common.more")}
          </Button>
        </div>
      )}
    </>
  );
}
