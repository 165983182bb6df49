// Plug-ins and nodes of the platform in memory.
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import {
  type AdapterService,
  type Instance,
  InstanceSchema,
  type Plugin,
  PluginSchema,
  PluginSource,
} from "../gen/yunhe/adapters/v1/adapters_pb";
import { type Node, NodeSchema, NodeState, NodeSummarySchema } from "../gen/yunhe/registry/v1/registry_pb";
import { INSTANCE_STATES } from "../lib/plugins";

const HOUR = 3_600_000;
const begin = Date.now();
const at = (msAgo: number) => timestampFromMs(begin - msAgo);

const about = {
  name: { type: "string", description: "name of the center, its ID if empty" },
  region: { type: "string", description: "where it is, for example guizhou" },
  longitude: { type: "number", description: "degrees" },
  latitude: { type: "number", description: "degrees" },
  security_grade: { type: "integer", description: "1 to 5", minimum: 1, maximum: 5 },
  prices: {
    type: "object",
    description: "fen per hour by specification; what is not named is not offered",
    additionalProperties: { type: "integer" },
  },
  labels: { type: "object", additionalProperties: { type: "string" } },
};
const text = (description: string) => ({ type: "string", description });
const SCHEMAS: Record<string, object> = {
  kubernetes: {
    type: "object",
    properties: {
      ...about,
      kubeconfig: text("text of a kubeconfig; what it refers to must be in it, not in files"),
      namespace: text("where jobs run, yunhe if empty; made if it is not there"),
      allow_exec: { type: "boolean", description: "lets a kubeconfig start the program it names to get credentials" },
      image_pull_policy: { enum: ["Always", "IfNotPresent", "Never"], description: "when images are loaded" },
      image_pull_secrets: {
        type: ["null", "array"],
        items: { type: "string" },
        description: "names of secrets in the namespace",
      },
      node_selector: {
        type: "object",
        description: "labels of the nodes that belong to this center",
        additionalProperties: { type: "string" },
      },
      resources: {
        type: ["null", "array"],
        description: "what extended resources count as; looked up before what is built in",
        items: {
          type: "object",
          properties: {
            resource: text("of the platform, for example gpu, npu, mlu or dcu"),
            extended: text("name at the nodes, for example nvidia.com/gpu"),
            vendor: text("for example NVIDIA"),
            with: { type: "object", additionalProperties: { type: "integer" } },
          },
          required: ["resource", "extended"],
          additionalProperties: false,
        },
      },
    },
    additionalProperties: false,
  },
  slurm: {
    type: "object",
    properties: {
      ...about,
      url: text("slurmrestd: http://host:6820, https://host, or unix:/path/of/socket"),
      user: text("whose jobs they are at the cluster; needed with a token"),
      token: text("JWT of the user (scontrol token); not together with token_file"),
      directory: text("folder at the cluster, on a file system all nodes share, where the user may write"),
      models: {
        type: "object",
        description: "accelerators by their type in Slurm",
        additionalProperties: {
          type: "object",
          properties: { vendor: { type: "string" }, model: { type: "string" }, memory_bytes: { type: "integer" } },
          required: ["model"],
        },
      },
      proxy: {
        type: "object",
        description: "a way to the cluster",
        properties: { host: { type: "string" }, port: { type: "integer" }, password: { type: "string" } },
        required: ["host"],
      },
      timeout_seconds: { type: "integer", minimum: 0, maximum: 120 },
    },
    required: ["url", "directory"],
    additionalProperties: false,
  },
  gateway: { type: "object", properties: about },
};

const MODELS: [vendor: string, model: string, resource: string, gib: number][] = [
  ["NVIDIA", "H800", "gpu", 80],
  ["Huawei", "Ascend910B", "npu", 64],
  ["Cambricon", "MLU370-X8", "mlu", 48],
  ["Hygon", "K100-AI", "dcu", 64],
];

/** The plug-ins, their instances and the nodes of a fixture. */
export class Plugins {
  list: Plugin[];
  nodes: Node[] = [];

