import { describe, expect, test } from "vitest";
import { findLines, LogBuffer, plain, renderLine } from "./logbuffer";

const bytes = (text: string) => new TextEncoder().encode(text);

function feed(buffer: LogBuffer, ...pieces: string[]): LogBuffer {
  let offset = buffer.next ?? 0n;
  for (const piece of pieces) {
    const data = bytes(piece);
    buffer.append(data, offset);
    offset += BigInt(data.length);
  }
  return buffer;
}

describe("LogBuffer", () => {
  test.each([
    [["a\nb\n"], ["a", "b"]],
    [["a\nb"], ["a", "b"]],
    [
      ["a", "b\nc"],
      ["ab", "c"],
    ],
    [
      ["a\n", "\n", "b"],
      ["a", "", "b"],
    ],
    [["\n\n"], ["", ""]],
    [
      ["a\n", "b\n"],
      ["a", "b"],
    ],
    [["", "a"], ["a"]],
  ])("%j", (pieces, lines) => expect(feed(new LogBuffer(), ...pieces).lines).toEqual(lines));

  test("however a text is cut, its lines are the same", () => {
    const text = "一行\n\nsecond\r\nτρίτη 🚀\nlast";
    const whole = feed(new LogBuffer(), text).lines;
    const data = bytes(text);
    for (let cut = 0; cut <= data.length; cut++) {
      const buffer = new LogBuffer();
      buffer.append(data.slice(0, cut), 0n);
      buffer.append(data.slice(cut), BigInt(cut));
      expect(buffer.lines, `cut at ${cut}`).toEqual(whole);
    }
  });

  test("skips bytes it already has, so that a stream can be opened again", () => {
    const buffer = feed(new LogBuffer(), "one\ntwo\n");
    buffer.append(bytes("two\nthree\n"), 4n);
    buffer.append(bytes("one\n"), 0n);
    expect(buffer.lines).toEqual(["one", "two", "three"]);
    expect(buffer.next).toBe(14n);
  });

  test("begins where the server begins", () => {
    const buffer = new LogBuffer();
    buffer.append(bytes("later\n"), 1_000_000n);
    expect(buffer.next).toBe(1_000_006n);
  });

  test("drops the oldest lines beyond its limit and counts them", () => {
    const buffer = feed(new LogBuffer(3), "1\n2\n", "3\n4\n5\n");
    expect(buffer.lines).toEqual(["3", "4", "5"]);
    expect(buffer.dropped).toBe(2);
  });

  test("shows a very long line in parts", () => {
    const buffer = feed(new LogBuffer(), `${"x".repeat(45_000)}\nend`);
    expect(buffer.lines.map((l) => l.length)).toEqual([20_000, 20_000, 5000, 3]);
  });

  test("takes ten megabytes quickly", () => {
    const buffer = new LogBuffer();
    const piece = bytes("0123456789 a line of a log, as long as lines are\n".repeat(1311));
    const start = performance.now();
    let offset = 0n;
    while (offset < 10_000_000n) {
      buffer.append(piece, offset);
      offset += BigInt(piece.length);
    }
    expect(buffer.lines.length).toBeGreaterThan(200_000);
    expect(performance.now() - start).toBeLessThan(5000);
  });
});

describe("a line on screen", () => {
  test("is what is left after carriage returns", () => {
    expect(renderLine("10%\r50%\r100%")).toEqual([{ text: "100%" }]);
    expect(plain("windows line\r")).toBe("windows line");
  });

  test("has its colors", () => {
    expect(renderLine("a \u001b[31mred\u001b[0m b \u001b[1;92mok\u001b[m")).toEqual([
      { text: "a " },
      { text: "red", color: 1 },
      { text: " b " },
      { text: "ok", color: 10, bold: true },
    ]);
  });

  test("loses other escape sequences", () => {
    expect(plain("\u001b[2K\u001b[1G\u001b]0;title\u0007text\u001b[38;5;208m!\u001b[0m")).toBe("text!");
    expect(renderLine("\u001b[38;2;1;2;3mx")).toEqual([{ text: "x" }]);
  });
});

test("search ignores case and escape sequences", () => {
  const lines = ["Accuracy", "test \u001b[32mACC\u001b[0muracy", "none"];
  expect(findLines(lines, "accuracy")).toEqual([0, 1]);
  expect(findLines(lines, "accuracy", 1)).toEqual([1]);
  expect(findLines(lines, "")).toEqual([]);
});
