import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  AvailabilityMethod,
  AvailabilityPlanSchema,
  MeasuredRoleSchema,
} from "../gen/yunhe/availability/v1/availability_pb";
import {
  exampleSystem,
  fromSystem,
  fromYaml,
  percentText,
  planToCsv,
  planToJson,
  platformSystem,
  splitOf,
  toShare,
  toSplit,
  toSystem,
  toYaml,
} from "./availability";

const plan = create(AvailabilityPlanSchema, {
  method: AvailabilityMethod.AWARE,
  microservices: 2,
  availability: 0.99,
  unavailability: 0.01,
  modules: [
    {
      name: "a,b",
      availability: 0.99,
      instances: 3,
      microservices: [{ submodules: ["x", "=y"] }, { submodules: ["z"] }],
    },
  ],
});

describe("availability", () => {
  test("a system is the same after the contract, and after a file", () => {
    const system = {
      ...exampleSystem(),
      commonCause: 5,
      sites: [{ name: "north", percent: 99.95 }],
      dependencies: [{ from: "trading/market", to: "decision/business", strength: 2 }],
    };
    expect(fromSystem(toSystem(system))).toEqual(system);
    expect(fromYaml(toYaml(system))).toEqual(system);
    expect(toSystem(system).target).toBe(0.9999);
  });

  test("a file that is none is refused by the place of the mistake", () => {
    expect(() => fromYaml("- 1")).toThrow("the file");
    expect(() => fromYaml("modules: 7")).toThrow("modules: a list");
    expect(() => fromYaml("modules: [{name: a, submodules: [7]}]")).toThrow("modules[0].submodules[0]");
  });

  test("plans are written for the command line and for spreadsheets", () => {
    expect(JSON.parse(planToJson(plan))).toMatchObject({
      method: "aware",
      availability: 99,
      modules: [{ name: "a,b", instances: 3, microservices: [["x", "=y"], ["z"]] }],
    });
    expect(planToCsv(plan).split("\r\n").slice(1, 3)).toEqual(['"a,b",1,3,x =y,99', '"a,b",2,3,z,99']);
  });

  test("a split by hand starts from a plan", () => {
    const own = splitOf(plan);
    expect(own).toEqual({ "a,b": { x: 0, "=y": 0, z: 1 } });
    const system = {
      ...exampleSystem(),
      modules: [{ name: "m", submodules: ["a", "b", "c"].map((name) => ({ name, percent: 99 })) }],
    };
    expect(toSplit(system, { m: { a: 4, b: 1, c: 4 } })).toEqual([
      { name: "m", microservices: [{ submodules: ["b"] }, { submodules: ["a", "c"] }] },
    ]);
    expect(toSplit(system, {})).toEqual([{ name: "m", microservices: [{ submodules: ["a", "b", "c"] }] }]);
  });

  test("what never failed is not taken as what cannot", () => {
    const roles = [create(MeasuredRoleSchema, { role: "api", availability: 1 })];
    expect(platformSystem(roles).modules[0]?.submodules).toEqual([{ name: "api", percent: 99.99 }]);
  });

  test("shares near 1 keep the digits that matter", () => {
    expect(percentText(0.9)).toBe("90.00 %");
    expect(percentText(0.9999917, 0.0000083)).toBe("99.9991700 %");
    expect(percentText(1, 0)).toBe("100.00 %");
    expect(toShare(99.9)).toBe(0.999);
  });
});