  constructor(gateways: string[]) {
    const plugin = (name: string, version: string, source: PluginSource, parts: string[], list: Instance[]) =>
      create(PluginSchema, { name, version, source, parts, list, configSchema: JSON.stringify(SCHEMAS[name] ?? {}) });
    const instance = (plugin: string, aiCenterId: string, state: string, message = "", endpoint = "") =>
      create(InstanceSchema, {
        plugin,
        aiCenterId,
        endpoint,
        state,
        message,
        version: state === "starting" ? "" : "1.4.2",
        enabled: state !== "disabled",
        changedAt: at(HOUR * 3),
        createdAt: at(HOUR * 400),
      });
    this.list = [
      plugin(
        "gateway",
        "0.3.0",
        PluginSource.BUILT_IN,
        ["image", "job"],
        gateways.map((id, i) =>
          instance("gateway", id, i === 7 ? "down" : "up", i === 7 ? "it has not been heard of for 10s" : ""),
        ),
      ),
      plugin(
        "kubernetes",
        "1.4.2",
        PluginSource.BUILT_IN,
        ["data", "image", "job", "resource"],
        [
          instance("kubernetes", "beijing-1", "up"),
          instance(
            "kubernetes",
            "wuhan-k8s",
            "trouble",
            "the API server at https://10.3.0.2:6443 refuses the credentials: 401 Unauthorized; give a kubeconfig whose token has not expired",
          ),
          instance("kubernetes", "lab-k8s", "disabled"),
          instance("kubernetes", "new-k8s", "starting"),
        ],
      ),
      plugin("slurm", "0.9.1", PluginSource.BUILT_IN, ["job", "resource"], []),
      plugin(
        "partner-cloud",
        "2026.11",
        PluginSource.REGISTERED,
        ["account", "image", "job", "resource", "storage"],
        [
          instance("partner-cloud", "partner-east", "up", "", "https://10.9.0.4:7070"),
          instance("partner-cloud", "partner-east", "standby", "", "https://10.9.0.5:7070"),
          instance(
            "partner-cloud",
            "",
            "down",
            "plug-in partner-cloud does not say what it is: connection refused",
            "https://10.9.0.6:7070",
          ),
        ],
      ),
    ];
    const sizes: [center: string, nodes: number][] = [
      ["beijing-1", 400],
      ["shanghai-1", 180],
      ["shaoguan-1", 40],
    ];
    for (const [k, [center, size]] of sizes.entries()) {
      for (let i = 0; i < size; i++) {
        const [vendor, model, resource, gib] = MODELS[
          (k + Math.floor(i / 60)) % MODELS.length
        ] as (typeof MODELS)[number];
        const state = i % 37 === 11 ? NodeState.NOT_READY : i % 53 === 7 ? NodeState.DRAINED : NodeState.READY;
        const capacity: Record<string, string> = { cpu: "128", memory: "1024Gi", [resource]: "8", pods: "110" };
        this.nodes.push(
          create(NodeSchema, {
            aiCenterId: center,
            name: `node-${(i + 1).toString().padStart(4, "0")}.${center}.example`,
            state,
            reason: state === NodeState.NOT_READY ? "kubelet stopped posting node status" : "",
            capacity,
            allocatable: { ...capacity, cpu: "126500m", memory: "1008Gi" },
            architecture: model.startsWith("Ascend") ? "arm64" : "amd64",
            operatingSystem: "linux",
            accelerators: [{ vendor, model, resource, count: 8n, memoryBytes: BigInt(gib) << 30n }],
            labels: { zone: `r${i % 6}`, "kubernetes.io/arch": "amd64", tier: i % 2 ? "train" : "infer" },
            createdAt: at(HOUR * 900),
            updatedAt: at(HOUR * (i % 200)),
          }),
        );
      }
    }
  }

