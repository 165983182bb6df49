import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import {
  fenToInput,
  formatBytes,
  formatCount,
  formatDuration,
  formatFen,
  formatMicros,
  formatMillis,
  formatShortTime,
  formatTime,
  formatUTC,
  microsBetween,
  millis,
  parseQuantity,
  parseYuan,
  percent,
} from "./format";

describe("money", () => {
  test.each([
    [0n, "¥0.00"],
    [1n, "¥0.01"],
    [99n, "¥0.99"],
    [123456n, "¥1,234.56"],
    [-5n, "−¥0.05"],
    [900719925474099312345n, "¥9,007,199,254,740,993,123.45"],
  ])("%s fen", (fen, text) => expect(formatFen(fen)).toBe(text));

  test.each([
    [0n, "¥0.000000"],
    [1500n, "¥0.001500"],
    [1_234_567_890n, "¥1,234.567890"],
  ])("%s micro-yuan", (micros, text) => expect(formatMicros(micros)).toBe(text));

  test.each([
    ["12", 1200n],
    ["12.3", 1230n],
    ["12.34", 1234n],
    [" ¥1,000.05 ", 100005n],
    ["0.07", 7n],
  ])("parses %j", (text, fen) => expect(parseYuan(text)).toBe(fen));

  test.each(["", "1.234", "-1", "1e3", "abc", ".5", "1."])("refuses %j", (text) =>
    expect(parseYuan(text)).toBeUndefined(),
  );

  test("what is put into a field reads back as the same amount", () => {
    for (const fen of [0n, 5n, 10n, 99n, 100n, 12345n]) expect(parseYuan(fenToInput(fen))).toBe(fen);
  });
});

describe("numbers", () => {
  test.each([
    [0n, "0"],
    [999n, "999"],
    [1000n, "1,000"],
    [-12345n, "−12,345"],
    [12873.4, "12,873"],
  ])("%s", (n, text) => expect(formatCount(n)).toBe(text));

  test("percent stays within 0 and 100 and survives no total", () => {
    expect(percent(1n, 4n)).toBe(25);
    expect(percent(9n, 4n)).toBe(100);
    expect(percent(-1, 4)).toBe(0);
    expect(percent(3n, 0n)).toBe(0);
  });

  test.each([
    [0n, "0 B"],
    [1023n, "1023 B"],
    [1024n, "1 KiB"],
    [1536n, "1.5 KiB"],
    [10_485_760n, "10 MiB"],
    [61_440_000n, "58.6 MiB"],
    [250n * 1024n ** 3n, "250 GiB"],
  ])("%s bytes", (bytes, text) => expect(formatBytes(bytes)).toBe(text));

  test.each([
    ["2", 2],
    ["500m", 0.5],
    ["2Gi", 2 * 1024 ** 3],
    ["1k", 1000],
  ])("quantity %j", (text, value) => expect(parseQuantity(text)).toBe(value));
  test("refuses a quantity that is none", () => expect(parseQuantity("2 Gi B")).toBeUndefined());
});

describe("time", () => {
  const ms = Date.UTC(2026, 10, 21, 6, 3, 7, 123);

  // The tests run in Asia/Shanghai, UTC+8.
  test("is shown in the viewer's zone", () => expect(formatTime(ms)).toBe("2026-11-21 14:03:07"));
  test("has no year when it is this year's", () => expect(formatShortTime(ms, ms)).toBe("11-21 14:03:07"));
  test("has the year when it is another", () =>
    expect(formatShortTime(ms, Date.UTC(2027, 5, 1))).toBe("2026-11-21 14:03:07"));
  test("is shown in UTC on demand", () => expect(formatUTC(ms)).toBe("2026-11-21T06:03:07.123Z"));
  test("unset is no time", () => expect(millis(undefined)).toBeUndefined());
  test("between two moments", () => {
    expect(microsBetween(timestampFromMs(ms), timestampFromMs(ms + 1500), 0)).toBe(1_500_000);
    expect(microsBetween(timestampFromMs(ms), undefined, ms + 250)).toBe(250_000);
    expect(microsBetween(undefined, undefined, ms)).toBeUndefined();
  });

  test.each([
    [0, "0 ms"],
    [2_500, "2.5 ms"],
    [840_000, "840 ms"],
    [12_340_000, "12.3 s"],
    [59_949_000, "59.9 s"],
    [59_960_000, "1 m 00 s"],
    [245_000_000, "4 m 05 s"],
    [7_980_000_000, "2 h 13 m"],
    [273_600_000_000, "3 d 04 h"],
  ])("%s µs", (micros, text) => expect(formatDuration(micros)).toBe(text));

  test.each([
    [1_234n, "1.23 ms"],
    [61_220n, "61.2 ms"],
    [1_234_567n, "1,235 ms"],
  ])("%s µs of scheduling", (micros, text) => expect(formatMillis(micros)).toBe(text));
});
