import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { PathFact_Source, PathSchema } from "../gen/yunhe/network/v1/network_pb";
import { bitRate, degrees, endOf, factText, isDeclared, millionths, pathFact } from "./network";

test("facts with their units", () => {
  expect(factText("latency", 18_250n)).toBe("18.3 ms");
  expect(factText("latency", 421n)).toBe("0.421 ms");
  expect(factText("jitter", 0n)).toBe("0 ms");
  expect(factText("loss", 500n)).toBe("0.05%");
  expect(factText("bandwidth", 10_000_000n)).toBe("10 Gbit/s");
  expect(factText("fee", 30n)).toBe("¥0.30");
  expect(bitRate(2_500_000)).toBe("2.5 Mbit/s");
  expect(bitRate(12)).toBe("12 bit/s");
});

test("ends", () => {
  expect(endOf("center:gz-1")).toEqual({ kind: "center", id: "gz-1" });
  expect(endOf("region:华东")).toEqual({ kind: "region", id: "华东" });
  expect(endOf("*")).toBeUndefined();
  expect(endOf("other:x")).toBeUndefined();
});

test("what was declared", () => {
  const path = (source: PathFact_Source, note = "") =>
    create(PathSchema, { from: "center:a", to: "center:b", note, facts: [{ fact: "latency_us", value: 1n, source }] });
  expect(isDeclared(path(PathFact_Source.DECLARED))).toBe(true);
  expect(isDeclared(path(PathFact_Source.MEASURED))).toBe(false);
  expect(isDeclared(path(PathFact_Source.MEASURED, "leased"))).toBe(true);
  expect(pathFact(path(PathFact_Source.MEASURED), "latency")?.value).toBe(1n);
  expect(pathFact(path(PathFact_Source.MEASURED), "fee")).toBeUndefined();
});

test("places", () => {
  expect(millionths(104.0668)).toBe(104_066_800n);
  expect(degrees(-30_500_000n)).toBe(-30.5);
});
