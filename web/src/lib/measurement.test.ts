import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import {
  Decision,
  IndicatorKind,
  IndicatorSchema,
  MeasuredNodeSchema,
  MeasurementRunSchema,
  MeasurementSchema,
  RunState,
  ValueSchema,
} from "../gen/yunhe/measurement/v1/measurement_pb";
import { NONE } from "./format";
import {
  amount,
  awaitsDecision,
  dueWord,
  figure,
  isOpen,
  peaksOf,
  ratioText,
  titleOf,
  valuesOf,
  valueText,
} from "./measurement";

const fp16 = create(IndicatorSchema, {
  indicatorId: "accelerator.peak.fp16",
  title: "Peak FP16",
  titleZh: "FP16 峰值",
  kind: IndicatorKind.STATIC,
  unit: "TFLOPS",
  precision: "FP16",
});
const busy = create(IndicatorSchema, { indicatorId: "compute.busy", kind: IndicatorKind.DYNAMIC, unit: "ratio" });

describe("numbers", () => {
  it("have about four digits and their unit", () => {
    expect([0, 0.0123456, 3.1516, 99.96, 512.04, 16954.4].map(figure)).toEqual([
      "0",
      "0.0123",
      "3.15",
      "100",
      "512",
      "16,954",
    ]);
    expect(amount("ratio", 0.256)).toBe("25.6%");
    expect(amount("MB/s", 8468)).toBe("8,468 MB/s");
    expect(amount("bytes", 1 << 30)).toBe("1 GiB");
    expect(ratioText(1570n)).toBe("1.57×");
    expect(ratioText(0n)).toBe(NONE);
  });
});

describe("values", () => {
  const m = create(MeasurementSchema, {
    values: [
      create(ValueSchema, { indicatorId: "compute.busy", number: 0.5 }),
      create(ValueSchema, { indicatorId: "accelerator.peak.fp16", node: "n1", number: 989.5 }),
      create(ValueSchema, { indicatorId: "accelerator.peak.fp16", number: 7916 }),
    ],
  });
  it("are found by kind, and peaks of the whole center by precision", () => {
    expect(valuesOf(m, [fp16, busy], IndicatorKind.DYNAMIC).map((v) => valueText(busy, v))).toEqual(["50.0%"]);
    expect(peaksOf(m, [fp16, busy])).toEqual([{ precision: "FP16", value: 7916, unit: "TFLOPS" }]);
  });
  it("have titles in both languages", () => {
    expect(titleOf(fp16, "x", "zh-CN")).toBe("FP16 峰值");
    expect(titleOf(fp16, "x", "en")).toBe("Peak FP16");
    expect(titleOf(undefined, "x", "en")).toBe("x");
  });
});

describe("runs", () => {
  it("are open until they ended, and some wait for a decision", () => {
    expect(isOpen(create(MeasurementRunSchema, { state: RunState.RUNNING }))).toBe(true);
    expect(isOpen(create(MeasurementRunSchema, { state: RunState.REFUSED }))).toBe(false);
    expect(awaitsDecision(create(MeasurementRunSchema, { decision: Decision.AWAITED }))).toBe(true);
  });
});

describe("dueWord", () => {
  it("says when a node is measured next", () => {
    const at = (seconds: number) => create(MeasuredNodeSchema, { node: "n1", dueAt: { seconds: BigInt(seconds) } });
    expect(dueWord(at(61), 60_000)).toBe("later");
    expect(dueWord(at(60), 60_000)).toBe("now");
    expect(dueWord(create(MeasuredNodeSchema, { node: "n1" }), 60_000)).toBe("none");
    expect(dueWord(create(MeasuredNodeSchema, { node: "n1", open: true }), 60_000)).toBe("open");
  });
});
