// What a policy would do: to one job, and to the latest ones.
import { useMutation } from "@tanstack/react-query";
import { Alert, Button, Input, InputNumber } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Fact, Problem } from "../../components/bits";
import { ListTable } from "../../components/Pager";
import { Placement } from "../../components/Placement";
import type { PolicyFigures } from "../../gen/yunhe/policies/v1/policies_pb";
import { formatCount, formatDuration, formatFen } from "../../lib/format";
import { useCenterNames } from "../../queries";
import { useClients } from "../../session";

export function Try({ policyId, version }: { policyId: string; version: bigint }) {
  const { t } = useTranslation();
  const { policies } = useClients();
  const [jobId, setJobId] = useState("");
  const run = useMutation({
    mutationFn: () => policies.tryPolicy({ policyId, version, jobId: jobId.trim() }, call()),
  });
  return (
    <div className="yh-pad">
      <p className="yh-muted">{t("record.tryHelp", { version: version.toString() })}</p>
      <div className="yh-row">
        <Input
          className="yh-w-320"
          value={jobId}
          placeholder="job_…"
          aria-label={t("record.jobId")}
          onChange={(e) => setJobId(e.target.value)}
          onPressEnter={() => jobId.trim() && run.mutate()}
        />
        <Button
          type="primary"
          disabled={jobId.trim() === ""}
          loading={run.isPending}
          onClick={() => run.mutate()}
          data-testid="try-run"
        >
          {t("record.try")}
        </Button>
      </div>
      {run.error && <Problem error={run.error} />}
      {run.data && (
        <div className="yh-after-bars" data-testid="try-result">
          {!run.data.matches && (
            <Alert type="info" showIcon className="yh-problem" title={`${t("record.noMatchJob")} ${run.data.reason}`} />
          )}
          <h3 className="yh-small-title">{t("record.withPolicy")}</h3>
          <Placement decisions={run.data.withPolicy} />
          <h3 className="yh-small-title">{t("record.present")}</h3>
          <Placement decisions={run.data.present} />
        </div>
      )}
    </div>
  );
}

export function Simulate(props: { policyId: string; version: bigint; allowed: boolean }) {
  const { t } = useTranslation();
  const { policies } = useClients();
  const centerName = useCenterNames();
  const [jobs, setJobs] = useState(200);
  const run = useMutation({
    mutationFn: () => policies.simulatePolicy({ policyId: props.policyId, version: props.version, jobs }, call()),
  });
  const r = run.data;
  const centers = r ? [...new Set([...Object.keys(r.presentCenters), ...Object.keys(r.policyCenters)])].sort() : [];
  return (
    <div className="yh-pad">
      <p className="yh-muted">{t("record.simulateHelp", { version: props.version.toString() })}</p>
      <div className="yh-row">
        <InputNumber
          min={1}
          max={1000}
          precision={0}
          value={jobs}
          aria-label={t("record.latestJobs")}
          onChange={(v) => setJobs(v ?? 200)}
        />
        <Button
          type="primary"
          disabled={!props.allowed}
          loading={run.isPending}
          onClick={() => run.mutate()}
          data-testid="simulate-run"
        >
          {t("record.simulate")}
        </Button>
      </div>
      {run.error && <Problem error={run.error} />}
      {r && (
        <div className="yh-after-bars" data-testid="simulate-result">
          <p className="yh-muted">{r.method}</p>
          <div className="yh-facts">
            <Fact label={t("record.replayed")}>{formatCount(r.jobs)}</Fact>
            <Fact label={t("record.matched")}>{formatCount(r.matched)}</Fact>
            <Fact label={t("record.moved")}>
              {formatCount(r.moved)} / {formatCount(r.tasks)}
            </Fact>
            <Fact label={t("record.gained")}>{formatCount(r.gained)}</Fact>
            <Fact label={t("record.lost")}>{formatCount(r.lost)}</Fact>
            <Fact label={t("record.price")}>
              <Both a={r.present} b={r.withPolicy} of={(f) => formatFen(f?.priceFen ?? 0n)} />
            </Fact>
            <Fact label={t("record.energy")}>
              <Both a={r.present} b={r.withPolicy} of={(f) => `${formatCount(f?.energyJoules ?? 0n)} J`} />
            </Fact>
            <Fact label={t("simulation.waiting")}>
              <Both a={r.present} b={r.withPolicy} of={(f) => formatDuration((f?.waitingMeanSeconds ?? 0) * 1e6)} />
            </Fact>
            <Fact label={t("simulation.notStarted")}>
              <Both a={r.present} b={r.withPolicy} of={(f) => formatCount(f?.notStarted ?? 0)} />
            </Fact>
          </div>
          <ListTable
            className="yh-after-bars"
            rowKey={(id) => id}
            dataSource={centers}
            columns={[
              { title: t("center.name"), key: "center", render: (_, id) => centerName(id) },
              {
                title: t("record.present"),
                key: "present",
                align: "right",
                render: (_, id) => formatCount(r.presentCenters[id] ?? 0),
              },
              {
                title: t("record.withPolicy"),
                key: "policy",
                align: "right",
                render: (_, id) => formatCount(r.policyCenters[id] ?? 0),
              },
            ]}
          />
        </div>
      )}
    </div>
  );
}

function Both(props: {
  a: PolicyFigures | undefined;
  b: PolicyFigures | undefined;
  of: (f: PolicyFigures | undefined) => string;
}) {
  return (
    <span className="yh-num">
      {props.of(props.a)} → <b>{props.of(props.b)}</b>
    </span>
  );
}
