import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { GatewaySchema, InstanceSchema, PluginSource } from "../gen/yunhe/adapters/v1/adapters_pb";
import { JobSchema, State } from "../gen/yunhe/jobs/v1/jobs_pb";
import { CenterSchema, CenterStatus, NodeState } from "../gen/yunhe/registry/v1/registry_pb";
import { fieldHelp, fieldTitle } from "../i18n/schemadocs";
import { isGone, lostRuns } from "./lost";
import { acceleratorName, countOf, nodeStateName, nodeStateOf, resourceNames, totalsOf } from "./nodes";
import { connectStages, isAddress, isConnectable, joinedKey, joinedWith, pluginTone, servingOf } from "./plugins";

const NOW = 1_800_000_000_000;
const seen = (msAgo: number) => timestampFromMs(NOW - msAgo);

describe("instances", () => {
  const instance = (aiCenterId: string, state: string, version = "") =>
    create(InstanceSchema, { aiCenterId, state, version });

  test("the one that serves is not the one that stands by", () => {
    const list = [instance("a", "standby"), instance("b", "up"), instance("a", "up"), instance("a", "standby")];
    const serving = servingOf(list, "a");
    expect(serving?.instance).toBe(list[2]);
    expect(serving?.standby).toBe(2);
    expect(servingOf(list, "c")).toBeUndefined();
  });

  test.each([
    ["starting", "", ["going", "pending", "pending"]],
    ["starting", "2", ["done", "going", "pending"]],
    ["trouble", "2", ["done", "failed", "pending"]],
    ["down", "", ["failed", "pending", "pending"]],
    ["up", "2", ["done", "done", "done"]],
    ["standby", "2", ["done", "done", "pending"]],
    ["disabled", "2", ["pending", "pending", "pending"]],
  ])("%s with version %j has come to %j", (state, version, want) => {
    expect(connectStages(instance("a", state, version))).toEqual(want);
  });

  test("a state unknown here is drawn without a color", () => {
    expect(pluginTone("down")).toBe("bad");
    expect(pluginTone("hibernating")).toBe("neutral");
    expect(pluginTone("toString")).toBe("neutral");
  });

  test("gateways join and registered plug-ins bring their centers along", () => {
    expect(isConnectable({ name: "kubernetes", source: PluginSource.BUILT_IN })).toBe(true);
    expect(isConnectable({ name: "gateway", source: PluginSource.BUILT_IN })).toBe(false);
    expect(isConnectable({ name: "x", source: PluginSource.REGISTERED })).toBe(false);
  });
});

describe("addresses", () => {
  test.each(["http://10.0.0.7:7070", "https://driver.example/", "http://[::1]:80"])("%s is one", (a) =>
    expect(isAddress(a)).toBe(true),
  );
  test.each(["10.0.0.7:7070", "ftp://h", "http://u:p@h", "http://h/path", "http://h h", `http://${"h".repeat(260)}`])(
    "%s is none",
    (a) => expect(isAddress(a)).toBe(false),
  );
});

describe("nodes", () => {
  const center = (aiCenterId: string, ready: bigint, notReady: bigint, ...models: [string, string, bigint][]) =>
    create(CenterSchema, {
      aiCenterId,
      nodes: {
        ready,
        notReady,
        total: ready + notReady,
        accelerators: models.map(([vendor, model, count]) => ({ vendor, model, count, resource: "gpu" })),
      },
    });
  const centers = [
    center("a", 10n, 2n, ["NVIDIA", "H800", 80n]),
    center("b", 5n, 0n, ["NVIDIA", "H800", 8n], ["Huawei", "Ascend910B", 200n]),
    create(CenterSchema, { aiCenterId: "without" }),
  ];

  test("accelerators of one kind are added over centers, most first", () => {
    const totals = totalsOf(centers);
    expect(totals).toMatchObject({ ready: 15n, notReady: 2n, drained: 0n, total: 17n, centers: 2 });
    expect(totals.models.map((m) => [m.model, m.count, m.centers])).toEqual([
      ["Ascend910B", 200n, ["b"]],
      ["H800", 88n, ["a", "b"]],
    ]);
  });

  test("their number is known unless models or labels filter", () => {
    const filter = { centerId: "", state: NodeState.UNSPECIFIED, model: "", labels: [] };
    expect(countOf(centers, filter)).toBe(17n);
    expect(countOf(centers, { ...filter, centerId: "a" })).toBe(12n);
    expect(countOf(centers, { ...filter, state: NodeState.NOT_READY })).toBe(2n);
    expect(countOf(centers, { ...filter, model: "H800" })).toBeUndefined();
    expect(countOf(centers, { ...filter, labels: ["zone"] })).toBeUndefined();
  });

  test("names of states go both ways", () => {
    for (const state of [NodeState.READY, NodeState.NOT_READY, NodeState.DRAINED]) {
      expect(nodeStateOf(nodeStateName(state))).toBe(state);
    }
    expect(nodeStateOf("nonsense")).toBe(NodeState.UNSPECIFIED);
  });

  test("accelerators are named once", () => {
    expect(acceleratorName({ vendor: "NVIDIA", model: "H800", resource: "gpu" })).toBe("NVIDIA H800");
    expect(acceleratorName({ vendor: "Ascend", model: "Ascend910B", resource: "npu" })).toBe("Ascend910B");
    expect(acceleratorName({ vendor: "", model: "", resource: "npu" })).toBe("NPU");
  });

  test("common resources come first", () => {
    expect(resourceNames({ "nvidia.com/gpumem": "1", memory: "1Gi", cpu: "1" }, { pods: "9", cpu: "1" })).toEqual([
      "cpu",
      "memory",
      "nvidia.com/gpumem",
      "pods",
    ]);
  });
});

