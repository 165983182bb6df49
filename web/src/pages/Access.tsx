// How resources are accessed: compliance, health, figures; the report of one
// resource; the rules, each on or off.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Drawer, Select, Switch, Table, type TableColumnsType, Tabs } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useSearchParams } from "react-router";
import { call } from "../api";
import { AccessReportView, ComplianceTag, HealthTag, pathText } from "../components/AccessBits";
import { Loaded, Moment, PageHead, Panel } from "../components/bits";
import { PagedRows, usePaged } from "../components/Pager";
import {
  type AccessRecord,
  type AccessRule,
  Compliance,
  type RuleSummary,
  Severity,
} from "../gen/yunhe/access/v1/access_pb";
import { kindKey, severityKey, sourceKey, statusKey } from "../lib/access";
import { formatCount, NONE } from "../lib/format";
import { useClients, useSession } from "../session";

const EVERY_MS = 5000;
const PAGE = 50;

export function Access() {
  const { t } = useTranslation();
  return (
    <>
      <PageHead title={t("nav.access")} sub={t("access.sub")} />
      <Tabs
        items={[
          { key: "records", label: t("access.records"), children: <Records /> },
          { key: "rules", label: t("access.rules"), children: <Rules /> },
        ]}
      />
    </>
  );
}

function Records() {
  const { t } = useTranslation();
  const { access } = useClients();
  const [params, setParams] = useSearchParams();
  const [compliance, setCompliance] = useState(Compliance.UNSPECIFIED);
  const shown = params.get("resource") ?? "";
  const paged = usePaged({
    key: ["access", "records", compliance],
    everyMs: EVERY_MS,
    fetchPage: async (pageToken, signal) => {
      const page = await access.listAccessRecords({ pageSize: PAGE, pageToken, compliance }, call(signal));
      return { items: page.records, nextPageToken: page.nextPageToken };
    },
  });
  const columns: TableColumnsType<AccessRecord> = [
    {
      title: t("access.resource"),
      key: "resource",
      width: 200,
      ellipsis: true,
      render: (_, r) => (
        <Link to={`/access?resource=${encodeURIComponent(r.resourceId)}`}>
          <b>{r.name || r.resourceId}</b>
        </Link>
      ),
    },
    { title: t("access.source"), key: "source", width: 150, render: (_, r) => t(sourceKey(r.sourceType)) },
    { title: t("access.protocol"), key: "protocol", width: 170, render: (_, r) => r.protocolType },
    {
      title: t("access.compliance"),
      key: "compliance",
      width: 130,
      render: (_, r) => <ComplianceTag status={r.complianceStatus} />,
    },
    { title: t("access.health"), key: "health", width: 120, render: (_, r) => <HealthTag status={r.healthStatus} /> },
    {
      title: t("access.cpu"),
      key: "cpu",
      width: 80,
      align: "right",
      render: (_, r) =>
        r.computeMetrics?.cpuBusyRatio === undefined ? NONE : `${(r.computeMetrics.cpuBusyRatio * 100).toFixed(1)} %`,
    },
    {
      title: t("access.path"),
      key: "path",
      width: 240,
      render: (_, r) => (r.paths[0] ? pathText(t, r.paths[0]) : NONE),
    },
    { title: t("access.class"), key: "class", width: 110, render: (_, r) => r.classId || NONE },
    { title: t("access.synced"), key: "synced", width: 130, render: (_, r) => <Moment at={r.syncedAt} /> },
  ];
  return (
    <>
      <Select
        className="yh-w-200"
        aria-label={t("access.compliance")}
        value={compliance}
        onChange={setCompliance}
        options={[Compliance.UNSPECIFIED, Compliance.COMPLIANT, Compliance.NON_COMPLIANT, Compliance.UNKNOWN].map(
          (c) => ({
            value: c,
            label: t(statusKey(c)),
          }),
        )}
      />
      <Panel flush>
        <PagedRows paged={paged}>
          {(rows) => (
            <Table
              size="middle"
              rowKey="resourceId"
              columns={columns}
              dataSource={rows}
              loading={paged.stale}
              pagination={false}
              scroll={{ x: 1330 }}
            />
          )}
        </PagedRows>
      </Panel>
      <Drawer
        open={shown !== ""}
        size="large"
        title={shown}
        onClose={() => setParams({}, { replace: true })}
        destroyOnHidden
      >
        {shown && <AccessReportView resourceId={shown} />}
      </Drawer>
    </>
  );
}

