// Versions of a policy compared on real jobs: started, looked at, ended.
import { CloseOutlined, PlusOutlined } from "@ant-design/icons";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Drawer, Input, InputNumber, Modal, Select, Table } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call } from "../../api";
import { Fact, Loaded, Moment, Problem, Tag } from "../../components/bits";
import { ListTable } from "../../components/Pager";
import type { PolicyComparison, PolicyMean, PolicyTest, PolicyVersion } from "../../gen/yunhe/policies/v1/policies_pb";

import { formatCount, formatDuration, formatFen, NONE } from "../../lib/format";
import { useClients, useSession } from "../../session";
import { policyPath } from "./Records";

const EVERY_MS = 5000;

/** The comparisons of a policy, of all without one. */
export function TestList({ policyId = "" }: { policyId?: string }) {
  const { t } = useTranslation();
  const { policies } = useClients();
  const [shown, setShown] = useState<string>();
  const tests = useQuery({
    queryKey: ["policies", "tests", policyId],
    queryFn: async ({ signal }) => (await policies.listPolicyTests({ policyId }, call(signal))).tests,
    refetchInterval: EVERY_MS,
  });
  return (
    <>
      <Loaded query={tests} rows={4}>
        {(list) => (
          <ListTable
            rowKey="testId"
            dataSource={list}
            tableLayout="fixed"
            scroll={{ x: 860 }}
            data-testid="policy-tests"
            empty={t("record.noTests")}
            columns={[
              {
                title: t("record.test"),
                key: "test",
                width: 250,
                ellipsis: true,
                render: (_, x) => (
                  <Button type="link" className="yh-link-cell" onClick={() => setShown(x.testId)}>
                    {x.arms.map((a) => `${a.name}: ${x.policyId}@${a.version} ${a.percent} %`).join(" · ")}
                  </Button>
                ),
              },
              ...(policyId
                ? []
                : [
                    {
                      title: t("record.policy"),
                      key: "policy",
                      width: 180,
                      ellipsis: true,
                      render: (_: unknown, x: PolicyTest) => <Link to={policyPath(x.policyId)}>{x.policyId}</Link>,
                    },
                  ]),
              {
                title: t("registry.state"),
                key: "state",
                width: 150,
                render: (_, x) => (
                  <Tag
                    tone={x.running ? "active" : "neutral"}
                    text={t(x.running ? "record.running" : "record.ended")}
                  />
                ),
              },
              { title: t("record.winner"), key: "winner", width: 100, render: (_, x) => x.winner || NONE },
              {
                title: t("operation.begun"),
                key: "started",
                width: 132,
                render: (_, x) => <Moment at={x.startedAt} />,
              },
              { title: t("operation.ended"), key: "ended", width: 132, render: (_, x) => <Moment at={x.endedAt} /> },
            ]}
          />
        )}
      </Loaded>
      <Drawer
        open={shown !== undefined}
        onClose={() => setShown(undefined)}
        size={860}
        title={t("record.test")}
        destroyOnHidden
      >
        {shown && <Results id={shown} onEnded={() => setShown(undefined)} />}
      </Drawer>
    </>
  );
}

