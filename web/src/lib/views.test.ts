import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { ReplicaSchema, State } from "../gen/yunhe/jobs/v1/jobs_pb";
import { UsageSchema } from "../gen/yunhe/metering/v1/metering_pb";
import { SpecSchema } from "../gen/yunhe/registry/v1/registry_pb";
import { labelSides, plot } from "./geo";
import { byteScale } from "./scale";
import { priceRange, quantityText } from "./specs";
import { stretches, ticks } from "./timeline";
import { csvPath, totalOf } from "./usage";
import { sameWeights, withoutZeros } from "./weights";

const at = timestampFromMs;

describe("timeline", () => {
  test("a finished replica queued, was placed, ran", () => {
    const r = create(ReplicaSchema, {
      state: State.SUCCEEDED,
      placedAt: at(1010),
      startedAt: at(1100),
      endedAt: at(2000),
    });
    expect(stretches(at(1000), r, 9999)).toEqual([
      { phase: "queued", from: 1000, to: 1010, open: false },
      { phase: "placed", from: 1010, to: 1100, open: false },
      { phase: "running", from: 1100, to: 2000, open: false },
    ]);
  });
  test("a running replica goes on until now", () => {
    const r = create(ReplicaSchema, { state: State.RUNNING, placedAt: at(1010), startedAt: at(1100) });
    expect(stretches(at(1000), r, 5000).at(-1)).toEqual({ phase: "running", from: 1100, to: 5000, open: true });
  });
  test("a waiting replica only waits", () => {
    expect(stretches(at(1000), create(ReplicaSchema, { state: State.QUEUED }), 3000)).toEqual([
      { phase: "queued", from: 1000, to: 3000, open: true },
    ]);
  });
  test("one that was stopped before it started does not go on", () => {
    const r = create(ReplicaSchema, { state: State.STOPPED, placedAt: at(1500) });
    expect(stretches(at(1000), r, 9000)).toEqual([{ phase: "queued", from: 1000, to: 1500, open: false }]);
  });
  test("a run of no length is still a run", () => {
    const r = create(ReplicaSchema, {
      state: State.FAILED,
      placedAt: at(1000),
      startedAt: at(1000),
      endedAt: at(1000),
    });
    expect(stretches(at(1000), r, 9000)).toEqual([{ phase: "running", from: 1000, to: 1000, open: false }]);
  });
  test("marks are round and few", () => {
    expect(ticks(95_000, 4)).toEqual([0, 30_000, 60_000, 90_000]);
    expect(ticks(1, 4)).toEqual([0, 1]);
    expect(ticks(10 * 86_400_000, 5)).toHaveLength(6);
  });
});

describe("map", () => {
  const places = [
    { id: "west", longitude: 100, latitude: 30 },
    { id: "east", longitude: 120, latitude: 30 },
    { id: "north", longitude: 110, latitude: 45 },
  ];
  test("keeps directions and stays inside", () => {
    const { points } = plot(places, 600, 400, 50);
    const [west, east, north] = points;
    expect(west && east && north && west.x < north.x && north.x < east.x && north.y < west.y).toBe(true);
    for (const p of points) {
      expect(p.x).toBeGreaterThanOrEqual(50);
      expect(p.x).toBeLessThanOrEqual(550);
      expect(p.y).toBeGreaterThanOrEqual(50);
      expect(p.y).toBeLessThanOrEqual(350);
    }
  });
  test("puts a single place in the middle", () => {
    expect(plot(places.slice(0, 1), 600, 400, 50).points).toEqual([{ id: "west", x: 300, y: 200 }]);
  });
  test("has nothing to draw without places", () => expect(plot([], 600, 400, 50).points).toEqual([]));
  test("labels of neighbors go to different sides, none leaves the plot", () => {
    const points = [
      { id: "a", x: 300, y: 100 },
      { id: "b", x: 330, y: 100 },
      { id: "c", x: 590, y: 300 },
    ];
    const sides = labelSides(
      points,
      points.map(() => ({ width: 90, height: 28 })),
      16,
      600,
    );
    expect(sides).toEqual(["left", "right", "left"]);
  });
});

test("axes of bytes have round binary marks", () => {
  expect(byteScale(30e9)).toEqual({ max: 32 * 1024 ** 3, step: 8 * 1024 ** 3 });
  expect(byteScale(1)).toEqual({ max: 1, step: 1 });
});

describe("specifications", () => {
  test("quantities in a fixed order with units", () => {
    expect(quantityText({ gpu: "1", memory: "4Gi", cpu: "500m" })).toBe("0.5 CPU · 4 GiB · 1 GPU");
    expect(quantityText({ cpu: "odd" })).toBe("odd cpu");
  });
  test("prices from lowest to highest", () => {
    const spec = create(SpecSchema, { price: 30n, offers: [{ price: 50n }, { price: 20n }, { price: 100n }] });
    expect(priceRange(spec)).toBe("¥0.20–¥1.00");
    expect(priceRange(create(SpecSchema, { price: 30n, offers: [{ price: 50n }] }))).toBe("¥0.50");
    expect(priceRange(create(SpecSchema, { price: 30n }))).toBe("¥0.30");
  });
});

describe("usage", () => {
  test("sums stay exact", () => {
    const big = 9_007_199_254_740_993n;
    const list = [
      create(UsageSchema, { costMicros: big, durationMicroseconds: 1n }),
      create(UsageSchema, { costMicros: 1n, cpuMicroseconds: 5n }),
    ];
    expect(totalOf(list)).toEqual({ records: 2, costMicros: big + 1n, durationMicroseconds: 1n, cpuMicroseconds: 5n });
  });
  test("the CSV has the same filters", () => {
    expect(csvPath({ jobId: "", centerId: "", userName: "" })).toBe("/v1/usage.csv");
    expect(csvPath({ jobId: "job_1", centerId: "c 1", userName: "", after: 0 })).toBe(
      "/v1/usage.csv?job_id=job_1&ai_center_id=c+1&ended_after=1970-01-01T00%3A00%3A00.000Z",
    );
  });
});

test("weights compare by what they weigh", () => {
  expect(sameWeights({ a: 1, b: 0 }, { a: 1 })).toBe(true);
  expect(sameWeights({ a: 1 }, { a: 2 })).toBe(false);
  expect(sameWeights({ a: 1 }, { b: 1 })).toBe(false);
  expect(withoutZeros({ a: 1, b: 0 })).toEqual({ a: 1 });
});