  summary(center: string) {
    const here = this.nodes.filter((n) => n.aiCenterId === center);
    if (here.length === 0) return undefined;
    const count = (state: NodeState) => BigInt(here.filter((n) => n.state === state).length);
    return create(NodeSummarySchema, {
      ready: count(NodeState.READY),
      notReady: count(NodeState.NOT_READY),
      drained: count(NodeState.DRAINED),
      total: BigInt(here.length),
      accelerators: MODELS.map(([vendor, model, resource]) => ({
        vendor,
        model,
        resource,
        count: BigInt(here.filter((n) => n.accelerators[0]?.model === model).length * 8),
      })).filter((a) => a.count > 0n),
    });
  }

  find(name: string): Plugin {
    const found = this.list.find((p) => p.name === name);
    if (!found) throw new ConnectError(`there is no plug-in "${name}"`, Code.NotFound);
    const rank = (state: string) => (INSTANCE_STATES as readonly string[]).indexOf(state);
    found.instances = found.list.length;
    found.state = found.list.reduce(
      (worst, i) => (rank(i.state) > rank(worst) ? i.state : worst),
      found.list[0]?.state ?? "idle",
    );
    return found;
  }

  instance(plugin: string, center: string): Instance {
    const found = this.find(plugin).list.find((i) => i.aiCenterId === center);
    if (!found) throw new ConnectError(`plug-in "${plugin}" has no instance at center "${center}"`, Code.NotFound);
    return found;
  }

  /** Reaches a center after a while; one whose configuration has "wrong" in it never. */
  begin(instance: Instance, config: string): void {
    Object.assign(instance, { state: "starting", message: "", version: "", changedAt: timestampFromMs(Date.now()) });
    setTimeout(() => Object.assign(instance, { version: "1.4.2" }), 1200);
    setTimeout(() => {
      const wrong = config.includes("wrong");
      Object.assign(instance, {
        state: wrong ? "trouble" : "up",
        message: wrong ? "slurmrestd at http://wrong:6820 does not answer: no such host" : "",
        changedAt: timestampFromMs(Date.now()),
      });
    }, 2600);
  }

  routes(): Partial<ServiceImpl<typeof AdapterService>> {
    return {
      listPlugins: () => ({ plugins: this.list.map((p) => ({ ...this.find(p.name), list: [], configSchema: "" })) }),
      getPlugin: ({ name }) => ({ ...this.find(name) }),
      setPlugin: ({ name, endpoints }) => {
        const old = this.list.find((p) => p.name === name);
        const made = old ?? create(PluginSchema, { name, source: PluginSource.REGISTERED });
        made.endpoints = endpoints;
        made.list = endpoints.map(
          (endpoint) =>
            old?.list.find((i) => i.endpoint === endpoint) ??
            create(InstanceSchema, { plugin: name, endpoint, state: "starting", enabled: true, changedAt: at(0) }),
        );
        if (!old) this.list.push(made);
        return this.find(name);
      },
      deletePlugin: ({ name }) => {
        this.list = this.list.filter((p) => p.name !== name);
        return {};
      },
      restartPlugin: ({ name }) => {
        for (const i of this.find(name).list) if (i.enabled) this.begin(i, "");
        return {};
      },
      createInstance: ({ plugin, aiCenterId, config }) => {
        if (this.list.some((p) => p.list.some((i) => i.aiCenterId === aiCenterId))) {
          throw new ConnectError(`center "${aiCenterId}" is connected already`, Code.FailedPrecondition);
        }
        const made = create(InstanceSchema, { plugin, aiCenterId, enabled: true, createdAt: at(0) });
        this.find(plugin).list.push(made);
        this.begin(made, config);
        return made;
      },
      updateInstance: ({ plugin, aiCenterId, config, enabled }) => {
        const found = this.instance(plugin, aiCenterId);
        if (enabled !== undefined) found.enabled = enabled;
        if (found.enabled) this.begin(found, config ?? "");
        else found.state = "disabled";
        return found;
      },
      deleteInstance: ({ plugin, aiCenterId }) => {
        const p = this.find(plugin);
        p.list = p.list.filter((i) => i.aiCenterId !== aiCenterId);
        return {};
      },
      removeGateway: ({ aiCenterId }) => {
        const p = this.find("gateway");
        p.list = p.list.filter((i) => i.aiCenterId !== aiCenterId);
        return {};
      },
    };
  }
}
