import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, InputNumber, Table, Tooltip } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import type { MeasuredNode, NodeSchedule } from "../gen/yunhe/measurement/v1/measurement_pb";
import { messageOf } from "../lib/errors";
import { formatCount, NONE } from "../lib/format";
import { dueWord } from "../lib/measurement";
import { useClients, useSession } from "../session";
import { Loaded, Moment } from "./bits";

const REFRESH_MS = 10_000;
/** Of more nodes the first by name are shown; the command line lists all. */
const SHOWN = 1000;

/** When the nodes of a center are measured by themselves, and when each was. */
export function NodeScheduleCard({ centerId }: { centerId: string }) {
  const { t } = useTranslation();
  const { measurement } = useClients();
  const { can } = useSession();
  const schedule = useQuery({
    queryKey: ["measurement", centerId, "schedule"],
    queryFn: ({ signal }) => measurement.getNodeSchedule({ aiCenterId: centerId }, call(signal)),
    refetchInterval: REFRESH_MS,
  });
  const nodes = useQuery({
    queryKey: ["measurement", centerId, "nodes"],
    queryFn: ({ signal }) => measurement.listMeasuredNodes({ aiCenterId: centerId, pageSize: SHOWN }, call(signal)),
    refetchInterval: REFRESH_MS,
  });
  return (
    <div data-testid="node-schedule">
      <h3>{t("measurement.nodes")}</h3>
      <Loaded query={schedule} rows={2}>
        {(s) => (
          <>
            <p>
              {s.intervalHours > 0
                ? t("measurement.every", { hours: formatCount(s.intervalHours), atOnce: formatCount(s.atOnce) })
                : t("measurement.noSchedule")}
              {s.message && ` ${t("measurement.held", { why: s.message })}`}
            </p>
            {can("registry.write") && <Change key={s.version.toString()} schedule={s} />}
          </>
        )}
      </Loaded>
      <Loaded query={nodes} rows={4}>
        {(list) => <Nodes nodes={list.nodes} more={list.nextPageToken !== ""} />}
      </Loaded>
    </div>
  );
}

function Change({ schedule }: { schedule: NodeSchedule }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { measurement } = useClients();
  const client = useQueryClient();
  const [hours, setHours] = useState<number>(schedule.intervalHours);
  const [atOnce, setAtOnce] = useState<number>(schedule.atOnce);
  const save = useMutation({
    mutationFn: () =>
      measurement.updateNodeSchedule({ schedule: { ...schedule, intervalHours: hours, atOnce } }, call()),
    onSuccess: () => client.invalidateQueries({ queryKey: ["measurement", schedule.aiCenterId] }),
    onError: (error) => void message.error(messageOf(error)),
  });
  return (
    <div className="yh-row">
      <InputNumber
        min={0}
        max={8760}
        precision={0}
        value={hours}
        onChange={(v) => setHours(v ?? 0)}
        aria-label={t("measurement.everyHours")}
        prefix={t("measurement.everyHours")}
        style={{ width: 260 }}
      />
      <InputNumber
        min={1}
        max={16}
        precision={0}
        value={atOnce}
        onChange={(v) => setAtOnce(v ?? 1)}
        aria-label={t("measurement.atOnce")}
        prefix={t("measurement.atOnce")}
        style={{ width: 220 }}
      />
      <Button
        loading={save.isPending}
        disabled={hours === schedule.intervalHours && atOnce === schedule.atOnce}
        onClick={() => save.mutate()}
        data-testid="save-node-schedule"
      >
        {t("measurement.saveSchedule")}
      </Button>
    </div>
  );
}

function Nodes({ nodes, more }: { nodes: MeasuredNode[]; more: boolean }) {
  const { t } = useTranslation();
  return (
    <>
      <Table
        size="small"
        rowKey="node"
        dataSource={nodes}
        pagination={nodes.length > 20 ? { pageSize: 20 } : false}
        locale={{ emptyText: t("measurement.noNodes") }}
        columns={[
          { title: t("measurement.node"), dataIndex: "node" },
          {
            title: t("measurement.measuredAt"),
            key: "at",
            render: (_, n) => (n.measuredAt ? <Moment at={n.measuredAt} /> : t("measurement.never")),
          },
          {
            title: t("measurement.factor"),
            key: "factor",
            align: "right",
            render: (_, n) => <span className="yh-num">{n.performance > 0n ? formatCount(n.performance) : NONE}</span>,
          },
          {
            title: t("measurement.dueAt"),
            key: "due",
            render: (_, n) => {
              const word = dueWord(n, Date.now());
              return word === "later" ? <Moment at={n.dueAt} /> : word === "none" ? NONE : t(`measurement.due.${word}`);
            },
          },
          {
            title: t("measurement.lastProblem"),
            key: "message",
            render: (_, n) =>
              n.message ? (
                <Tooltip title={t("measurement.failures", { n: formatCount(n.failures) })}>{n.message}</Tooltip>
              ) : (
                NONE
              ),
          },
        ]}
      />
      {more && <p className="yh-muted">{t("measurement.firstNodes", { n: formatCount(SHOWN) })}</p>}
    </>
  );
}
