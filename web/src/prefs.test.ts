import { expect, test } from "vitest";
import { initialLanguage } from "./prefs";

test.each([
  ["zh", ["en-US"], "zh"],
  ["en", ["zh-CN"], "en"],
  [null, ["zh-CN", "en"], "zh"],
  [null, ["ZH-tw"], "zh"],
  [null, ["en-US", "zh-CN"], "en"],
  [null, ["de"], "en"],
  ["nonsense", ["zh"], "zh"],
] as const)("stored %j, browser wants %j", (stored, wanted, language) => {
  expect(initialLanguage(stored, wanted)).toBe(language);
});
