import { useQuery } from "@tanstack/react-query";
import { Select, Table } from "antd";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useSearchParams } from "react-router";
import { call } from "../api";
import { Loaded, Nothing, PageHead, Panel } from "../components/bits";
import type { ComparedIndicator } from "../gen/yunhe/measurement/v1/measurement_pb";
import { NONE } from "../lib/format";
import { amount, ratioText, titleOf } from "../lib/measurement";
import { useCenters, useIndicators } from "../queries";
import { useClients } from "../session";

const MOST = 8;

/** Centers side by side, by their indicators; which ones is in the address. */
export function Compare() {
  const { t } = useTranslation();
  const [params, setParams] = useSearchParams();
  const chosen = params.getAll("c");
  const centers = useCenters();
  return (
    <>
      <PageHead
        title={t("measurement.compareTitle")}
        back={{ to: "/centers", label: t("nav.centers") }}
        sub={t("measurement.compareSub")}
      />
      <Panel>
        <Select
          mode="multiple"
          className="yh-wide"
          value={chosen}
          maxCount={MOST}
          placeholder={t("measurement.choose")}
          aria-label={t("measurement.choose")}
          onChange={(ids) =>
            setParams(
              ids.map((id): [string, string] => ["c", id]),
              { replace: true },
            )
          }
          options={(centers.data ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
        />
        {chosen.length < 2 ? <Nothing text={t("measurement.chooseTwo")} /> : <Rows ids={chosen} />}
      </Panel>
    </>
  );
}

function Rows({ ids }: { ids: string[] }) {
  const { t, i18n } = useTranslation();
  const { measurement } = useClients();
  const indicators = useIndicators();
  const centers = useCenters();
  const compared = useQuery({
    queryKey: ["measurement", "compare", ...ids],
    queryFn: ({ signal }) => measurement.compareMeasurements({ aiCenterIds: ids }, call(signal)),
  });
  const by = useMemo(() => new Map((indicators.data ?? []).map((x) => [x.indicatorId, x])), [indicators.data]);
  const name = (id: string) => centers.data?.find((c) => c.aiCenterId === id)?.name || id;
  return (
    <Loaded query={compared} rows={8}>
      {(res) => (
        <Table<ComparedIndicator>
          size="small"
          rowKey={(r) => `${r.indicatorId}/${r.part}`}
          dataSource={res.rows}
          pagination={false}
          scroll={{ x: true }}
          columns={[
            {
              title: t("measurement.indicator"),
              key: "indicator",
              render: (_, r) => `${titleOf(by.get(r.indicatorId), r.indicatorId, i18n.language)} ${r.part}`.trim(),
            },
            ...ids.map((id, i) => ({
              title: name(id),
              key: id,
              align: "right" as const,
              render: (_: unknown, r: ComparedIndicator) => {
                const v = r.values[i];
                if (!v?.known) return NONE;
                return (
                  <span className="yh-num">
                    {amount(by.get(r.indicatorId)?.unit ?? "", v.number)}
                    {i > 0 && <em className="yh-muted"> {ratioText(v.ratioPermille)}</em>}
                  </span>
                );
              },
            })),
          ]}
        />
      )}
    </Loaded>
  );
}
