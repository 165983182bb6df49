// The log of the pool: filters, pages, one entry in full, and files.
import { useMutation } from "@tanstack/react-query";
import { App, Button, DatePicker, Descriptions, Input, Modal, Select, type TableColumnsType } from "antd";
import { type ComponentProps, useState } from "react";
import { useTranslation } from "react-i18next";
import { call, saveFile } from "../../api";
import { Moment, Tag } from "../../components/bits";
import { PagedTable, usePaged } from "../../components/Pager";
import { ExportPoolLogsRequest_Format, LogLevel, type PoolLogEntry } from "../../gen/yunhe/pool/v1/operation_pb";
import { messageOf } from "../../lib/errors";
import { NONE } from "../../lib/format";
import { levelName, stampOf, TONES } from "../../lib/poolops";
import { useClients } from "../../session";

type Range = ComponentProps<typeof DatePicker.RangePicker>["value"];

const FORMATS = [
  { name: "text", format: ExportPoolLogsRequest_Format.TEXT },
  { name: "json", format: ExportPoolLogsRequest_Format.JSON },
  { name: "csv", format: ExportPoolLogsRequest_Format.CSV },
] as const;

export function Logs() {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { poolOps } = useClients();
  const [level, setLevel] = useState<LogLevel>();
  const [range, setRange] = useState<Range>();
  const [words, setWords] = useState({ nodeId: "", sliceId: "", userId: "", text: "" });
  const [chosen, setChosen] = useState<PoolLogEntry>();
  const from = range?.[0]?.valueOf();
  const to = range?.[1]?.valueOf();
  const filter = { level: level ?? LogLevel.UNSPECIFIED, from: stampOf(from), to: stampOf(to), ...words };
  const paged = usePaged({
    key: ["pool", "logs", level, from, to, words],
    everyMs: 3000,
    fetchPage: async (pageToken, signal) => {
      const res = await poolOps.searchPoolLogs({ ...filter, pageSize: 50, pageToken }, call(signal));
      return { items: res.entries, nextPageToken: res.nextPageToken };
    },
  });
  const write = useMutation({
    mutationFn: (format: ExportPoolLogsRequest_Format) => poolOps.exportPoolLogs({ ...filter, format }, call()),
    onSuccess: (f) => saveFile(new Blob([new Uint8Array(f.content)], { type: f.contentType }), f.name),
    onError: (e) => void message.error(messageOf(e)),
  });
  const word = (name: keyof typeof words, label: string) => (
    <Input.Search
      allowClear
      className="yh-w-140"
      placeholder={label}
      aria-label={label}
      onSearch={(v) => setWords((w) => ({ ...w, [name]: v.trim() }))}
      onBlur={(e) => {
        const v = e.target.value.trim(); // what is exported next is what the fields say
        setWords((w) => (w[name] === v ? w : { ...w, [name]: v }));
      }}
    />
  );
  const columns: TableColumnsType<PoolLogEntry> = [
    { title: t("poolops.time"), key: "at", width: 150, render: (_, e) => <Moment at={e.at} /> },
    {
      title: t("poolops.level"),
      key: "level",
      width: 100,
      render: (_, e) => <Tag tone={TONES[e.level]} text={t(`poolops.levels.${levelName(e.level)}`)} />,
    },
    { title: t("poolops.source"), key: "source", width: 110, ellipsis: true, render: (_, e) => e.source },
    {
      title: t("poolops.message"),
      key: "message",
      width: 200,
      ellipsis: true,
      render: (_, e) => (
        <Button type="link" size="small" className="yh-flush" onClick={() => setChosen(e)}>
          {e.message}
        </Button>
      ),
    },
    { title: t("poolops.device"), key: "device", width: 150, ellipsis: true, render: (_, e) => at(e) || NONE },
    { title: t("poolops.task"), key: "task", width: 210, ellipsis: true, render: (_, e) => e.sliceId || NONE },
    { title: t("poolops.user"), key: "user", width: 110, ellipsis: true, render: (_, e) => e.userId || NONE },
    { title: t("poolops.details"), key: "details", ellipsis: true, render: (_, e) => e.details },
  ];
  return (
    <>
      <div className="yh-tab-actions">
        <Select
          allowClear
          className="yh-w-140"
          placeholder={t("poolops.anyLevel")}
          aria-label={t("poolops.level")}
          value={level}
          onChange={(v?: LogLevel) => setLevel(v)}
          options={[LogLevel.DEBUG, LogLevel.INFO, LogLevel.WARN, LogLevel.ERROR].map((value) => ({
            value,
            label: t("poolops.atLeast", { level: t(`poolops.levels.${levelName(value)}`) }),
          }))}
        />
        <DatePicker.RangePicker
          showTime={{ format: "HH:mm:ss" }}
          allowEmpty={[true, true]}
          placeholder={[t("poolops.from"), t("poolops.to")]}
          value={range}
          onChange={setRange}
        />
        {word("nodeId", t("poolops.node"))}
        {word("sliceId", t("poolops.task"))}
        {word("userId", t("poolops.user"))}
        {word("text", t("poolops.text"))}
        {FORMATS.map(({ name, format }) => (
          <Button key={name} loading={write.isPending} onClick={() => write.mutate(format)}>
            {`${t("poolops.export")} ${t(`poolops.formats.${name}`)}`}
          </Button>
        ))}
      </div>
      <PagedTable
        paged={paged}
        rowKey="logId"
        columns={columns}
        scroll={{ x: 1400 }}
        data-testid="pool-logs"
        empty={t("poolops.noLogs")}
      />
      <Modal open={!!chosen} onCancel={() => setChosen(undefined)} footer={null} title={t("poolops.entry")} width={720}>
        {chosen && <Entry entry={chosen} />}
      </Modal>
    </>
  );
}

const at = (e: PoolLogEntry) => [e.nodeId, e.deviceId].filter(Boolean).join("/");

function Entry({ entry: e }: { entry: PoolLogEntry }) {
  const { t } = useTranslation();
  const items = [
    { key: "time", children: e.at ? new Date(Number(e.at.seconds) * 1000 + e.at.nanos / 1e6).toISOString() : NONE },
    { key: "level", children: t(`poolops.levels.${levelName(e.level)}`) },
    { key: "source", children: e.source },
    { key: "message", children: e.message },
    { key: "device", children: at(e) || NONE },
    { key: "task", children: e.sliceId || NONE },
    { key: "user", children: e.userId || NONE },
    { key: "tenant", children: e.tenantId || NONE },
    { key: "group", children: e.groupId || NONE },
    { key: "details", children: e.details || NONE },
  ] as const;
  return (
    <Descriptions
      column={1}
      size="small"
      bordered
      data-testid="log-entry"
      items={items.map((x) => ({ ...x, label: t(`poolops.${x.key}`) }))}
    />
  );
}
