import { toJson } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { JobSpecSchema } from "../gen/yunhe/jobs/v1/jobs_pb";
import {
  digitsExample,
  emptyJob,
  emptyTask,
  fromSpec,
  type JobForm,
  specFromJson,
  specToJson,
  toSpec,
} from "./jobform";

const full: JobForm = {
  ...emptyJob(),
  name: "all",
  desc: "every field",
  priority: -3,
  maxRetries: 2,
  gang: true,
  ownWeights: true,
  policyWeights: { "lowest-price": 8 },
  labels: [{ name: "team", value: "a" }],
  tasks: [
    {
      ...emptyTask("t"),
      command: "echo $A",
      imageId: "host",
      resourceSpecId: "small",
      replicaNumber: 3,
      env: [{ name: "A", value: "1" }],
      files: [{ path: "run.sh", content: new Uint8Array([35, 33]), executable: true }],
      network: true,
      timeoutSeconds: 60,
      expectedSeconds: 30,
      stopGraceSeconds: 5,
      scratchMib: 128,
      centers: ["c1"],
      regions: ["north"],
      minSecurityGrade: 2,
      maxPrice: "0.50",
    },
  ],
};

describe("form and specification", () => {
  test("a form survives the way to a specification and back", () => {
    expect(fromSpec(toSpec(full))).toEqual(full);
  });

  test("and the way through JSON", () => {
    expect(fromSpec(specFromJson(specToJson(toSpec(full))))).toEqual(full);
  });

  test("a task without constraints sends none", () => {
    expect(toSpec(digitsExample()).tasks[0]?.constraints).toBeUndefined();
  });

  test("weights are sent only if they are the job's own", () => {
    expect(toSpec({ ...full, ownWeights: false }).policyWeights).toEqual({});
  });

  test("prices are fen", () => {
    expect(toSpec(full).tasks[0]?.constraints?.maxPrice).toBe(50n);
  });
});

test("the example is the digits job", () => {
  expect(toJson(JobSpecSchema, toSpec(digitsExample()))).toMatchObject({
    name: "digits",
    tasks: [
      { command: "/examples/digits/train --model mlp", replicaNumber: 2, imageId: "host", resourceSpecId: "small" },
      { command: "/examples/digits/train --model linear", replicaNumber: 1, imageId: "host", resourceSpecId: "small" },
    ],
  });
});

describe("import", () => {
  test("takes snake case, and the job of a submit request", () => {
    const spec = specFromJson(
      '{"request_id":"x","job":{"name":"n","tasks":[{"resource_spec_id":"s"}],"max_retries":1}}',
    );
    expect(spec.tasks[0]?.resourceSpecId).toBe("s");
    expect(spec.maxRetries).toBe(1);
  });
  test.each(["nonsense", "[]", '{"nmae":"typo"}', '{"tasks":{}}'])("refuses %j", (text) =>
    expect(() => specFromJson(text)).toThrow(),
  );
});
