import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ServiceSchema } from "../gen/yunhe/routing/v1/routing_pb";
import { fromService, serviceField, toService } from "./services";

describe("service form", () => {
  test("what is edited comes back as it was", () => {
    const service = create(ServiceSchema, {
      serviceId: "svc_1",
      name: "shop",
      jobIds: ["job_1", "job_2"],
      origins: [
        { originId: "gd", name: "Guangdong", longitude: 113_264_400n, latitude: 23_129_100n },
        { originId: "bj" },
      ],
      replicaRate: 12.5,
      maxLatencyMicroseconds: 20_500n,
      maxUsePercent: 80,
      movePercent: 10,
      endpoints: { c2: "b.example:443", c1: "a.example:80" },
    });
    expect(toService(fromService(service), "svc_1")).toEqual(service);
  });

  test("an emptied number is the platform's default", () => {
    const made = toService({ ...fromService(undefined), maxUsePercent: null, maxLatencyMs: null }, "");
    expect([made.maxUsePercent, made.maxLatencyMicroseconds]).toEqual([0, 0n]);
  });

  test("violations are shown where they belong", () => {
    expect(serviceField(["maxLatencyMicroseconds"])).toEqual(["maxLatencyMs"]);
    expect(serviceField(["jobIds", 1])).toEqual(["jobIds"]);
    expect(serviceField(["origins", 0, "originId"])).toEqual(["origins", 0, "originId"]);
  });
});
