import { describe, expect, test } from "vitest";
import { en } from "./en";
import { zh } from "./zh";

// Texts by their full key.
function flat(node: object, path = ""): Map<string, string> {
  const found = new Map<string, string>();
  for (const [key, value] of Object.entries(node)) {
    const name = path ? `${path}.${key}` : key;
    if (typeof value === "string") found.set(name, value);
    else for (const [k, v] of flat(value as object, name)) found.set(k, v);
  }
  return found;
}

const variables = (text: string) => [...text.matchAll(/\{\{(\w+)\}\}/g)].map((m) => m[1]).sort();

describe("texts", () => {
  const english = flat(en);
  const chinese = flat(zh);

  test("every text is there in both languages", () => {
    const wanted = [...english.keys()].filter((k) => !k.endsWith("_one"));
    expect([...chinese.keys()].sort()).toEqual(wanted.sort());
  });

  test("none is empty", () => {
    for (const [key, text] of [...english, ...chinese]) expect(text.trim(), key).not.toBe("");
  });

  test("both languages use the same values", () => {
    for (const [key, text] of chinese) expect(variables(text), key).toEqual(variables(english.get(key) ?? ""));
  });

  test("Chinese is Chinese", () => {
    const foreign = new Set(["resource.cpu", "resource.gpu", "resource.npu", "resource.mlu", "spec.id", "image.id"]);
    for (const [key, text] of chinese) {
      if (!foreign.has(key))
        expect(
          /[\u4e00-\u9fff]/.test(text) || /^[^A-Za-z]*$/.test(text.replace(/\{\{\w+\}\}/g, "")),
          `${key}: ${text}`,
        ).toBe(true);
    }
  });
});
