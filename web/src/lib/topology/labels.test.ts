import { expect, test } from "vitest";
import { changedLabels } from "./labels";

test("labels that differ are named", () => {
  expect(changedLabels({ a: "1", b: "2", c: "" }, { b: "3", c: "", d: "4" })).toBe("-a, b=2 → 3, +d=4");
  expect(changedLabels({}, {})).toBe("");
});
