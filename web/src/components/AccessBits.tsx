// Parts that show how a resource is accessed.
import { useQuery } from "@tanstack/react-query";
import { Table, Timeline } from "antd";
import type { TFunction } from "i18next";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import { Compliance, Health, type Verdict } from "../gen/yunhe/access/v1/access_pb";
import type { PathFigures } from "../gen/yunhe/monitor/v1/monitor_pb";
import { healthKey, severityKey, sourceKey, statusKey } from "../lib/access";
import { formatBytes, NONE } from "../lib/format";
import { useClients, useSession } from "../session";
import { Fact, Loaded, Moment, Tag } from "./bits";

export function ComplianceTag({ status }: { status: Compliance }) {
  const { t } = useTranslation();
  const tone = status === Compliance.COMPLIANT ? "good" : status === Compliance.NON_COMPLIANT ? "bad" : "waiting";
  return <Tag tone={tone} text={t(statusKey(status))} />;
}

export function HealthTag({ status }: { status: Health }) {
  const { t } = useTranslation();
  const tone = status === Health.HEALTHY ? "good" : status === Health.UNREACHABLE ? "bad" : "warn";
  return <Tag tone={tone} text={t(healthKey(status))} />;
}

const ms = (seconds: number) => `${(seconds * 1000).toFixed(seconds < 0.01 ? 2 : 1)} ms`;

/** "30.1 ms ± 2.0 ms, 0.1 % lost, 94 Mbit/s" */
export function pathText(t: TFunction, p: PathFigures): string {
  const parts: string[] = [];
  if (p.latencySeconds !== undefined)
    parts.push(ms(p.latencySeconds) + (p.jitterSeconds === undefined ? "" : ` ± ${ms(p.jitterSeconds)}`));
  if (p.lossRatio !== undefined) parts.push(t("access.lost", { percent: (p.lossRatio * 100).toFixed(1) }));
  if (p.bandwidthBitsPerSecond !== undefined) parts.push(`${(p.bandwidthBitsPerSecond / 1e6).toFixed(1)} Mbit/s`);
  return parts.join(", ");
}

/** The access of a resource: record, verdicts and log. */
export function AccessReportView({ resourceId }: { resourceId: string }) {
  const { t } = useTranslation();
  const { access } = useClients();
  const { can } = useSession();
  const enabled = can("adapters.read");
  const record = useQuery({
    queryKey: ["access", "record", resourceId],
    queryFn: ({ signal }) => access.getAccessRecord({ resourceId }, call(signal)),
    refetchInterval: 5000,
    enabled,
  });
  const report = useQuery({
    queryKey: ["access", "report", resourceId],
    queryFn: ({ signal }) => access.getAccessReport({ resourceId }, call(signal)),
    refetchInterval: 5000,
    enabled,
  });
  if (!enabled) return null;
  return (
    <div data-testid="access-record">
      <Loaded query={record} rows={5}>
        {(r) => (
          <div className="yh-facts">
            <Fact label={t("access.source")}>{t(sourceKey(r.sourceType))}</Fact>
            <Fact label={t("access.protocol")}>
              {r.protocolType} {r.plugin} {r.pluginVersion}
            </Fact>
            <Fact label={t("access.class")}>{r.classId || NONE}</Fact>
            <Fact label={t("access.compliance")}>
              <ComplianceTag status={r.complianceStatus} />
            </Fact>
            <Fact label={t("access.health")}>
              <HealthTag status={r.healthStatus} /> {r.healthMessage}
            </Fact>
            <Fact label={t("access.synced")}>
              <Moment at={r.syncedAt} />
            </Fact>
            {r.paths.map((p) => (
              <Fact key={p.peer} label={t("access.pathTo", { peer: p.peer })}>
                {pathText(t, p) || NONE}
              </Fact>
            ))}
            <Fact label={t("access.storage")}>
              {r.storageMetrics
                ? t("access.storageText", {
                    reads: (r.storageMetrics.reads ?? 0).toFixed(0),
                    writes: (r.storageMetrics.writes ?? 0).toFixed(0),
                    bytes: formatBytes(
                      Math.round((r.storageMetrics.readBytes ?? 0) + (r.storageMetrics.writtenBytes ?? 0)),
                    ),
                  })
                : NONE}
            </Fact>
            <Fact label={t("access.network")}>
              {r.networkMetrics
                ? t("access.networkText", {
                    received: formatBytes(Math.round(r.networkMetrics.receivedBytes ?? 0)),
                    sent: formatBytes(Math.round(r.networkMetrics.sentBytes ?? 0)),
                  })
                : NONE}
            </Fact>
            <Fact label={t("access.conversions")}>{r.conversionConfig.length}</Fact>
          </div>
        )}
      </Loaded>
      <h3>{t("access.report")}</h3>
      <Loaded query={report} rows={5}>
        {(r) => (
          <Table<Verdict>
            size="small"
            rowKey="ruleId"
            pagination={false}
            dataSource={r.verdicts}
            columns={[
              { title: t("access.rule"), key: "rule", render: (_, v) => v.title },
              { title: t("access.severity"), key: "severity", width: 90, render: (_, v) => t(severityKey(v.severity)) },
              {
                title: t("access.verdict"),
                key: "status",
                width: 120,
                render: (_, v) => <ComplianceTag status={v.status} />,
              },
              {
                title: t("access.observed"),
                key: "observed",
                render: (_, v) => (
                  <>
                    <code>{v.observed}</code>
                    {v.message && <div>{v.message}</div>}
                  </>
                ),
              },
            ]}
          />
        )}
      </Loaded>
      <h3>{t("access.log")}</h3>
      <Timeline
        items={(record.data?.auditLog ?? []).map((s, i) => ({
          key: i,
          color: s.outcome === "OK" ? "blue" : "red",
          content: (
            <>
              <Moment at={s.at} /> <b>{s.step}</b> {s.userId} {s.message}
            </>
          ),
        }))}
      />
    </div>
  );
}
