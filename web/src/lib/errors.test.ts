import { Code, ConnectError, createClient, createRouterTransport } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { badRequest } from "../dev/fixture";
import { JobService } from "../gen/yunhe/jobs/v1/jobs_pb";
import { PoolService } from "../gen/yunhe/pool/v1/pool_pb";
import { fieldPath, isUnauthenticated, isUnreachable, messageOf, violationsOf } from "./errors";
import { formField } from "./jobform";

describe("field violations", () => {
  test("are read from a BadRequest detail", async () => {
    const transport = createRouterTransport(({ service }) =>
      service(JobService, {
        submitJob: () => {
          throw badRequest("two problems", [
            { field: "job.tasks[1].name", description: "is empty" },
            { field: "job.max_retries", description: "101 is more than 100" },
          ]);
        },
      }),
    );
    const error = await createClient(JobService, transport)
      .submitJob({})
      .catch((e: unknown) => e);
    expect(messageOf(error)).toBe("two problems");
    expect(violationsOf(error)).toEqual([
      { field: "job.tasks[1].name", description: "is empty" },
      { field: "job.max_retries", description: "101 is more than 100" },
    ]);
  });

  test("are of a number that is too large to be sent", async () => {
    const transport = createRouterTransport(({ service }) => service(PoolService, { setSliceSpec: () => ({}) }));
    const error = await createClient(PoolService, transport)
      .setSliceSpec({ specId: "a", spec: { memoryMib: 10n ** 20n } })
      .catch((e: unknown) => e);
    const description = "must be at most 9223372036854775807, got 100000000000000000000";
    expect(violationsOf(error)).toEqual([{ field: "memory_mib", description }]);
    expect(messageOf(error)).toBe(`memory_mib: ${description}`);
  });

  test("are none in other errors", () => {
    expect(violationsOf(new Error("x"))).toEqual([]);
    expect(violationsOf(new ConnectError("x", Code.InvalidArgument))).toEqual([]);
  });
});

describe("paths", () => {
  test.each([
    ["job.tasks[1].resource_spec_id", ["tasks", 1, "resourceSpecId"]],
    ["tasks[0].name", ["tasks", 0, "name"]],
    ['job.tasks[2].env["A B"]', ["tasks", 2, "env", "A B"]],
    ["job.tasks[2].env[FOO]", ["tasks", 2, "env", "FOO"]],
    ["job.tasks[0].constraints.max_price", ["tasks", 0, "constraints", "maxPrice"]],
    ["job.policyWeights", ["policyWeights"]],
  ])("%s", (field, path) => expect(fieldPath(field, "job")).toEqual(path));

  test.each([
    ["job.tasks[0].constraints.max_price", ["tasks", 0, "maxPrice"]],
    ["job.tasks[0].env.FOO", ["tasks", 0, "env"]],
    ["job.tasks[3].replica_number", ["tasks", 3, "replicaNumber"]],
    ['job.policy_weights["lowest-price"]', ["policyWeights"]],
    ["job.name", ["name"]],
  ])("%s is shown at its field", (field, name) => expect(formField(fieldPath(field, "job"))).toEqual(name));

  test.each(["job.tasks", "request_id", "job.tasks[0].unheard_of"])("%s has no field", (field) =>
    expect(formField(fieldPath(field, "job"))).toBeUndefined(),
  );
});

test("kinds of errors are told apart", () => {
  expect(isUnauthenticated(new ConnectError("no", Code.Unauthenticated))).toBe(true);
  expect(isUnauthenticated(new Error("no"))).toBe(false);
  expect(isUnreachable(new ConnectError("down", Code.Unavailable))).toBe(true);
  expect(isUnreachable(new ConnectError("no", Code.PermissionDenied))).toBe(false);
  expect(messageOf(new ConnectError("job x does not exist", Code.NotFound))).toBe("job x does not exist");
});