function Results({ id, onEnded }: { id: string; onEnded: () => void }) {
  const { t } = useTranslation();
  const { policies } = useClients();
  const { can } = useSession();
  const [ending, setEnding] = useState(false);
  const test = useQuery({
    queryKey: ["policies", "test", id],
    queryFn: ({ signal }) => policies.getPolicyTest({ testId: id }, call(signal)),
    refetchInterval: EVERY_MS,
  });
  return (
    <Loaded query={test} rows={8}>
      {(x) => (
        <>
          <div className="yh-facts">
            <Fact label={t("record.policy")}>
              <Link to={policyPath(x.policyId)}>{x.policyId}</Link>
            </Fact>
            <Fact label={t("operation.begun")}>
              <Moment at={x.startedAt} /> {x.startedBy}
            </Fact>
            <Fact label={t("operation.ended")}>
              <Moment at={x.endedAt} /> {x.endedBy}
            </Fact>
            <Fact label={t("record.winner")}>{x.winner || NONE}</Fact>
          </div>
          {x.reason && <p className="yh-muted yh-after-bars">{x.reason}</p>}
          <Table
            className="yh-after-bars"
            size="small"
            rowKey="name"
            dataSource={x.arms}
            pagination={false}
            scroll={{ x: 780 }}
            data-testid="arms"
            columns={[
              {
                title: t("record.arm"),
                key: "arm",
                render: (_, a) => (
                  <>
                    <b>{a.name}</b> <span className="yh-muted">@{a.version.toString()}</span>
                  </>
                ),
              },
              { title: t("record.share"), key: "share", align: "right", render: (_, a) => `${a.percent} %` },
              {
                title: t("nav.jobs"),
                key: "jobs",
                align: "right",
                render: (_, a) => formatCount(a.result?.jobs ?? 0n),
              },
              {
                title: t("record.failedJobs"),
                key: "failed",
                align: "right",
                render: (_, a) => `${formatCount(a.result?.failed ?? 0n)} / ${formatCount(a.result?.ended ?? 0n)}`,
              },
              {
                title: t("record.waiting"),
                key: "waiting",
                align: "right",
                render: (_, a) => <Mean of={a.result?.waitingSeconds} as="seconds" />,
              },
              {
                title: t("record.duration"),
                key: "duration",
                align: "right",
                render: (_, a) => <Mean of={a.result?.durationSeconds} as="seconds" />,
              },
              {
                title: t("record.cost"),
                key: "cost",
                align: "right",
                render: (_, a) => <Mean of={a.result?.costFen} as="fen" />,
              },
              {
                title: t("record.energy"),
                key: "energy",
                align: "right",
                render: (_, a) => <Mean of={a.result?.energyJoules} as="joules" />,
              },
            ]}
          />
          {x.comparisons.length > 0 && (
            <>
              <h3 className="yh-small-title">{t("record.comparedWith", { arm: x.arms[0]?.name ?? "" })}</h3>
              <Table<PolicyComparison>
                size="small"
                rowKey={(c) => `${c.arm}/${c.figure}`}
                dataSource={x.comparisons}
                pagination={false}
                columns={[
                  { title: t("record.arm"), dataIndex: "arm", width: 80 },
                  {
                    title: t("record.figure"),
                    key: "figure",
                    width: 150,
                    render: (_, c) => <FigureName name={c.figure} />,
                  },
                  {
                    title: t("record.difference"),
                    key: "difference",
                    width: 220,
                    render: (_, c) =>
                      c.low === c.high && !c.clear ? (
                        <span className="yh-none">{NONE}</span>
                      ) : (
                        <span className="yh-num">
                          {signed(c.difference)} [{signed(c.low)} … {signed(c.high)}]
                        </span>
                      ),
                  },
                  {
                    title: t("record.certain"),
                    key: "clear",
                    render: (_, c) => (
                      <>
                        <Tag
                          tone={c.clear ? "good" : "neutral"}
                          text={t(c.clear ? "record.clear" : "record.unclear")}
                        />{" "}
                        <span className="yh-muted">{c.note}</span>
                      </>
                    ),
                  },
                ]}
              />
            </>
          )}
          {x.running && can("scheduler.write") && (
            <Button className="yh-after-bars" type="primary" onClick={() => setEnding(true)} data-testid="end-test">
              {t("record.endTest")}
            </Button>
          )}
          <Modal
            open={ending}
            onCancel={() => setEnding(false)}
            footer={null}
            title={t("record.endTestTitle")}
            destroyOnHidden
          >
            <End
              test={x}
              onClose={(done) => {
                setEnding(false);
                if (done) onEnded();
              }}
            />
          </Modal>
        </>
      )}
    </Loaded>
  );
}

const FIGURES = ["waiting_seconds", "duration_seconds", "cost_fen", "energy_joules", "failed_share"] as const;

function FigureName({ name }: { name: string }) {
  const { t } = useTranslation();
  const known = FIGURES.find((f) => f === name);
  return <>{known ? t(`record.figures.${known}`) : name}</>;
}

const signed = (n: number) => `${n > 0 ? "+" : ""}${Number(n.toPrecision(3))}`;

function Mean({ of: m, as }: { of: PolicyMean | undefined; as: "seconds" | "fen" | "joules" }) {
  if (!m || m.jobs === 0n) return <span className="yh-none">{NONE}</span>;
  const text = (n: number) =>
    as === "seconds"
      ? formatDuration(n * 1e6)
      : as === "fen"
        ? formatFen(BigInt(Math.round(n)))
        : `${formatCount(n)} J`;
  return (
    <span className="yh-num" title={`n = ${m.jobs}`}>
      {text(m.mean)} <em className="yh-of">± {text(m.standardError)}</em>
    </span>
  );
}

