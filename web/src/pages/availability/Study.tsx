import { useQuery } from "@tanstack/react-query";
import { Table } from "antd";
import { lazy, Suspense } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Loaded, Panel, Tag } from "../../components/bits";
import type { StudyCount } from "../../gen/yunhe/availability/v1/availability_pb";
import { methodName, toPercent } from "../../lib/availability";
import { formatCount, NONE } from "../../lib/format";
import { useClients } from "../../session";

const CategoryChart = lazy(() => import("../../components/CategoryChart"));

export function Study() {
  const { t } = useTranslation();
  const { planning } = useClients();
  const query = useQuery({
    queryKey: ["availability", "study"],
    queryFn: ({ signal }) => planning.reproduceAvailability({}, call(signal)),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const series = (points: StudyCount[], x: (p: StudyCount) => string) => {
    const ticks = [...new Set(points.map(x))];
    const submodules = [...new Set(points.map((p) => p.submodule))];
    return {
      ticks,
      lines: submodules.map((submodule) => {
        const own = points.filter((p) => p.submodule === submodule);
        return {
          name: t("availability.series", { percent: `${toPercent(submodule)} %` }),
          values: own.map((p) => p.microservices),
          hollow: own.map((p) => !p.reachable),
        };
      }),
    };
  };
  return (
    <Loaded query={query} rows={10}>
      {(study) => (
        <>
          <p className="yh-muted">{t("availability.studySub")}</p>
          <Suspense fallback={null}>
            <div className="yh-two">
              <Panel title={t("availability.figure9")}>
                <CategoryChart
                  {...series(study.figure9, (p) => `${toPercent(p.target)} %`)}
                  label={t("availability.figure9")}
                />
              </Panel>
              <Panel title={t("availability.figure10")}>
                <CategoryChart
                  {...series(study.figure10, (p) => String(p.backups))}
                  label={t("availability.figure10")}
                />
              </Panel>
            </div>
          </Suspense>
          <Panel flush title={t("availability.table")}>
            <Table
              size="small"
              rowKey={(c) => `${c.method}/${c.target}/${c.submodule}`}
              dataSource={study.table1}
              pagination={false}
              scroll={{ x: 760 }}
              data-testid="study"
              columns={[
                {
                  title: t("availability.method"),
                  key: "method",
                  render: (_, c) => t(`availability.methods.${methodName(c.method)}`),
                },
                {
                  title: t("availability.target"),
                  key: "target",
                  align: "right",
                  render: (_, c) => <span className="yh-num">{c.target > 0 ? `${toPercent(c.target)} %` : NONE}</span>,
                },
                {
                  title: t("availability.submodules"),
                  key: "submodule",
                  align: "right",
                  render: (_, c) => <span className="yh-num">{toPercent(c.submodule)} %</span>,
                },
                {
                  title: t("availability.ours"),
                  key: "ours",
                  align: "right",
                  render: (_, c) => (
                    <span className={c.reachable ? "yh-num" : "yh-num yh-muted"}>
                      {(100 * c.availability).toFixed(7)} %
                    </span>
                  ),
                },
                {
                  title: t("availability.published"),
                  key: "published",
                  align: "right",
                  render: (_, c) => <span className="yh-num">{toPercent(c.published).toFixed(5)} %</span>,
                },
                {
                  title: t("availability.microservices"),
                  key: "microservices",
                  align: "right",
                  render: (_, c) => <span className="yh-num">{formatCount(c.microservices)}</span>,
                },
                {
                  key: "said",
                  render: (_, c) =>
                    c.better ? (
                      <Tag tone="good" text={t("availability.better")} />
                    ) : c.reachable ? null : (
                      <span className="yh-muted">
                        {t("availability.notReachedBy", { target: `${toPercent(c.target)} %` })}
                      </span>
                    ),
                },
              ]}
            />
          </Panel>
        </>
      )}
    </Loaded>
  );
}
