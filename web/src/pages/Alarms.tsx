// Alarms, page by page: what has gone wrong, and folded below it what follows
// from it, which is read when it is opened.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Input, Modal, Segmented, Table, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call } from "../api";
import { Loaded, Moment, Nothing, PageHead, Panel } from "../components/bits";
import { PagedRows, usePaged } from "../components/Pager";
import { type Alarm, AlarmState } from "../gen/yunhe/alarms/v1/alarms_pb";
import { type AlarmNode, alarmKindName, alarmPath, alarmStateName, alarmTree, severityName } from "../lib/alarms";
import { messageOf } from "../lib/errors";
import { formatCount } from "../lib/format";
import { useClients, useSession } from "../session";

const PAGE = 50;
const LIVE_MS = 5_000;

export function Alarms() {
  const { t } = useTranslation();
  const { alarms } = useClients();
  const [cleared, setCleared] = useState(false);
  const [asked, setAsked] = useState<Alarm>();
  const paged = usePaged({
    key: ["alarms", cleared ? "cleared" : "open"],
    everyMs: LIVE_MS,
    fetchPage: async (pageToken, signal) => {
      const which = cleared ? { states: [AlarmState.CLEARED] } : { rootsOnly: true };
      const res = await alarms.listAlarms({ pageSize: PAGE, pageToken, ...which }, call(signal));
      return { items: res.alarms.map((alarm): AlarmNode => ({ alarm })), nextPageToken: res.nextPageToken };
    },
  });
  return (
    <>
      <PageHead
        title={t("nav.alarms")}
        sub={t("alarm.sub")}
        extra={
          <Segmented
            value={cleared ? "cleared" : "open"}
            onChange={(v) => setCleared(v === "cleared")}
            options={[
              { value: "open", label: t("alarm.open") },
              { value: "cleared", label: t("alarm.states.cleared") },
            ]}
          />
        }
      />
      <Panel flush title={cleared ? t("alarm.states.cleared") : t("alarm.open")}>
        <PagedRows paged={paged}>
          {(rows) =>
            rows.length === 0 ? (
              <Nothing text={cleared ? t("alarm.noneCleared") : t("alarm.none")} />
            ) : (
              <AlarmTable key={String(cleared)} rows={rows} cleared={cleared} onAsk={setAsked} />
            )
          }
        </PagedRows>
      </Panel>
      <Modal
        open={asked !== undefined}
        onCancel={() => setAsked(undefined)}
        footer={null}
        title={t("alarm.acknowledgeTitle")}
        destroyOnHidden
      >
        {asked && <Acknowledge alarm={asked} onClose={() => setAsked(undefined)} />}
      </Modal>
    </>
  );
}

