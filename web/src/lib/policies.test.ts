import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { PolicyProblemSchema, PolicyState } from "../gen/yunhe/policies/v1/policies_pb";
import {
  documentText,
  includeOf,
  newDocument,
  policyStateName,
  problemsBy,
  readDocument,
  valueText,
  weighingOf,
} from "./policies";

test("a document is written and read back", () => {
  const text = `policy_id: night
title: Night
priority: 10
match_rules:
  - expression: job.tenant == "a"
scope: {regions: [guizhou]}
rules:
  weights: {lowest-price: 3}
  filters:
    - filter_id: green
      expression: tags["green"] == "true"
effective_from: 2030-01-01T00:00:00Z
`;
  const document = readDocument(text);
  expect(document).toMatchObject({ policyId: "night", priority: 10, scope: { regions: ["guizhou"] } });
  expect(readDocument(documentText(document))).toEqual(document);
  expect(weighingOf(document)).toBe("weights");
  expect(weighingOf(newDocument())).toBe("none");
  expect(weighingOf(readDocument("rules: {preset: balanced}"))).toBe("preset");
  expect(weighingOf(readDocument("rules: {ranking: [nearest]}"))).toBe("ranking");
  for (const wrong of ["", "- a", "colour: red", "priority: high", "a: ["])
    expect(() => readDocument(wrong), wrong).toThrow();
});

test("problems are shown at the field, or at the nearest one around it", () => {
  const problem = (field: string) => create(PolicyProblemSchema, { field, problem: field });
  const by = problemsBy(
    [
      problem("policy_id"),
      problem("rules.filters[0].expression"),
      problem("rules.filters[0].module.version"),
      problem("odd"),
    ],
    ["policy_id", "rules", "rules.filters[0]", "rules.filters[0].expression"],
  );
  expect([...by].map(([field, list]) => `${field}: ${list.map((p) => p.field).join(" ")}`)).toEqual([
    "policy_id: policy_id",
    "rules.filters[0].expression: rules.filters[0].expression",
    "rules.filters[0]: rules.filters[0].module.version",
    ": odd",
  ]);
});

test("includes name a policy and a version", () => {
  expect(includeOf("night@3")).toEqual({ policyId: "night", version: 3n });
  expect(includeOf(" night ")).toEqual({ policyId: "night", version: 0n });
  for (const wrong of ["", "@1", "a@0", "a b", "a@x"]) expect(includeOf(wrong), wrong).toBeUndefined();
});

test("values and states", () => {
  expect(valueText('"x"')).toBe("x");
  expect(valueText('{"a":1}')).toBe('{"a":1}');
  expect(valueText("")).toBe("");
  const states = Object.values(PolicyState).filter((v): v is PolicyState => typeof v === "number");
  expect(new Set(states.map(policyStateName)).size).toBe(states.length);
});
