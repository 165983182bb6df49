import { expect, test } from "vitest";
import { marksOf, wordBefore } from "./expression";

test("a problem points into its line", () => {
  const expression = 'region == "gz" &&\n\ttags["绿"] == 5';
  expect(marksOf(expression, [{ line: 2, column: 12, message: "no" }])).toEqual([
    { line: 2, column: 12, message: "no", text: '\ttags["绿"] == 5', pointer: `\t${" ".repeat(11)}^` },
  ]);
  expect(marksOf("x", [{ line: 0, column: 0, message: "too long" }])[0]).toMatchObject({ text: "", pointer: "" });
  expect(marksOf("", [{ line: 1, column: 1, message: "empty" }])[0]?.pointer).toBe("");
});

test("the name a caret stands after", () => {
  expect(wordBefore("a && reg", 8)).toBe("reg");
  expect(wordBefore("a && reg", 4)).toBe("");
  expect(wordBefore("job.ten == 1", 7)).toBe("job.ten");
  expect(wordBefore("9x", 2)).toBe("x");
});
