// The policies there are, in force or not.
import { Drawer, Form, Input, Segmented, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useNavigate } from "react-router";
import { call } from "../../api";
import { CreateButton, Moment, Tag } from "../../components/bits";
import { useRested } from "../../components/ExpressionInput";
import { PagedTable, usePaged } from "../../components/Pager";
import { type PolicyRecord, type PolicyScope, PolicyState } from "../../gen/yunhe/policies/v1/policies_pb";
import { NONE } from "../../lib/format";
import { newDocument, policyStateName, policyTone } from "../../lib/policies";
import { useClients, useSession } from "../../session";
import { PolicyEditor } from "./PolicyEditor";

export const policyPath = (id: string) => `/policies/${encodeURIComponent(id)}`;

export function PolicyTag({ state }: { state: PolicyState }) {
  const { t } = useTranslation();
  return <Tag tone={policyTone(state)} text={t(`record.states.${policyStateName(state)}`)} />;
}

/** A scope in words, "everywhere" if it is none. */
export function useScopeText() {
  const { t } = useTranslation();
  return (s: PolicyScope | undefined) =>
    [
      ...(s?.regions ?? []),
      ...(s?.businesses ?? []),
      ...(s?.tenants ?? []),
      ...(s?.users ?? []),
      ...(s?.centers ?? []),
      ...Object.entries(s?.labels ?? {}).map(([k, v]) => `${k}=${v}`),
    ].join(", ") || t("record.everywhere");
}

export function Records() {
  const { t } = useTranslation();
  const { policies } = useClients();
  const { can } = useSession();
  const navigate = useNavigate();
  const scope = useScopeText();
  const [which, setWhich] = useState<"all" | "issued" | "notIssued">("all");
  const [query, setQuery] = useState("");
  const rested = useRested(query.trim());
  const [creating, setCreating] = useState(false);
  const paged = usePaged({
    key: ["policies", "records", which, rested],
    everyMs: 5000,
    fetchPage: async (pageToken, signal) => {
      const res = await policies.listPolicyRecords(
        { issued: which === "issued", notIssued: which === "notIssued", query: rested, pageSize: 50, pageToken },
        call(signal),
      );
      return { items: res.records, nextPageToken: res.nextPageToken };
    },
  });
  const columns: TableColumnsType<PolicyRecord> = [
    {
      title: t("record.policy"),
      key: "policy",
      width: 250,
      ellipsis: true,
      render: (_, r) => (
        <Link to={policyPath(r.policyId)} className="yh-job-link">
          <b>{r.version?.document?.title || r.policyId}</b>
          <small>{r.policyId}</small>
        </Link>
      ),
    },
    {
      title: t("registry.state"),
      key: "state",
      width: 150,
      render: (_, r) => (
        <>
          <PolicyTag state={r.version?.state ?? PolicyState.UNSPECIFIED} />
          {r.testId && <small className="yh-reason">{t("record.compared")}</small>}
        </>
      ),
    },
    {
      title: t("record.version"),
      key: "version",
      width: 130,
      render: (_, r) => (
        <span className="yh-num">
          {r.issuedVersion > 0n ? r.issuedVersion.toString() : NONE}{" "}
          <em className="yh-of">/ {r.latestVersion.toString()}</em>
        </span>
      ),
    },
    {
      title: t("tag.priority"),
      key: "priority",
      width: 90,
      align: "right",
      render: (_, r) => <span className="yh-num">{r.version?.document?.priority ?? 0}</span>,
    },
    {
      title: t("record.scope"),
      key: "scope",
      ellipsis: true,
      render: (_, r) => scope(r.issuedVersion > 0n ? r.issuedScope : r.version?.document?.scope),
    },
    { title: t("record.issuedAt"), key: "issued", width: 132, render: (_, r) => <Moment at={r.issuedAt} /> },
    { title: t("record.issuedBy"), key: "by", width: 130, ellipsis: true, render: (_, r) => r.issuedBy || NONE },
  ];
  return (
    <>
      <Form layout="inline" className="yh-filters" role="search" aria-label={t("jobs.filters")}>
        <Segmented
          value={which}
          onChange={setWhich}
          options={[
            { value: "all", label: t("record.all") },
            { value: "issued", label: t("record.inForce") },
            { value: "notIssued", label: t("record.notInForce") },
          ]}
        />
        <Input
          allowClear
          className="yh-w-240"
          placeholder={t("record.search")}
          aria-label={t("record.search")}
          value={query}
          maxLength={64}
          onChange={(e) => setQuery(e.target.value)}
        />
        <span className="yh-grow" />
        {can("scheduler.write") && (
          <CreateButton text={t("record.create")} onClick={() => setCreating(true)} testId="new-policy" />
        )}
      </Form>
      <PagedTable
        paged={paged}
        rowKey="policyId"
        columns={columns}
        scroll={{ x: 1080 }}
        data-testid="policy-records"
        empty={t(rested || which !== "all" ? "record.noMatch" : "record.none")}
      />
      <Drawer open={creating} onClose={() => setCreating(false)} size={820} title={t("record.create")} destroyOnHidden>
        <PolicyEditor document={newDocument()} onSaved={(id) => void navigate(policyPath(id))} />
      </Drawer>
    </>
  );
}
