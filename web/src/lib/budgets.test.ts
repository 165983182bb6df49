import { expect, test } from "vitest";
import { budgetShare, microsOf, yuanOf } from "./budgets";

test("amounts are typed in yuan and kept in micro-yuan", () => {
  expect(microsOf("12.34")).toBe(12_340_000n);
  expect(microsOf("500")).toBe(500_000_000n);
  for (const text of ["", "0", "-1", "1.234", "x"]) expect(microsOf(text)).toBeUndefined();
  expect(yuanOf(12_340_000n)).toBe("12.34");
  expect(yuanOf(500_000_000n)).toBe("500.00");
});

test("the share of what is spent", () => {
  expect(budgetShare({ spentMicros: 5n, amountMicros: 4n })).toBe(125);
  expect(budgetShare({ spentMicros: 5n, amountMicros: 0n })).toBe(0);
});
