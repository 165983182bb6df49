// What was changed, by whom or which rule, latest first.
import { Form, Input, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Moment } from "../../components/bits";
import { PagedTable, usePaged } from "../../components/Pager";
import { Source, type TagChangeRecord } from "../../gen/yunhe/tags/v1/tags_pb";
import { NONE } from "../../lib/format";
import { useClients } from "../../session";

const FIELDS = ["subject", "key", "batchId"] as const;

export function History() {
  const { t } = useTranslation();
  const { tags } = useClients();
  const [filter, setFilter] = useState({ subject: "", key: "", batchId: "" });
  const [typed, setTyped] = useState(filter);
  const paged = usePaged({
    key: ["tags", "history", filter],
    everyMs: 5000,
    fetchPage: async (pageToken, signal) => {
      const res = await tags.listTagChanges({ ...filter, pageSize: 50, pageToken }, call(signal));
      return { items: res.changes, nextPageToken: res.nextPageToken };
    },
  });
  const value = (text: string, blocked: boolean) => (blocked ? t("tag.blocked") : text || NONE);
  const columns: TableColumnsType<TagChangeRecord> = [
    { title: t("audit.at"), key: "at", width: 132, render: (_, c) => <Moment at={c.at} /> },
    { title: t("tag.object"), key: "subject", width: 210, ellipsis: true, render: (_, c) => <code>{c.subject}</code> },
    { title: t("tag.tag"), key: "key", width: 150, ellipsis: true, render: (_, c) => c.key || NONE },
    {
      title: t("tag.before"),
      key: "before",
      width: 180,
      ellipsis: true,
      render: (_, c) => value(c.before, c.beforeBlocked),
    },
    {
      title: t("tag.after"),
      key: "after",
      width: 180,
      ellipsis: true,
      render: (_, c) => <b>{value(c.after, c.afterBlocked)}</b>,
    },
    {
      title: t("tag.by"),
      key: "by",
      width: 170,
      ellipsis: true,
      render: (_, c) =>
        c.source === Source.RULE
          ? t("tag.byRule", { rule: c.origin || t("tag.platform") })
          : c.origin || t("tag.platform"),
    },
    { title: t("tag.reason"), key: "reason", width: 180, ellipsis: true, render: (_, c) => c.reason || NONE },
    { title: t("tag.batchId"), key: "batch", width: 140, ellipsis: true, render: (_, c) => c.batchId || NONE },
  ];
  return (
    <>
      <Form
        layout="inline"
        className="yh-filters"
        role="search"
        aria-label={t("jobs.filters")}
        onFinish={() => setFilter(typed)}
      >
        {FIELDS.map((f) => (
          <Input
            key={f}
            allowClear
            className="yh-w-240"
            placeholder={t(`tag.historyOf.${f}`)}
            aria-label={t(`tag.historyOf.${f}`)}
            value={typed[f]}
            onChange={(e) => {
              const next = { ...typed, [f]: e.target.value.trim() };
              setTyped(next);
              if (e.target.value === "") setFilter(next);
            }}
            onBlur={() => setFilter(typed)}
            onPressEnter={() => setFilter(typed)}
          />
        ))}
      </Form>
      <PagedTable
        paged={paged}
        rowKey="changeId"
        columns={columns}
        scroll={{ x: 1340 }}
        data-testid="tag-history"
        empty={t("tag.noHistory")}
      />
    </>
  );
}
