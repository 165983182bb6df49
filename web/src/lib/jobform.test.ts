import { toJson } from "@bufbuild/protobuf";
import dayjs from "dayjs";
import { describe, expect, test } from "vitest";
import { Dependency_Condition, JobSpecSchema, PlacementRule_Kind } from "../gen/yunhe/jobs/v1/jobs_pb";
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
      volumes: [{ volume: "vol_1", path: "/data", readOnly: true }],
      after: [{ task: "u", condition: Dependency_Condition.STARTED }],
      rules: [
        { kind: PlacementRule_Kind.SPREAD, over: "region", ofJob: "", ofGroup: "web", maxSkew: 2, preferred: true },
      ],
      minReplicas: 2,
      maxReplicas: 9,
      inputs: [
        { name: "s3://a/b", sizeMib: 1.5, centers: ["c1"], volume: undefined, stays: true },
        { name: "weights", sizeMib: undefined, centers: [], volume: "vol_1", stays: false },
      ],
      qos: {
        latencyMs: 12.345,
        jitterMs: 0.1,
        lossPercent: 0.07,
        bandwidthMbps: 1000,
        finishSeconds: 600,
        availabilityPercent: 99.95,
        required: true,
      },
      precision: "FP16",
      pool: {
        groupId: "g",
        specId: undefined,
        api: "cuda",
        model: "sky",
        computePercent: 37,
        memoryMib: 1234,
        cards: 2,
        priority: 3,
        weighted: true,
        acrossNodes: true,
        physical: false,
        local: true,
        nodeId: "n1",
        affinity: "near",
        antiAffinity: "far",
      },
    },
  ],
  originId: "campus",
  notBefore: dayjs(1_700_000_000_000),
  deadline: dayjs(1_700_000_600_000),
  nearJob: "job_1",
  groups: ["web"],
  noPreemption: true,
  distributed: true,
  restartWhole: true,
  elastic: true,
  retryRules: [{ reasons: ["exit"], exitCodes: ["75"], maxRetries: 3, backoffSeconds: 30 }],
};

/** Without what is kept beside. */
function shown({ rest: _, ...form }: JobForm): JobForm {
  return { ...form, tasks: form.tasks.map(({ rest: __, ...task }) => task) };
}

describe("form and specification", () => {
  test("a form survives the way to a specification and back", () => {
    expect(shown(fromSpec(toSpec(full)))).toEqual(full);
  });

  test("what the form does not show is kept, and what it shows is changed", () => {
    const spec =
      specFromJson(`{"name":"n","allocationId":"al_1","lostGraceSeconds":"60","tasks":[{"name":"t","precision":"FP16",
      "constraints":{"expression":"true","rules":[{"kind":"KIND_APART","over":"region"}]}}]}`);
    const form = fromSpec(spec);
    const changed = toSpec({
      ...form,
      name: "m",
      tasks: form.tasks.map((x) => ({ ...x, rules: [], command: "true" })),
    });
    expect(toJson(JobSpecSchema, changed)).toEqual({
      ...(toJson(JobSpecSchema, spec) as object),
      name: "m",
      successPolicy: "SUCCESS_POLICY_ALL",
      failurePolicy: "FAILURE_POLICY_ANY",
      tasks: [{ name: "t", precision: "FP16", command: "true", replicaNumber: 1, constraints: { expression: "true" } }],
    });
    expect(toJson(JobSpecSchema, spec)).toMatchObject({ name: "n" });
  });

  test("and the way through JSON", () => {
    expect(shown(fromSpec(specFromJson(specToJson(toSpec(full)))))).toEqual(full);
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
