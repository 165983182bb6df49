import { DownloadOutlined } from "@ant-design/icons";
import { App, Button, DatePicker, Form, Input, Select, Table, type TableColumnsType } from "antd";
import dayjs from "dayjs";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { download } from "../api";
import { Fact, Loaded, Micros, Moment, Nothing, PageHead, Panel } from "../components/bits";
import type { Usage as UsageRecord } from "../gen/yunhe/metering/v1/metering_pb";
import { messageOf } from "../lib/errors";
import { formatBytes, formatCount, formatDuration, formatFen, formatMicros } from "../lib/format";
import { csvPath, totalOf } from "../lib/usage";
import { type UsageFilter, useCenterNames, useCenters, useUsage } from "../queries";

export function Usage() {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [filter, setFilter] = useState<UsageFilter>({ jobId: "", centerId: "", userName: "" });
  const usage = useUsage(filter);
  const rows = useMemo(() => usage.data?.pages.flatMap((p) => p.usage), [usage.data]);
  const total = useMemo(() => totalOf(rows ?? []), [rows]);
  const [saving, setSaving] = useState(false);
  const save = async () => {
    setSaving(true);
    try {
      await download(csvPath(filter), "usage.csv");
    } catch (error) {
      void message.error(messageOf(error));
    }
    setSaving(false);
  };
  return (
    <>
      <PageHead
        title={t("nav.usage")}
        sub={t("usage.sub")}
        extra={
          <Button icon={<DownloadOutlined />} loading={saving} onClick={() => void save()} data-testid="csv">
            {t("usage.csv")}
          </Button>
        }
      />
      <Panel>
        <div className="yh-facts">
          <Fact label={t("usage.records")}>
            <span className="yh-num">
              {formatCount(total.records)}
              {usage.hasNextPage ? "+" : ""}
            </span>
          </Fact>
          <Fact label={t("usage.cost")} hint={t("usage.costHint")}>
            <span className="yh-num yh-strong">{formatMicros(total.costMicros)}</span>
          </Fact>
          <Fact label={t("usage.duration")}>
            <span className="yh-num">{formatDuration(total.durationMicroseconds)}</span>
          </Fact>
          <Fact label={t("usage.cpuTime")}>
            <span className="yh-num">{formatDuration(total.cpuMicroseconds)}</span>
          </Fact>
          <Fact label={t("usage.shown")}>
            <span>{usage.hasNextPage ? t("usage.partial") : t("usage.complete")}</span>
          </Fact>
        </div>
      </Panel>
      <Panel flush>
        <Filters filter={filter} onChange={setFilter} />
        <Loaded query={{ ...usage, data: rows }} rows={10}>
          {(list) => <Records list={list} loading={usage.isPlaceholderData} />}
        </Loaded>
        {usage.hasNextPage && (
          <div className="yh-more">
            <Button onClick={() => void usage.fetchNextPage()} loading={usage.isFetchingNextPage}>
              {t("common.more")}
            </Button>
          </div>
        )}
      </Panel>
    </>
  );
}

function Records({ list, loading }: { list: UsageRecord[]; loading: boolean }) {
  const { t } = useTranslation();
  const name = useCenterNames();
  const columns: TableColumnsType<UsageRecord> = [
    {
      title: t("replica.task"),
      key: "task",
      ellipsis: true,
      width: 190,
      render: (_, u) => (
        <Link to={`/jobs/${u.jobId}?tab=cost`} className="yh-job-link">
          <b>
            {u.taskName} · {u.replicaIndex}
          </b>
          <small>
            {u.jobId} {u.attempt > 1 && `· ${t("replica.run", { attempt: u.attempt })}`}
          </small>
        </Link>
      ),
    },
    { title: t("job.user"), dataIndex: "userName", key: "user", width: 76, ellipsis: true },
    { title: t("replica.center"), key: "center", width: 110, ellipsis: true, render: (_, u) => name(u.aiCenterId) },
    { title: t("replica.spec"), dataIndex: "resourceSpecId", key: "spec", width: 84, ellipsis: true },
    { title: t("replica.ended"), key: "ended", width: 116, render: (_, u) => <Moment at={u.endedAt} /> },
    {
      title: t("job.duration"),
      key: "duration",
      width: 80,
      align: "right",
      render: (_, u) => <span className="yh-num">{formatDuration(u.durationMicroseconds)}</span>,
    },
    {
      title: t("replica.cpuTime"),
      key: "cpu",
      width: 80,
      align: "right",
      render: (_, u) => <span className="yh-num">{formatDuration(u.cpuMicroseconds)}</span>,
    },
    {
      title: t("replica.memory"),
      key: "memory",
      width: 84,
      align: "right",
      render: (_, u) => <span className="yh-num">{formatBytes(u.memoryPeakBytes)}</span>,
    },
    {
      title: t("cost.price"),
      key: "price",
      width: 84,
      align: "right",
      render: (_, u) => <span className="yh-num">{formatFen(u.price)}/h</span>,
    },
    {
      title: t("job.cost"),
      key: "cost",
      width: 104,
      align: "right",
      render: (_, u) => <Micros micros={u.costMicros} />,
    },
  ];
  return (
    <Table
      size="small"
      rowKey="attemptId"
      columns={columns}
      dataSource={list}
      loading={loading}
      tableLayout="fixed"
      scroll={{ x: 1000 }}
      pagination={false}
      locale={{ emptyText: <Nothing text={t("usage.none")} /> }}
    />
  );
}

function Filters({ filter, onChange }: { filter: UsageFilter; onChange: (filter: UsageFilter) => void }) {
  const { t } = useTranslation();
  const { data: centers } = useCenters();
  return (
    <Form layout="inline" className="yh-filters" role="search" aria-label={t("jobs.filters")}>
      <Input.Search
        allowClear
        className="yh-w-240"
        placeholder={t("usage.jobId")}
        aria-label={t("usage.jobId")}
        onSearch={(jobId) => onChange({ ...filter, jobId: jobId.trim() })}
      />
      <Input.Search
        allowClear
        className="yh-w-140"
        placeholder={t("jobs.userId")}
        aria-label={t("jobs.userId")}
        onSearch={(userName) => onChange({ ...filter, userName: userName.trim() })}
      />
      <Select
        allowClear
        showSearch={{ optionFilterProp: "label" }}
        className="yh-w-180"
        placeholder={t("jobs.anyCenter")}
        aria-label={t("job.centers")}
        onChange={(centerId?: string) => onChange({ ...filter, centerId: centerId ?? "" })}
        options={(centers ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
      />
      <DatePicker.RangePicker
        showTime={{ format: "HH:mm" }}
        format="YYYY-MM-DD HH:mm"
        allowEmpty={[true, true]}
        placeholder={[t("usage.endedAfter"), t("usage.endedBefore")]}
        value={[
          filter.after === undefined ? null : dayjs(filter.after),
          filter.before === undefined ? null : dayjs(filter.before),
        ]}
        onChange={(value) => onChange({ ...filter, after: value?.[0]?.valueOf(), before: value?.[1]?.valueOf() })}
      />
    </Form>
  );
}
