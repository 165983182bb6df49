// Why each replica is where it is: the whole score table of every decision,
// equal decisions together.
import { Collapse, Tooltip } from "antd";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { CandidateScore, Decision, ListPoliciesResponse } from "../gen/yunhe/scheduler/v1/scheduler_pb";
import { said } from "../i18n/reasons";
import { type DecisionGroup, groupDecisions, policyColumns, ranges, sortCandidates, verdict } from "../lib/explain";
import { usePrefs } from "../prefs";
import { usePolicies } from "../queries";
import { SERIES } from "../theme";
import { Moment, Nothing } from "./bits";

/** What the scheduler says, in the console's language. */
export function useSaid(): (text: string) => string {
  const { language } = usePrefs();
  return (text) => said(text, language);
}

/** Titles of policies in the console's language. */
export function usePolicyTitles(): (id: string) => string {
  const { language } = usePrefs();
  const { data } = usePolicies();
  return useMemo(() => policyTitles(data, language), [data, language]);
}

function policyTitles(policies: ListPoliciesResponse | undefined, language: string): (id: string) => string {
  const titles = new Map(
    (policies?.policies ?? []).map((p) => [p.policyId, (language === "zh" ? p.titleZh : "") || p.title]),
  );
  return (id) => titles.get(id) ?? id;
}

export function Placement({ decisions }: { decisions: Decision[] }) {
  const { t } = useTranslation();
  const groups = useMemo(() => groupDecisions(decisions), [decisions]);
  if (groups.length === 0) return <Nothing text={t("placement.none")} />;
  return (
    <Collapse
      className="yh-placement"
      defaultActiveKey={groups.slice(0, 2).map((g) => g.key)}
      items={groups.map((group) => ({
        key: group.key,
        label: <GroupHead group={group} />,
        children: <ScoreTable group={group} />,
      }))}
    />
  );
}

function GroupHead({ group }: { group: DecisionGroup }) {
  const { t } = useTranslation();
  const d = group.first;
  const winner = d.candidates.find((c) => c.chosen);
  return (
    <div className="yh-decision-head">
      <strong>{d.taskName || t("placement.task", { index: d.taskIndex })}</strong>
      <span>{t("placement.replicas", { count: group.replicas.length, list: ranges(group.replicas) })}</span>
      {d.attempt > 1 && <span>{t("placement.attempt", { attempt: d.attempt })}</span>}
      <span className="yh-grow" />
      {winner ? (
        <span className="yh-decision-to">
          → {winner.centerName || winner.aiCenterId} <b className="yh-num">{winner.finalScoreRounded}</b>
        </span>
      ) : (
        <span className="yh-decision-wait">{t("placement.waiting")}</span>
      )}
    </div>
  );
}

function ScoreTable({ group }: { group: DecisionGroup }) {
  const { t } = useTranslation();
  const title = usePolicyTitles();
  const d = group.first;
  const rows = useMemo(() => sortCandidates(d.candidates), [d]);
  const columns = useMemo(() => policyColumns(d.candidates), [d]);
  return (
    <div>
      <Sentence decision={d} title={title} />
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard */}
      <section className="yh-score-scroll" tabIndex={0} aria-label={t("placement.table")}>
        <table className="yh-score" data-testid="score-table">
          <thead>
            <tr>
              <th scope="col" className="yh-score-rank">
                {t("placement.rank")}
              </th>
              <th scope="col" className="yh-score-center">
                {t("placement.center")}
              </th>
              <th scope="col" className="yh-score-final">
                {t("placement.final")}
              </th>
              {columns.map((c, i) => (
                <th key={c.policyId} scope="col" title={c.policyId}>
                  <i style={{ background: SERIES[i % SERIES.length] }} />
                  {title(c.policyId)}
                  <small>{t("placement.weight", { percent: (c.weight * 100).toFixed(1) })}</small>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((candidate) => (
              <CandidateRow key={candidate.aiCenterId} candidate={candidate} columns={columns} title={title} />
            ))}
          </tbody>
        </table>
      </section>
      <p className="yh-score-note">
        {d.policy && (
          <>
            {t("placement.by")} <code data-testid="decided-by">{d.policy}</code>.{" "}
          </>
        )}
        {t("placement.note")} {d.decidedAt && <Moment at={d.decidedAt} />}
      </p>
    </div>
  );
}

type Column = { policyId: string; weight: number };

function CandidateRow(props: { candidate: CandidateScore; columns: Column[]; title: (id: string) => string }) {
  const { t } = useTranslation();
  const say = useSaid();
  const { candidate: c, columns, title } = props;
  const scores = new Map(c.scores.map((s) => [s.policyId, s]));
  const name = (
    <td className="yh-score-center">
      <b>{c.centerName || c.aiCenterId}</b>
      <small>{c.aiCenterId}</small>
    </td>
  );
  if (c.filterReasons.length > 0) {
    return (
      <tr className="yh-score-filtered">
        <td className="yh-score-rank">–</td>
        {name}
        <td colSpan={columns.length + 1} className="yh-score-reasons">
          <span className="yh-state yh-tone-neutral">
            <i aria-hidden />
            {t("placement.filtered")}
          </span>
          {c.filterReasons.map(say).join("; ")}
        </td>
      </tr>
    );
  }
  return (
    <tr className={c.chosen ? "yh-score-chosen" : undefined}>
      <td className="yh-score-rank">{c.rank}</td>
      {name}
      <td className="yh-score-final">
        <Tooltip title={t("placement.exact", { score: c.finalScore.toFixed(4) })}>
          <b className="yh-num">{c.finalScore.toFixed(2)}</b>
        </Tooltip>
        {c.chosen && <em>{t("placement.chosen")}</em>}
        <div className="yh-stack" aria-hidden>
          {columns.map((column, i) => (
            <span
              key={column.policyId}
              title={title(column.policyId)}
              style={{ width: `${scores.get(column.policyId)?.weighted ?? 0}%`, background: SERIES[i % SERIES.length] }}
            />
          ))}
        </div>
      </td>
      {columns.map((column) => {
        const s = scores.get(column.policyId);
        return (
          <td key={column.policyId} className="yh-score-cell">
            {s ? (
              <>
                <b className="yh-num">{s.score}</b>
                <span className="yh-num">+{s.weighted.toFixed(2)}</span>
                <small title={s.fact}>{s.fact}</small>
              </>
            ) : (
              "–"
            )}
          </td>
        );
      })}
    </tr>
  );
}

function Sentence({ decision, title }: { decision: Decision; title: (id: string) => string }) {
  const { t } = useTranslation();
  const say = useSaid();
  const v = verdict(decision.candidates);
  if (!v) return <p className="yh-score-sentence">{say(decision.summary) || t("placement.waiting")}</p>;
  const winner = v.winner.centerName || v.winner.aiCenterId;
  const score = v.winner.finalScore.toFixed(2);
  let text: string;
  if (!v.runnerUp) text = t("placement.only", { winner, score });
  else {
    const values = { winner, score, runnerUp: v.runnerUp.centerName || v.runnerUp.aiCenterId, lead: v.lead.toFixed(2) };
    const why = v.advantages.map((a) =>
      t("placement.advantage", { policy: title(a.policyId), points: a.points.toFixed(2) }),
    );
    if (v.lead < 0.005) text = t("placement.tie", values);
    else if (why.length === 0) text = t("placement.ahead", values);
    else text = t("placement.because", { ...values, why: why.join(t("common.listSeparator")) });
  }
  return (
    <p className="yh-score-sentence" title={decision.summary}>
      {text}
    </p>
  );
}