function Rules() {
  const { t, i18n } = useTranslation();
  const { access } = useClients();
  const { can } = useSession();
  const { message } = App.useApp();
  const client = useQueryClient();
  const summary = useQuery({
    queryKey: ["access", "summary"],
    queryFn: ({ signal }) => access.getAccessSummary({}, call(signal)),
    refetchInterval: EVERY_MS,
  });
  const done = () => client.invalidateQueries({ queryKey: ["access"] });
  const failed = (error: Error) => void message.error(error.message);
  const turn = useMutation({
    mutationFn: (rule: AccessRule) => access.putAccessRule({ rule }, call()),
    onSuccess: done,
    onError: failed,
  });
  const enforce = useMutation({
    mutationFn: (on: boolean) => access.setAccessSettings({ settings: { enforce: on } }, call()),
    onSuccess: done,
    onError: failed,
  });
  const title = (r: AccessRule | undefined) => (i18n.language === "zh" && r?.titleZh) || r?.title || r?.ruleId;
  const count = (n: bigint) => <span className="yh-num">{formatCount(n)}</span>;
  const columns: TableColumnsType<RuleSummary> = [
    {
      title: t("access.on"),
      key: "on",
      width: 70,
      render: (_, r) => (
        <Switch
          size="small"
          aria-label={title(r.rule)}
          checked={r.rule?.enabled}
          disabled={!can("adapters.write") || turn.isPending}
          onChange={(enabled) => r.rule && turn.mutate({ ...r.rule, enabled })}
        />
      ),
    },
    { title: t("access.rule"), key: "rule", render: (_, r) => <b>{title(r.rule)}</b> },
    { title: t("access.kind"), key: "kind", width: 130, render: (_, r) => t(kindKey(r.rule?.kind ?? 0)) },
    {
      title: t("access.severity"),
      key: "severity",
      width: 100,
      render: (_, r) => t(severityKey(r.rule?.severity ?? Severity.UNSPECIFIED)),
    },
    {
      title: t("access.condition"),
      key: "condition",
      ellipsis: true,
      render: (_, r) => <code>{r.rule?.condition}</code>,
    },
    {
      title: t("access.status.compliant"),
      key: "good",
      width: 90,
      align: "right",
      render: (_, r) => count(r.compliant),
    },
    {
      title: t("access.status.nonCompliant"),
      key: "bad",
      width: 110,
      align: "right",
      render: (_, r) => count(r.nonCompliant),
    },
    {
      title: t("access.status.unknown"),
      key: "unknown",
      width: 90,
      align: "right",
      render: (_, r) => count(r.unknown),
    },
  ];
  return (
    <Loaded query={summary} rows={8}>
      {(s) => (
        <>
          <div className="yh-row">
            <Switch
              aria-label={t("access.enforce")}
              checked={s.enforce}
              disabled={!can("adapters.write")}
              loading={enforce.isPending}
              onChange={(on) => enforce.mutate(on)}
            />
            <span>{t("access.enforce")}</span>
          </div>
          <Panel flush>
            <Table
              size="middle"
              rowKey={(r) => r.rule?.ruleId ?? ""}
              columns={columns}
              dataSource={s.rules}
              pagination={false}
              scroll={{ x: 1100 }}
            />
          </Panel>
        </>
      )}
    </Loaded>
  );
}