describe("runs to write off", () => {
  const center = (status: CenterStatus, more: { drained?: boolean; adapter?: string; seen?: number } = {}) =>
    create(CenterSchema, {
      aiCenterId: "c",
      status,
      drained: more.drained ?? false,
      adapter: more.adapter ?? "slurm",
      lastSeenAt: seen(more.seen ?? 1000),
    });
  const gateways = [create(GatewaySchema, { aiCenterId: "c" })];

  test.each([
    ["available", center(CenterStatus.AVAILABLE), false],
    ["available, heard of long ago", center(CenterStatus.AVAILABLE, { seen: 60_000 }), false],
    ["unknown", center(CenterStatus.UNKNOWN), true],
    ["unavailable", center(CenterStatus.UNAVAILABLE), true],
    ["drained and working", center(CenterStatus.UNAVAILABLE, { drained: true }), false],
    ["drained and silent", center(CenterStatus.UNAVAILABLE, { drained: true, seen: 10_001 }), true],
    ["drained, its gateway there", center(CenterStatus.UNAVAILABLE, { drained: true, adapter: "gateway" }), false],
  ])("a center that is %s", (_, c, gone) => expect(isGone(c, gateways, NOW)).toBe(gone));

  test("a drained center whose gateway was removed is gone", () => {
    const c = center(CenterStatus.UNAVAILABLE, { drained: true, adapter: "gateway" });
    expect(isGone(c, [], NOW)).toBe(true);
    expect(isGone(c, undefined, NOW)).toBe(false);
  });

  test("only open runs at centers that are gone count", () => {
    const run = (aiCenterId: string, state: State, attempt = 1) => ({ aiCenterId, state, attempt });
    const job = create(JobSchema, {
      replicas: [
        run("c", State.RUNNING),
        run("c", State.DISPATCHING),
        run("c", State.SUCCEEDED),
        run("c", State.QUEUED),
        run("", State.SCHEDULING, 0),
        run("here", State.RUNNING),
      ],
    });
    const here = create(CenterSchema, { aiCenterId: "here", status: CenterStatus.AVAILABLE });
    const lost = lostRuns(job, [here, center(CenterStatus.UNKNOWN)], gateways, NOW);
    expect(lost.map((l) => [l.center.aiCenterId, l.runs])).toEqual([["c", 2]]);
    expect(lostRuns(job, [here], gateways, NOW)).toEqual([]);
  });
});

test("fields have words in Chinese where there are some, and the plug-in's own otherwise", () => {
  expect(fieldTitle({ key: "region", title: "Region" }, "zh")).toBe("区域");
  expect(fieldTitle({ key: "region", title: "Region" }, "en")).toBe("Region");
  expect(fieldTitle({ key: "frobnicate", title: "Frobnicate" }, "zh")).toBe("Frobnicate");
  expect(fieldTitle({ key: "constructor", title: "Constructor" }, "zh")).toBe("Constructor");
  expect(fieldHelp({ help: "degrees" }, "zh")).toBe("度");
  expect(fieldHelp({ help: "degrees, changed" }, "zh")).toBe("Degrees, changed");
  expect(fieldHelp({ help: "slurmrestd: http://h" }, "en")).toBe("slurmrestd: http://h");
});

test("the gateway that joined with a token is found among those there were", () => {
  const gateway = (aiCenterId: string, publicKey: string, connected: boolean) =>
    create(GatewaySchema, { aiCenterId, publicKey, connected });
  const old = gateway("a", "UA", true);
  const before = new Map([["a", joinedKey(old)]]);
  expect(joinedWith([old], before, "")).toBeUndefined();
  expect(joinedWith([old, gateway("b", "UB", false)], before, "")?.aiCenterId).toBe("b");
  expect(joinedWith([old, gateway("b", "UB", false), gateway("c", "UC", true)], before, "")?.aiCenterId).toBe("c");
  expect(joinedWith([old, gateway("c", "UC", true)], before, "b")).toBeUndefined();
  // A new gateway took over the center.
  expect(joinedWith([gateway("a", "UZ", true)], before, "a")?.publicKey).toBe("UZ");
});
