import { expect, test } from "vitest";
import { SimulationState } from "../gen/yunhe/simulations/v1/simulations_pb";
import { formatMeasure, policyOf, simulationEnded } from "./simulations";

test("figures are written with the digits that matter", () => {
  expect(formatMeasure("s", 90)).toBe("1 m 30 s");
  expect(formatMeasure("%", 12.345)).toBe("12.3 %");
  expect(formatMeasure("", 0.98765)).toBe("0.988");
  expect(formatMeasure("", 10)).toBe("10");
  expect(formatMeasure("yuan", 123456.7)).toMatch(/^123.?457 yuan$/);
});

test("a kept policy is known by its name", () => {
  expect(policyOf("gold@3")).toBe("gold");
  expect(policyOf("gold@3 / fair")).toBe("gold");
  expect(policyOf("in force")).toBeUndefined();
  expect(policyOf("price=3,energy=1")).toBeUndefined();
});

test("waiting and running go on", () => {
  expect(simulationEnded(SimulationState.WAITING)).toBe(false);
  expect(simulationEnded(SimulationState.RUNNING)).toBe(false);
  expect(simulationEnded(SimulationState.DONE)).toBe(true);
  expect(simulationEnded(SimulationState.INTERRUPTED)).toBe(true);
});
