import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { said } from "./reasons";

// What the scheduler's own tests have it say of centers: "-  a is not available
// [status]", and of work that stays: "job/task/0 stays: …".
const scripts = new URL("../../../internal/scheduler/place/testdata/", import.meta.url);
const ofCenters = new Set(
  readdirSync(scripts)
    .filter((name) => name.endsWith(".txt"))
    .flatMap((name) => readFileSync(new URL(name, scripts), "utf8").split("\n"))
    .flatMap((line) => {
      const out = /^ {4}- {2}\S+ (.+) \[(?!expression)[a-z-]+\]$/.exec(line) ?? /^\S+ stays: (.+)$/.exec(line);
      return out?.[1] ? [out[1]] : [];
    }),
);

const ofQueues = [
  "has 2 replicas of web, from which it is to be apart",
  "waits for its turn in the queue; center a would be chosen now",
  "waits: tenant physics uses 8 of gpu and may use 8; 1 more are asked for",
  "is not placed while the job is paused",
  "its time has not come",
  "room is kept for it at a when what runs there has ended",
  "room is kept for it at 2 places when what runs there has ended",
  "it would run into what is kept for others",
  "it would run into the window maintenance",
  "no place has room for it",
  "is excluded: it refused the like 3 times, last at 10:00:00 (out of disk); it is tried again from 11:00:00",
  "its shares of the accelerator pool ended: pool node n1 is gone; its time has not come",
  "its shares of the accelerator pool ended: their node or device went before it had them",
  "its time has not come; whether there is room then is not known",
  "the next period of budget b1; sooner if what runs costs less than expected",
  "what is free there is kept for work that waits longer, or is reserved",
  "has an unknown status: it has not been heard of for 15s",
  "is draining and takes no new work: an operator took it out of use",
];

describe("what the scheduler says", () => {
  test("there are sentences", () => expect(ofCenters.size).toBeGreaterThan(40));

  test.each([...ofCenters, ...ofQueues])("%s", (text) => {
    const chinese = said(text, "zh");
    expect(chinese).not.toBe(text);
    // What is left of English are names and amounts, never words of a sentence.
    expect(chinese).not.toMatch(/\b(has|is|wants|wanted|idle|required|replicas?|centers?|which|none|waits)\b/);
    expect(said(text, "en")).toBe(text);
  });

  test("sentences of others stay as they are, alone and beside known ones", () => {
    expect(said("is too far from the sea", "zh")).toBe("is too far from the sea");
    expect(said("is excluded: the owner said so", "zh")).toBe("已被排除：the owner said so");
    expect(said("is too far; reports no free capacity", "zh")).toBe("is too far；未报告空闲容量");
    expect(said("", "zh")).toBe("");
  });

  test("names with special characters are kept", () => {
    expect(said("does not have image a$&{b}", "zh")).toBe("没有镜像 a$&{b}");
  });
});
