import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  type CandidateScore,
  CandidateScoreSchema,
  type Decision,
  DecisionSchema,
} from "../gen/yunhe/scheduler/v1/scheduler_pb";
import { groupDecisions, policyColumns, ranges, sortCandidates, verdict } from "./explain";

function candidate(id: string, rank: number, scores: Record<string, number> = {}, chosen = false): CandidateScore {
  const list = Object.entries(scores).map(([policyId, score]) => ({
    policyId,
    score,
    weight: 0.5,
    weighted: score / 2,
    fact: "f",
  }));
  return create(CandidateScoreSchema, {
    aiCenterId: id,
    rank,
    chosen,
    scores: list,
    finalScore: list.reduce((s, x) => s + x.weighted, 0),
    filterReasons: rank === 0 ? ["no room"] : [],
  });
}

function decision(replicaIndex: number, candidates: CandidateScore[], taskIndex = 0): Decision {
  return create(DecisionSchema, { taskIndex, replicaIndex, attempt: 1, aiCenterId: "a", candidates });
}

describe("groupDecisions", () => {
  const one = [candidate("a", 1, { price: 80 }, true), candidate("b", 2, { price: 60 })];
  const other = [candidate("a", 1, { price: 81 }, true), candidate("b", 2, { price: 60 })];

  test("puts replicas with the same table together", () => {
    const groups = groupDecisions([decision(2, one), decision(0, one), decision(1, other)]);
    expect(groups.map((g) => g.replicas)).toEqual([[0, 2], [1]]);
  });

  test("keeps tasks apart", () => {
    expect(groupDecisions([decision(0, one, 0), decision(0, one, 1)])).toHaveLength(2);
  });
});

test.each([
  [[], ""],
  [[3], "3"],
  [[0, 1, 2], "0–2"],
  [[0, 1, 3, 5, 6], "0–1, 3, 5–6"],
])("ranges of %j", (indices, text) => expect(ranges(indices)).toBe(text));

test("candidates are in order of rank, filtered ones last by ID", () => {
  const list = [candidate("z", 0), candidate("b", 2), candidate("c", 0), candidate("a", 1)];
  expect(sortCandidates(list).map((c) => c.aiCenterId)).toEqual(["a", "b", "c", "z"]);
});

test("columns are the policies that weigh something, heaviest first", () => {
  const c = create(CandidateScoreSchema, {
    scores: [
      { policyId: "x", weight: 0.2 },
      { policyId: "none", weight: 0 },
      { policyId: "y", weight: 0.6 },
      { policyId: "a", weight: 0.2 },
    ],
  });
  expect(policyColumns([c]).map((p) => p.policyId)).toEqual(["y", "a", "x"]);
});

describe("verdict", () => {
  test("names the lead and what made it", () => {
    const v = verdict([
      candidate("a", 1, { price: 90, load: 40, power: 60 }, true),
      candidate("b", 2, { price: 50, load: 60, power: 50 }),
    ]);
    expect(v?.runnerUp?.aiCenterId).toBe("b");
    expect(v?.lead).toBeCloseTo(15);
    expect(v?.advantages).toEqual([
      { policyId: "price", points: 20 },
      { policyId: "power", points: 5 },
    ]);
  });

  test("has no runner-up when nobody else can run it", () => {
    expect(verdict([candidate("a", 1, { price: 1 }, true), candidate("b", 0)])?.runnerUp).toBeUndefined();
  });

  test("is none while nothing is chosen", () => {
    expect(verdict([candidate("a", 1, { price: 1 })])).toBeUndefined();
  });
});