// The table of a page, or without its head of what follows from an alarm.
function AlarmTable(props: { rows: AlarmNode[]; cleared: boolean; below?: boolean; onAsk: (a: Alarm) => void }) {
  const { t } = useTranslation();
  const columns: TableColumnsType<AlarmNode> = [
    {
      title: t("alarm.message"),
      key: "message",
      render: (_, { alarm: a }) => (
        <span>
          <SeverityMark alarm={a} /> <b>{t(`alarm.kinds.${alarmKindName(a.kind)}`)}</b>{" "}
          <span className="yh-muted">
            {alarmPath(a) ? <Link to={alarmPath(a)}>{a.message}</Link> : a.message}
            {!props.below && a.affected > 0n && ` · ${t("alarm.affected", { count: Number(a.affected) })}`}
          </span>
        </span>
      ),
    },
    {
      title: t("alarm.state"),
      key: "state",
      width: 170,
      render: (_, { alarm: a }) => (
        <span>
          {t(`alarm.states.${alarmStateName(a.state)}`)}
          {a.acknowledgedBy && (
            <small className="yh-muted">
              {" "}
              {a.acknowledgedBy}
              {a.note && `: ${a.note}`}
            </small>
          )}
        </span>
      ),
    },
    {
      title: t("alarm.count"),
      key: "count",
      width: 80,
      align: "right",
      render: (_, { alarm: a }) => <span className="yh-num">{formatCount(a.count)}</span>,
    },
    { title: t("alarm.first"), key: "first", width: 130, render: (_, { alarm: a }) => <Moment at={a.firstAt} /> },
    {
      title: props.cleared ? t("alarm.states.cleared") : t("alarm.last"),
      key: "last",
      width: 130,
      render: (_, { alarm: a }) => <Moment at={props.cleared ? a.clearedAt : a.lastAt} />,
    },
    {
      key: "action",
      width: 120,
      align: "right",
      render: (_, { alarm: a }) => <AcknowledgeButton alarm={a} onAsk={props.onAsk} />,
    },
  ];
  return (
    <Table
      size="small"
      rowKey={(row) => row.alarm.alarmId}
      dataSource={props.rows}
      columns={columns}
      pagination={false}
      showHeader={!props.below}
      expandable={
        props.below
          ? { defaultExpandAllRows: true }
          : {
              rowExpandable: ({ alarm }) => alarm.affected > 0n,
              expandedRowRender: ({ alarm }) => <Following of={alarm} onAsk={props.onAsk} />,
            }
      }
      scroll={{ x: 900 }}
      data-testid={props.below ? "following" : "alarms"}
    />
  );
}

function Following({ of, onAsk }: { of: Alarm; onAsk: (a: Alarm) => void }) {
  const { alarms } = useClients();
  const query = useQuery({
    queryKey: ["alarms", "of", of.alarmId],
    queryFn: async ({ signal }) => (await alarms.getAlarm({ alarmId: of.alarmId }, call(signal))).affected,
    refetchInterval: LIVE_MS,
  });
  return (
    <Loaded query={query} rows={2}>
      {(affected) => (
        <AlarmTable
          rows={alarmTree(affected.filter((a) => a.state !== AlarmState.CLEARED))}
          cleared={false}
          below
          onAsk={onAsk}
        />
      )}
    </Loaded>
  );
}

function SeverityMark({ alarm: a }: { alarm: Alarm }) {
  const { t } = useTranslation();
  const name = severityName(a.severity);
  return <span className={`yh-severity yh-severity-${name}`}>{t(`alarm.severities.${name}`)}</span>;
}

// Only who may do something about it acknowledges it.
function AcknowledgeButton({ alarm: a, onAsk }: { alarm: Alarm; onAsk: (a: Alarm) => void }) {
  const { t } = useTranslation();
  const { can } = useSession();
  if (a.state !== AlarmState.ACTIVE || !can("jobs.write") || (!a.tenantId && !can("registry.write"))) return null;
  return (
    <Button size="small" onClick={() => onAsk(a)} data-testid="acknowledge">
      {t("alarm.acknowledge")}
    </Button>
  );
}

function Acknowledge({ alarm: a, onClose }: { alarm: Alarm; onClose: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { alarms } = useClients();
  const client = useQueryClient();
  const [note, setNote] = useState("");
  const write = useMutation({
    mutationFn: () => alarms.acknowledgeAlarm({ alarmId: a.alarmId, note: note.trim() }, call()),
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: ["alarms"] });
    },
    onError: (e) => void message.error(messageOf(e)),
  });
  return (
    <>
      <p>{a.message}</p>
      <Input
        value={note}
        maxLength={80}
        placeholder={t("alarm.note")}
        aria-label={t("alarm.note")}
        onChange={(e) => setNote(e.target.value)}
        onPressEnter={() => write.mutate()}
      />
      <div className="yh-row yh-after-bars">
        <Button
          type="primary"
          loading={write.isPending}
          onClick={() => write.mutate()}
          data-testid="acknowledge-confirm"
        >
          {t("alarm.acknowledge")}
        </Button>
        <Button onClick={onClose}>{t("common.cancel")}</Button>
      </div>
    </>
  );
}
