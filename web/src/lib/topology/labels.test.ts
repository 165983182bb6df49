import { expect, test } from "vitest";
import { changedLabels } from "./labels";

test("labels that differ are named", () => {
  expect(changedLabels({ a: "1", b: "2", c: "" }, { b: "3", c: "", d: "4" })).toBe("-a, b=2 → 3, +d=4");
  expect(changedLabels({}, {})).toBe("");
  expect(changedLabels({}, { a: "1", b: "2", c: "3", d: "4", e: "5", f: "6" })).toBe("+a=1, +b=2, +c=3, +d=4, +2");
});
