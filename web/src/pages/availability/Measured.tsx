import { useQuery } from "@tanstack/react-query";
import { Table } from "antd";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Loaded, Moment, Nothing, Panel } from "../../components/bits";
import { percentText } from "../../lib/availability";
import { formatCount } from "../../lib/format";
import { useClients } from "../../session";

export function Measured() {
  const { t } = useTranslation();
  const { planning } = useClients();
  const query = useQuery({
    queryKey: ["availability", "measured"],
    queryFn: async ({ signal }) => (await planning.getMeasuredAvailability({}, call(signal))).roles,
    refetchInterval: 10_000,
  });
  return (
    <Panel title={t("availability.tabs.measured")}>
      <p className="yh-muted">{t("availability.measuredSub")}</p>
      <Loaded query={query}>
        {(roles) => (
          <Table
            size="small"
            rowKey="role"
            dataSource={roles}
            pagination={false}
            scroll={{ x: 640 }}
            data-testid="measured"
            locale={{ emptyText: <Nothing text={t("availability.measuredNone")} /> }}
            columns={[
              { title: t("availability.role"), key: "role", render: (_, r) => <code>{r.role}</code> },
              {
                title: t("availability.each"),
                key: "each",
                align: "right",
                render: (_, r) => <span className="yh-num">{percentText(r.availability)}</span>,
              },
              {
                title: t("availability.any"),
                key: "any",
                align: "right",
                render: (_, r) => <span className="yh-num">{percentText(r.any)}</span>,
              },
              {
                title: t("availability.processes"),
                key: "processes",
                align: "right",
                render: (_, r) => <span className="yh-num">{formatCount(r.instances)}</span>,
              },
              {
                title: t("availability.failures"),
                key: "failures",
                align: "right",
                render: (_, r) => <span className="yh-num">{formatCount(r.failures)}</span>,
              },
              { title: t("availability.since"), key: "since", render: (_, r) => <Moment at={r.since} /> },
            ]}
          />
        )}
      </Loaded>
      <p className="yh-muted yh-flat">{t("availability.deployHelp")}</p>
    </Panel>
  );
}
