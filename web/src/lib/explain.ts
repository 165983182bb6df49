// Placement decisions as a person reads them: equal ones together, the winner
// against the runner-up.
import type { CandidateScore, Decision, PolicyScore } from "../gen/yunhe/scheduler/v1/scheduler_pb";

/** Decisions with the same task, outcome and score table. */
export interface DecisionGroup {
  key: string;
  first: Decision;
  /** Replica indices, ascending. */
  replicas: number[];
}

/** Groups decisions that differ only in the replica; the order of first appearance is kept. */
export function groupDecisions(decisions: Decision[]): DecisionGroup[] {
  const groups = new Map<string, DecisionGroup>();
  for (const decision of decisions) {
    const key = fingerprint(decision);
    const group = groups.get(key);
    if (group) group.replicas.push(decision.replicaIndex);
    else groups.set(key, { key, first: decision, replicas: [decision.replicaIndex] });
  }
  for (const group of groups.values()) group.replicas.sort((a, b) => a - b);
  return [...groups.values()];
}

function fingerprint(d: Decision): string {
  return JSON.stringify([
    d.taskIndex,
    d.attempt,
    d.aiCenterId,
    d.summary,
    d.candidates.map((c) => [
      c.aiCenterId,
      c.chosen,
      c.rank,
      c.finalScore,
      c.filterReasons,
      c.scores.map((s) => [s.policyId, s.score, s.weight, s.fact]),
    ]),
  ]);
}

/** Replica indices as people write them: [0, 1, 2, 5] is "0–2, 5". */
export function ranges(indices: number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < indices.length; ) {
    let j = i;
    while (indices[j + 1] === (indices[j] ?? 0) + 1) j++;
    parts.push(i === j ? `${indices[i]}` : `${indices[i]}–${indices[j]}`);
    i = j + 1;
  }
  return parts.join(", ");
}

/** Candidates that can run it by rank, then those filtered out by ID. */
export function sortCandidates(candidates: CandidateScore[]): CandidateScore[] {
  return [...candidates].sort((a, b) => {
    if (a.rank > 0 && b.rank > 0) return a.rank - b.rank;
    if (a.rank > 0 || b.rank > 0) return a.rank > 0 ? -1 : 1;
    return a.aiCenterId < b.aiCenterId ? -1 : 1;
  });
}

/** The policies that count, heaviest first, in the order in which a table shows them. */
export function policyColumns(candidates: CandidateScore[]): { policyId: string; weight: number }[] {
  const weights = new Map<string, number>();
  for (const candidate of candidates) {
    for (const s of candidate.scores) if (s.weight > 0) weights.set(s.policyId, s.weight);
  }
  return [...weights]
    .map(([policyId, weight]) => ({ policyId, weight }))
    .sort((a, b) => b.weight - a.weight || (a.policyId < b.policyId ? -1 : 1));
}

/** Why the winner won. */
export interface Verdict {
  winner: CandidateScore;
  /** Absent if nobody else could run it. */
  runnerUp?: CandidateScore;
  /** Points between the two, never negative. */
  lead: number;
  /** Policies that put the winner ahead, by how much, largest first; at most two. */
  advantages: { policyId: string; points: number }[];
}

/** The winner of a decision against the next best, undefined if nothing was chosen. */
export function verdict(candidates: CandidateScore[]): Verdict | undefined {
  const winner = candidates.find((c) => c.chosen);
  if (!winner) return undefined;
  const runnerUp = sortCandidates(candidates).find((c) => c.rank > 0 && c !== winner);
  if (!runnerUp) return { winner, lead: 0, advantages: [] };
  const theirs = new Map(runnerUp.scores.map((s) => [s.policyId, s.weighted]));
  const advantages = winner.scores
    .map((s: PolicyScore) => ({ policyId: s.policyId, points: s.weighted - (theirs.get(s.policyId) ?? 0) }))
    .filter((a) => a.points > 0.005)
    .sort((a, b) => b.points - a.points)
    .slice(0, 2);
  return { winner, runnerUp, lead: Math.max(0, winner.finalScore - runnerUp.finalScore), advantages };
}