function End({ test, onClose }: { test: PolicyTest; onClose: (done: boolean) => void }) {
  const { t } = useTranslation();
  const { policies } = useClients();
  const client = useQueryClient();
  const [winner, setWinner] = useState("");
  const [reason, setReason] = useState("");
  const end = useMutation({
    mutationFn: () => policies.endPolicyTest({ testId: test.testId, winner, reason: reason.trim() }, call()),
    onSuccess: async () => {
      onClose(true);
      await client.invalidateQueries({ queryKey: ["policies"] });
    },
  });
  return (
    <>
      {end.error && <Problem error={end.error} />}
      <p>{t("record.endTestHelp")}</p>
      <Select
        className="yh-wide"
        value={winner}
        aria-label={t("record.winner")}
        onChange={setWinner}
        options={[
          { value: "", label: t("record.noWinner") },
          ...test.arms.map((a) => ({ value: a.name, label: `${a.name} (${test.policyId}@${a.version})` })),
        ]}
      />
      <Input
        className="yh-after-bars"
        value={reason}
        maxLength={512}
        placeholder={t("tag.reason")}
        aria-label={t("tag.reason")}
        onChange={(e) => setReason(e.target.value)}
      />
      <div className="yh-row yh-after-bars">
        <Button type="primary" loading={end.isPending} onClick={() => end.mutate()} data-testid="end-test-confirm">
          {t("record.endTest")}
        </Button>
        <Button onClick={() => onClose(false)}>{t("common.cancel")}</Button>
      </div>
    </>
  );
}

/** Starts a comparison of versions of a policy in force. */
export function StartTest(props: { policyId: string; versions: PolicyVersion[]; issued: bigint; onClose: () => void }) {
  const { t } = useTranslation();
  const { policies } = useClients();
  const { message } = App.useApp();
  const client = useQueryClient();
  const other = props.versions.find((v) => v.version !== props.issued)?.version ?? props.issued;
  const [arms, setArms] = useState([
    { name: "a", version: props.issued, percent: 50 },
    { name: "b", version: other, percent: 50 },
  ]);
  const [reason, setReason] = useState("");
  const sum = arms.reduce((n, a) => n + a.percent, 0);
  const start = useMutation({
    mutationFn: () => policies.startPolicyTest({ policyId: props.policyId, arms, reason: reason.trim() }, call()),
    onSuccess: async () => {
      void message.success(t("record.testStarted"));
      props.onClose();
      await client.invalidateQueries({ queryKey: ["policies"] });
    },
  });
  const set = (i: number, part: Partial<(typeof arms)[number]>) =>
    setArms(arms.map((a, k) => (k === i ? { ...a, ...part } : a)));
  return (
    <>
      {start.error && <Problem error={start.error} />}
      <p className="yh-muted">{t("record.testHelp")}</p>
      {arms.map((a, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the name is being typed
        <div key={i} className="yh-row yh-arm">
          <Input
            className="yh-w-140"
            value={a.name}
            maxLength={16}
            aria-label={t("record.armName", { number: i + 1 })}
            onChange={(e) => set(i, { name: e.target.value })}
          />
          <Select
            className="yh-w-140"
            value={a.version.toString()}
            aria-label={t("record.armVersion", { number: i + 1 })}
            onChange={(v: string) => set(i, { version: BigInt(v) })}
            options={props.versions.map((v) => ({ value: v.version.toString(), label: `@${v.version}` }))}
          />
          <InputNumber
            min={1}
            max={99}
            precision={0}
            value={a.percent}
            suffix="%"
            aria-label={t("record.armPercent", { number: i + 1 })}
            onChange={(v) => set(i, { percent: v ?? 1 })}
          />
          {arms.length > 2 && (
            <Button
              type="text"
              size="small"
              icon={<CloseOutlined aria-hidden />}
              aria-label={`${t("common.remove")}: ${a.name}`}
              onClick={() => setArms(arms.filter((_, k) => k !== i))}
            />
          )}
        </div>
      ))}
      {arms.length < 8 && (
        <Button
          size="small"
          icon={<PlusOutlined aria-hidden />}
          onClick={() =>
            setArms([...arms, { name: String.fromCharCode(97 + arms.length), version: other, percent: 1 }])
          }
        >
          {t("record.addArm")}
        </Button>
      )}
      <Input
        className="yh-after-bars"
        value={reason}
        maxLength={512}
        placeholder={t("tag.reason")}
        aria-label={t("tag.reason")}
        onChange={(e) => setReason(e.target.value)}
      />
      <div className="yh-row yh-after-bars">
        <Button
          type="primary"
          disabled={sum !== 100}
          loading={start.isPending}
          onClick={() => start.mutate()}
          data-testid="start-test-confirm"
        >
          {t("record.startTest")}
        </Button>
        <Button onClick={props.onClose}>{t("common.cancel")}</Button>
        {sum !== 100 && <span className="yh-bad">{t("record.sumIs", { sum })}</span>}
      </div>
    </>
  );
}
