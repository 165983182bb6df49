import { PlusOutlined } from "@ant-design/icons";
import { Button, DatePicker, Form, Input, Select } from "antd";
import dayjs, { type Dayjs } from "dayjs";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { Link, useSearchParams } from "react-router";
import { Loaded, PageHead, Panel } from "../components/bits";
import { JobTable } from "../components/JobTable";
import type { JobFilter } from "../lib/joblist";
import { STATES, stateName, stateOf } from "../lib/states";
import { useCenters, useJobs } from "../queries";
import { useSession } from "../session";

// The filter lives in the address, so that a filtered list can be sent to a colleague.
function filterOf(params: URLSearchParams): JobFilter {
  const time = (name: string) => {
    const ms = Number(params.get(name));
    return ms > 0 ? ms : undefined;
  };
  return {
    states: params.getAll("state").flatMap((name) => stateOf(name) ?? []),
    name: params.get("name") ?? "",
    userName: params.get("user") ?? "",
    centerId: params.get("center") ?? "",
    after: time("after"),
    before: time("before"),
  };
}

export function Jobs() {
  const { t } = useTranslation();
  const { can } = useSession();
  const [params, setParams] = useSearchParams();
  const filter = useMemo(() => filterOf(params), [params]);
  const jobs = useJobs(filter);
  const rows = useMemo(() => jobs.data?.pages.flatMap((p) => p.jobs), [jobs.data]);
  return (
    <>
      <PageHead
        title={t("nav.jobs")}
        sub={t("jobs.sub")}
        extra={
          can("jobs.write") && (
            <Link to="/jobs/new">
              <Button type="primary" icon={<PlusOutlined />}>
                {t("jobs.submit")}
              </Button>
            </Link>
          )
        }
      />
      <Panel flush>
        <Filters
          filter={filter}
          onChange={(change) =>
            setParams(
              (now) => {
                const next = new URLSearchParams(now);
                for (const [name, values] of Object.entries(change)) {
                  next.delete(name);
                  for (const value of values) if (value) next.append(name, value);
                }
                return next;
              },
              { replace: true },
            )
          }
          onClear={() => setParams({}, { replace: true })}
        />
        <Loaded query={{ ...jobs, data: rows }} rows={10}>
          {(list) => <JobTable jobs={list} loading={jobs.isPlaceholderData} />}
        </Loaded>
        {jobs.hasNextPage && (
          <div className="yh-more">
            <Button onClick={() => void jobs.fetchNextPage()} loading={jobs.isFetchingNextPage} data-testid="more">
              {t("common.more")}
            </Button>
          </div>
        )}
      </Panel>
    </>
  );
}

function Filters(props: {
  filter: JobFilter;
  onChange: (change: Record<string, string[]>) => void;
  onClear: () => void;
}) {
  const { t } = useTranslation();
  const { filter, onChange } = props;
  const { data: centers } = useCenters();
  const range: [Dayjs | null, Dayjs | null] = [
    filter.after === undefined ? null : dayjs(filter.after),
    filter.before === undefined ? null : dayjs(filter.before),
  ];
  const active =
    filter.states.length > 0 || filter.name || filter.userName || filter.centerId || filter.after || filter.before;
  return (
    <Form layout="inline" className="yh-filters" role="search" aria-label={t("jobs.filters")}>
      <Select
        mode="multiple"
        allowClear
        maxTagCount="responsive"
        className="yh-w-200"
        placeholder={t("jobs.anyState")}
        aria-label={t("job.state")}
        value={filter.states.map(stateName)}
        onChange={(state) => onChange({ state })}
        options={STATES.map((s) => ({ value: stateName(s), label: t(`state.${stateName(s)}`) }))}
      />
      <Input.Search
        allowClear
        className="yh-w-180"
        placeholder={t("jobs.namePart")}
        aria-label={t("jobs.namePart")}
        key={`name-${filter.name}`}
        defaultValue={filter.name}
        onSearch={(name) => onChange({ name: [name.trim()] })}
      />
      <Input.Search
        allowClear
        className="yh-w-140"
        placeholder={t("jobs.userId")}
        aria-label={t("jobs.userId")}
        key={`user-${filter.userName}`}
        defaultValue={filter.userName}
        onSearch={(user) => onChange({ user: [user.trim()] })}
      />
      <Select
        allowClear
        showSearch={{ optionFilterProp: "label" }}
        className="yh-w-180"
        placeholder={t("jobs.anyCenter")}
        aria-label={t("job.centers")}
        value={filter.centerId || undefined}
        onChange={(center?: string) => onChange({ center: [center ?? ""] })}
        options={(centers ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
      />
      <DatePicker.RangePicker
        showTime={{ format: "HH:mm" }}
        format="YYYY-MM-DD HH:mm"
        allowEmpty={[true, true]}
        placeholder={[t("jobs.createdAfter"), t("jobs.createdBefore")]}
        value={range}
        onChange={(value) =>
          onChange({
            after: [value?.[0] ? `${value[0].valueOf()}` : ""],
            before: [value?.[1] ? `${value[1].valueOf()}` : ""],
          })
        }
      />
      {active && (
        <Button type="link" onClick={props.onClear}>
          {t("common.clear")}
        </Button>
      )}
    </Form>
  );
}
