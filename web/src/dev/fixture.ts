// A small platform in memory, for development and tests without a server. It
// answers every call the console makes; jobs submitted to it run for a while.
// It is never part of a build.
import { create } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, type ConnectRouter, createRouterTransport } from "@connectrpc/connect";
import { type Clients, createClients, loadKey } from "../api";
import { AdapterService } from "../gen/yunhe/adapters/v1/adapters_pb";
import { IdentityService, Role } from "../gen/yunhe/identity/v1/identity_pb";
import {
  type Job,
  JobSchema,
  JobService,
  type JobSpec,
  type Replica,
  ReplicaSchema,
  State,
} from "../gen/yunhe/jobs/v1/jobs_pb";
import { MeteringService, type Usage, UsageSchema } from "../gen/yunhe/metering/v1/metering_pb";
import { MonitorService } from "../gen/yunhe/monitor/v1/monitor_pb";
import {
  type Center,
  CenterSchema,
  CenterStatus,
  ImageSchema,
  RegistryService,
  SpecSchema,
} from "../gen/yunhe/registry/v1/registry_pb";
import { DecisionSchema, SchedulerService } from "../gen/yunhe/scheduler/v1/scheduler_pb";
import { TopologyService } from "../gen/yunhe/topology/v1/topology_pb";
import { digitsExample, toSpec } from "../lib/jobform";
import { hasEnded, stateName } from "../lib/states";
import { MeasurementFixture } from "./fixture-measurement";
import { Plugins } from "./fixture-plugins";
import { TopologyFixture } from "./fixture-topology";

const HOUR = 3_600_000;
const begin = Date.now();
const at = (msAgo: number) => timestampFromMs(begin - msAgo);

const PERMISSIONS = [
  "adapters.read",
  "adapters.write",
  "audit.read",
  "identity.read",
  "identity.write",
  "jobs.read",
  "jobs.write",
  "metering.read",
  "monitor.read",
  "registry.read",
  "registry.write",
  "scheduler.read",
  "scheduler.write",
];

type CenterRow = [
  id: string,
  name: string,
  region: string,
  lon: number,
  lat: number,
  cpu: number,
  gpu: number,
  used: number,
  grade: number,
];
const CENTER_ROWS: CenterRow[] = [
  ["beijing-1", "北京一号计算中心", "north", 116.4, 39.9, 512, 64, 0.62, 4],
  ["zhangjiakou-1", "Zhangjiakou", "north", 114.9, 40.8, 1024, 0, 0.35, 3],
  ["shanghai-1", "Shanghai Lingang", "east", 121.9, 30.9, 768, 128, 0.83, 4],
  ["wuhu-1", "芜湖", "east", 118.4, 31.3, 640, 0, 0.18, 2],
  ["shaoguan-1", "Shaoguan", "south", 113.6, 24.8, 512, 32, 0.51, 3],
  ["chengdu-1", "成都", "southwest", 104.1, 30.7, 384, 16, 0.97, 3],
  ["guian-1", "贵安", "southwest", 106.6, 26.4, 2048, 0, 0.27, 5],
  ["zhongwei-1", "Zhongwei", "northwest", 105.2, 37.5, 1024, 0, 0.05, 2],
];

const plugins = new Plugins(CENTER_ROWS.filter((c) => c[0] !== "beijing-1").map((c) => c[0]));

function centers(): Center[] {
  return CENTER_ROWS.map(([aiCenterId, name, region, longitude, latitude, cpu, gpu, used, grade], i) =>
    create(CenterSchema, {
      aiCenterId,
      name,
      region,
      status: i === 7 ? CenterStatus.UNKNOWN : CenterStatus.AVAILABLE,
      drained: i === 4,
      geometry: { longitude, latitude },
      createdAt: at(90 * 24 * HOUR),
      updatedAt: at(HOUR),
      lastSeenAt: timestampFromMs(Date.now() - (i === 7 ? 9 * HOUR : 1200)),
      securityGrade: BigInt(grade),
      performance: BigInt(900 + i * 50),
      adapter: aiCenterId === "beijing-1" ? "kubernetes" : "gateway",
      nodes: plugins.summary(aiCenterId),
      labels: { owner: "hub", cooling: i % 2 ? "liquid" : "air" },
      power: { staticMilliwattsPerCpu: 2500n, activeMilliwattsPerCpu: 8300n },
      resources: { cpu: BigInt(cpu), gpu: BigInt(gpu), memory: BigInt(cpu * 4096), storage: BigInt(cpu * 100) },
      monitoring: {
        runningTaskNum: BigInt(Math.round((cpu * used) / 2)),
        waitingTaskNum: BigInt(Math.round(used * 6)),
        cpuUsed: BigInt(Math.round(cpu * used)),
        cpuFree: BigInt(cpu - Math.round(cpu * used)),
        gpuUsed: BigInt(Math.round(gpu * used)),
        gpuFree: BigInt(gpu - Math.round(gpu * used)),
        memoryUsed: BigInt(Math.round(cpu * 4096 * used * 0.7)),
        memoryFree: BigInt(Math.round(cpu * 4096 * (1 - used * 0.7))),
        storageUsed: BigInt(Math.round(cpu * 100 * 0.4)),
        storageFree: BigInt(Math.round(cpu * 60)),
        cpuBusyPermille: BigInt(Math.round(used * 870)),
        memoryBusy: BigInt(Math.round(cpu * 4096 * used * 0.6)),
        measuredAt: timestampFromMs(Date.now() - 1200),
      },
    }),
  );
}

const SPECS = (
  [
    ["small", "1 core, 1 GiB", { cpu: "1", memory: "1Gi" }, 12],
    ["medium", "4 cores, 8 GiB", { cpu: "4", memory: "8Gi" }, 52],
    ["large", "16 cores, 64 GiB", { cpu: "16", memory: "64Gi" }, 240],
    ["gpu-1", "One GPU", { cpu: "8", memory: "64Gi", gpu: "1" }, 1880],
  ] as [string, string, Record<string, string>, number][]
).map(([resourceSpecId, resourceSpecName, resourceQuantity, price], i) =>
  create(SpecSchema, {
    resourceSpecId,
    resourceSpecName,
    resourceQuantity,
    price: BigInt(price),
    serviceType: i === 0 ? "batch,interactive" : "batch",
    createdAt: at(80 * 24 * HOUR),
    updatedAt: at(3 * HOUR),
    offers: CENTER_ROWS.filter((c) => !resourceQuantity.gpu || c[6] > 0).map((c, j) => ({
      aiCenterId: c[0],
      price: BigInt(price + ((j * 7) % 5) * Math.ceil(price / 20)),
    })),
  }),
);

const IMAGES = ["host", "pytorch-2.9", "python-3.13"].map((imageId, i) =>
  create(ImageSchema, {
    imageId,
    name: ["The machine itself", "PyTorch 2.9", "Python 3.13"][i],
    framework: ["", "PyTorch", "Python"][i],
    baseOs: { baseOs: "Debian 12" },
    createdAt: at(60 * 24 * HOUR),
    updatedAt: at(60 * 24 * HOUR),
    centers: i === 1 ? ["shanghai-1", "beijing-1"] : [],
  }),
);

const POLICIES = (
  [
    [
      "least-load",
      "Least cluster load first",
      "集群负载最小优先",
      "Prefers the candidate with the fewest running jobs.",
      ["running_jobs"],
    ],
    [
      "idle-spec",
      "Idle specification first",
      "规格空闲优先",
      "Prefers the candidate with the largest idle share of the specification.",
      ["idle_share"],
    ],
    [
      "lowest-price",
      "Lowest price first",
      "最低价格优先",
      "Prefers the lowest price per package and hour, normalized over the candidates.",
      ["price"],
    ],
    [
      "lowest-energy",
      "Lowest energy first",
      "最低能耗优先",
      "Prefers the least energy for the expected run time.",
      ["energy", "expected_seconds"],
    ],
    [
      "highest-performance",
      "Highest compute performance first",
      "最高算力性能优先",
      "Prefers the fastest machines.",
      ["speed"],
    ],
    [
      "highest-security",
      "Highest security grade first",
      "最高安全等级优先",
      "Prefers the highest security grade.",
      ["security_grade"],
    ],
    ["load-fairness", "Cluster load fairness", "集群负载公平", "Evens out the number of jobs.", ["jobs"]],
    ["data-aware", "Data-aware", "数据感知", "Prefers where the data already is.", ["transfer_time"]],
    ["nearest", "Nearest first", "就近优先", "Prefers the shortest distance.", ["distance"]],
  ] as [string, string, string, string, string[]][]
).map(([policyId, title, titleZh, doc, factors]) => ({ policyId, title, titleZh, doc, factors }));

const PRESETS: { name: string; weights: Record<string, number> }[] = [
  {
    name: "balanced",
    weights: {
      "least-load": 3,
      "idle-spec": 3,
      "lowest-price": 3,
      "lowest-energy": 2,
      "highest-performance": 2,
      "highest-security": 1,
      "data-aware": 3,
    },
  },
  { name: "lowest-cost", weights: { "lowest-price": 8, "data-aware": 1, "least-load": 1 } },
  { name: "greenest", weights: { "lowest-energy": 5, "least-load": 1 } },
];
let policySet = {
  weights: { ...PRESETS[0]?.weights } as Record<string, number>,
  preset: "balanced",
  updatedAt: at(24 * HOUR),
};

const LOG = (models: string, n: number) => {
  let text = `\u001b[1mdigits\u001b[0m: 1797 images of 8 × 8, 1437 to train, 360 to test\nmodel ${models}\n`;
  for (let i = 1; i <= n; i++)
    text += `epoch ${i} loss \u001b[33m${(2.3 / i ** 0.7).toFixed(4)}\u001b[0m accuracy ${(1 - 0.9 / i).toFixed(4)}\n`;
  return `${text}\u001b[32mtest accuracy 0.9722\u001b[0m\n`;
};

class Platform {
  jobs: Job[] = [];
  private watchers = new Set<(job: Job) => void>();
  private count = 0;

  constructor() {
    const names = [
      "resnet-sweep",
      "protein-fold",
      "tokenizer",
      "weather-2km",
      "digits",
      "risk-nightly",
      "ocr-batch",
      "speech-eval",
    ];
    for (let i = 60; i >= 0; i--) {
      const spec = toSpec({ ...digitsExample(), name: i % 5 === 4 ? "digits" : `${names[i % 8]}-${i}` });
      const job = this.add(spec, begin - i * 400_000 - 30_000);
      if (i === 0) continue;
      const failed = i % 9 === 3;
      this.place(job, begin - i * 400_000 - 29_988);
      if (i < 4) {
        this.start(job, begin - i * 400_000 - 29_000);
        if (i > 1) continue;
      }
      this.start(job, begin - i * 400_000 - 29_000);
      if (i >= 2) this.finish(job, begin - i * 400_000 + 60_000 + i * 1000, failed);
    }
  }

  add(spec: JobSpec, createdMs: number): Job {
    this.count++;
    const replicas: Replica[] = [];
    spec.tasks.forEach((task, taskIndex) => {
      for (let replicaIndex = 0; replicaIndex < task.replicaNumber; replicaIndex++) {
        replicas.push(create(ReplicaSchema, { taskIndex, replicaIndex, state: State.QUEUED }));
      }
    });
    const job = create(JobSchema, {
      jobId: `job_01JD${this.count.toString(36).toUpperCase().padStart(22, "0")}`,
      spec,
      tenantId: "default",
      userName: this.count % 3 ? "admin" : "lin",
      createdUser: this.count % 3 ? "Administrator" : "林",
      state: State.QUEUED,
      createdAt: timestampFromMs(createdMs),
      replicasTotal: replicas.length,
      replicas,
      version: 1n,
    });
    this.jobs.unshift(job);
    this.changed(job);
    return job;
  }

  place(job: Job, ms: number): void {
    job.state = State.PENDING;
    job.placedAt = timestampFromMs(ms);
    job.schedulingMicroseconds = 11_734n;
    const centerOf = (r: Replica) =>
      CENTER_ROWS[(r.taskIndex * 2 + r.replicaIndex + job.replicas.length + Number(job.version)) % 4] ?? CENTER_ROWS[0];
    for (const r of job.replicas) {
      const c = centerOf(r);
      Object.assign(r, {
        state: State.PENDING,
        attempt: 1,
        attemptId: `att_${job.jobId.slice(-6)}${r.taskIndex}${r.replicaIndex}`,
        aiCenterId: c?.[0],
        centerName: c?.[1],
        placedAt: timestampFromMs(ms + r.replicaIndex * 40),
        price: 12n,
      });
    }
    job.centerIds = [...new Set(job.replicas.map((r) => r.aiCenterId))].sort();
    this.changed(job);
  }

  start(job: Job, ms: number): void {
    job.state = State.RUNNING;
    job.startedAt = timestampFromMs(ms);
    for (const r of job.replicas)
      Object.assign(r, {
        state: State.RUNNING,
        startedAt: timestampFromMs(ms + r.replicaIndex * 700 + r.taskIndex * 300),
      });
    job.replicasRunning = job.replicas.length;
    this.changed(job);
  }

  finish(job: Job, ms: number, failed = false): void {
    job.state = failed ? State.FAILED : State.SUCCEEDED;
    job.endedAt = timestampFromMs(ms);
    job.replicasRunning = 0;
    job.replicas.forEach((r, i) => {
      const bad = failed && i === job.replicas.length - 1;
      const end = ms - i * 300;
      const duration =
        BigInt(end) * 1000n -
        (r.startedAt?.seconds ?? 0n) * 1_000_000n -
        BigInt(Math.floor((r.startedAt?.nanos ?? 0) / 1000));
      Object.assign(r, {
        state: bad ? State.FAILED : State.SUCCEEDED,
        reason: bad ? "oom" : "",
        message: bad ? "used more than the 1073741824 bytes of memory its specification small has" : "",
        endedAt: timestampFromMs(end),
        exitCode: bad ? 137 : 0,
        cpuMicroseconds: (duration * 93n) / 100n,
        memoryPeakBytes: 61_440_000n + BigInt(i) * 4_000_000n,
        costMicros: (duration * 12n * 10_000n) / 3_600_000_000n,
      });
    });
    job.replicasSucceeded = job.replicas.filter((r) => r.state === State.SUCCEEDED).length;
    job.replicasFailed = job.replicas.length - job.replicasSucceeded;
    if (failed) {
      job.reason = "oom";
      job.message = "replica 0 of task train-linear used more memory than its specification has";
    }
    job.costFen = job.replicas.reduce((s, r) => s + r.costMicros / 10_000n + 1n, 0n);
    this.changed(job);
  }

  changed(job: Job): void {
    job.version++;
    for (const watcher of this.watchers) watcher({ ...job });
  }

  async *watch(signal: AbortSignal): AsyncIterable<Job> {
    const queue: Job[] = [];
    let wake = () => {};
    const watcher = (job: Job) => {
      queue.push(job);
      wake();
    };
    this.watchers.add(watcher);
    signal.addEventListener("abort", () => wake());
    try {
      while (!signal.aborted) {
        const job = queue.shift();
        if (job) yield job;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      this.watchers.delete(watcher);
    }
  }

  find(jobId: string): Job {
    const job = this.jobs.find((j) => j.jobId === jobId);
    if (!job) throw new ConnectError(`job ${jobId} does not exist`, Code.NotFound);
    return job;
  }

  usage(): Usage[] {
    return this.jobs.flatMap((job) =>
      job.replicas
        .filter((r) => r.endedAt && r.startedAt)
        .map((r) =>
          create(UsageSchema, {
            attemptId: r.attemptId,
            jobId: job.jobId,
            tenantId: job.tenantId,
            userName: job.userName,
            taskName: job.spec?.tasks[r.taskIndex]?.name ?? "",
            taskIndex: r.taskIndex,
            replicaIndex: r.replicaIndex,
            attempt: r.attempt,
            aiCenterId: r.aiCenterId,
            resourceSpecId: "small",
            startedAt: r.startedAt,
            endedAt: r.endedAt,
            durationMicroseconds: (r.cpuMicroseconds * 100n) / 93n,
            cpuMicroseconds: r.cpuMicroseconds,
            memoryPeakBytes: r.memoryPeakBytes,
            price: r.price,
            costMicros: r.costMicros,
          }),
        ),
    );
  }
}

/** A google.rpc.BadRequest with these violations, as the server sends it. */
export function badRequest(message: string, violations: { field: string; description: string }[]): ConnectError {
  const error = new ConnectError(message, Code.InvalidArgument);
  const writer = new BinaryWriter();
  for (const v of violations) {
    const one = new BinaryWriter();
    one.tag(1, WireType.LengthDelimited).string(v.field);
    one.tag(2, WireType.LengthDelimited).string(v.description);
    writer.tag(1, WireType.LengthDelimited).bytes(one.finish());
  }
  // Incoming details have this shape; a router transport hands errors over as they are.
  (error.details as unknown[]).push({ type: "google.rpc.BadRequest", value: writer.finish() });
  return error;
}

function decisions(job: Job) {
  const total = Object.values(policySet.weights).reduce((s, w) => s + w, 0) || 1;
  return job.replicas.map((r) => {
    const list = CENTER_ROWS.map(([id, name, , , , , , used, grade], i) => {
      const filterReasons =
        i === 4
          ? ["is draining and takes no new work"]
          : i === 7
            ? ["is not available: not heard of for 9 h", "has 0 of the 1 CPU cores wanted free"]
            : [];
      const scores = filterReasons.length
        ? []
        : Object.entries(policySet.weights).map(([policyId, w], k) => {
            const score =
              policyId === "highest-security"
                ? grade * 20
                : policyId === "least-load"
                  ? Math.round((1 - used) * 100)
                  : (37 * (i + 3) * (k + 2)) % 101;
            const fact =
              {
                "lowest-price": "0.12 CNY/h",
                "least-load": `${Math.round(used * 200)} jobs`,
                "highest-security": `grade ${grade}`,
              }[policyId] ?? `${(score * 1.7).toFixed(1)} units`;
            return { policyId, score, weight: w / total, weighted: (w / total) * score, fact };
          });
      const finalScore = scores.reduce((s, x) => s + x.weighted, 0);
      return {
        aiCenterId: id,
        centerName: name,
        filterReasons,
        scores,
        finalScore,
        finalScoreRounded: Math.round(finalScore),
        rank: 0,
        chosen: false,
      };
    });
    const ranked = list.filter((c) => c.filterReasons.length === 0).sort((a, b) => b.finalScore - a.finalScore);
    ranked.forEach((c, i) => {
      c.rank = i + 1;
      c.chosen = i === 0 && r.attempt > 0;
    });
    return create(DecisionSchema, {
      taskIndex: r.taskIndex,
      taskName: job.spec?.tasks[r.taskIndex]?.name ?? "",
      replicaIndex: r.replicaIndex,
      attempt: r.attempt,
      decidedAt: r.placedAt,
      aiCenterId: ranked[0]?.aiCenterId ?? "",
      candidates: list,
      summary: r.attempt > 0 ? `${ranked[0]?.centerName} has the highest final score` : "waits for a scheduling cycle",
    });
  });
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** The services of the fixture. */
export function fixtureRoutes(router: ConnectRouter, platform = new Platform()): void {
  const keys = [
    { keyId: "k_7Qm2", userId: "admin", tenantId: "default", note: "admin.key", createdAt: at(90 * 24 * HOUR) },
    {
      keyId: "k_9Xa1",
      userId: "lin",
      tenantId: "default",
      note: "notebook",
      createdAt: at(9 * 24 * HOUR),
      expiresAt: at(-30 * 24 * HOUR),
    },
    {
      keyId: "k_0Zz8",
      userId: "lin",
      tenantId: "default",
      note: "old laptop",
      createdAt: at(50 * 24 * HOUR),
      revokedAt: at(24 * HOUR),
    },
  ];
  router.service(IdentityService, {
    whoAmI: () => {
      if (loadKey().startsWith("wrong")) throw new ConnectError("the key is not valid", Code.Unauthenticated);
      return {
        user: { userId: "admin", tenantId: "default", name: "Administrator", role: Role.ADMIN },
        keyId: "k_7Qm2",
        permissions: PERMISSIONS,
      };
    },
    listTenants: () => ({
      tenants: [
        { tenantId: "default", name: "Default", createdAt: at(90 * 24 * HOUR) },
        { tenantId: "genomics", name: "基因组研究院", createdAt: at(20 * 24 * HOUR) },
      ],
    }),
    createTenant: ({ tenant }) => {
      throw badRequest("tenant_id is taken", [
        { field: "tenant.tenant_id", description: `"${tenant?.tenantId}" is taken` },
      ]);
    },
    listUsers: () => ({
      users: [
        {
          userId: "admin",
          tenantId: "default",
          name: "Administrator",
          role: Role.ADMIN,
          createdAt: at(90 * 24 * HOUR),
        },
        { userId: "lin", tenantId: "default", name: "林", role: Role.USER, createdAt: at(9 * 24 * HOUR) },
      ],
    }),
    listKeys: () => ({ keys }),
    createKey: ({ note }) => ({
      key: { keyId: "k_new1", note, userId: "admin", tenantId: "default" },
      secret: "yk_new1_0123456789abcdefghijklmnopqrstuvwxyz",
    }),
    listAuditEvents: () => ({
      events: Array.from({ length: 30 }, (_, i) => ({
        eventId: `aud_${i}`,
        at: at(i * 1_700_000),
        tenantId: "default",
        userId: i % 4 ? "admin" : "lin",
        keyId: "k_7Qm2",
        method: [
          "yunhe.jobs.v1.JobService/SubmitJob",
          "yunhe.jobs.v1.JobService/StopJob",
          "yunhe.registry.v1.RegistryService/UpdateCenter",
        ][i % 3],
        subject: i % 3 ? platform.jobs[i]?.jobId : "",
        outcome: i % 7 === 5 ? "PERMISSION_DENIED" : "OK",
        remote: "127.0.0.1",
      })),
    }),
  });
  router.service(RegistryService, {
    listCenters: () => ({ centers: centers() }),
    getCenter: ({ aiCenterId }) => {
      const found = centers().find((c) => c.aiCenterId === aiCenterId);
      if (!found) throw new ConnectError(`center ${aiCenterId} does not exist`, Code.NotFound);
      return found;
    },
    updateCenter: ({ center }) => center ?? {},
    listNodes: ({ pageSize, pageToken, aiCenterId, state, acceleratorModel, labels }) => {
      const all = plugins.nodes.filter(
        (n) =>
          (!aiCenterId || n.aiCenterId === aiCenterId) &&
          (!state || n.state === state) &&
          (!acceleratorModel || n.accelerators.some((a) => a.model === acceleratorModel)) &&
          labels.every((l) => {
            const [name = "", value] = l.split("=");
            return value === undefined ? name in n.labels : n.labels[name] === value;
          }),
      );
      const from = Number(pageToken || 0);
      const nodes = all.slice(from, from + (pageSize || 100));
      return { nodes, nextPageToken: from + nodes.length < all.length ? `${from + nodes.length}` : "" };
    },
    listSpecs: () => ({ specs: SPECS }),
    createSpec: ({ spec }) => {
      throw badRequest("spec is wrong", [
        { field: "spec.resource_spec_id", description: `"${spec?.resourceSpecId}" is taken` },
        { field: 'spec.resource_quantity["memory"]', description: "is more than any center has" },
      ]);
    },
    listImages: () => ({ images: IMAGES }),
  });
  router.service(JobService, {
    listJobs: ({ pageToken, pageSize, states, name, userName, aiCenterId }) => {
      const from = Number(pageToken || 0);
      const all = platform.jobs.filter(
        (j) =>
          (states.length === 0 || states.includes(j.state)) &&
          (j.spec?.name ?? "").includes(name) &&
          (!userName || j.userName === userName) &&
          (!aiCenterId || j.centerIds.includes(aiCenterId)),
      );
      const jobs = all.slice(from, from + (pageSize || 50)).map((j) => ({ ...j, replicas: [] }));
      return { jobs, nextPageToken: from + jobs.length < all.length ? `${from + jobs.length}` : "" };
    },
    getJob: ({ jobId }) => ({ ...platform.find(jobId) }),
    getJobStats: () => {
      const jobsByState: Record<string, bigint> = {};
      for (const j of platform.jobs) jobsByState[stateName(j.state)] = (jobsByState[stateName(j.state)] ?? 0n) + 1n;
      return {
        jobsByState,
        costFen24h: platform.jobs.reduce((s, j) => s + j.costFen, 0n),
        runs24h: BigInt(platform.usage().length),
      };
    },
    submitJob: ({ job }) => {
      if (!job) throw new ConnectError("job is missing", Code.InvalidArgument);
      const wrong = job.tasks.flatMap((task, i) =>
        SPECS.some((s) => s.resourceSpecId === task.resourceSpecId)
          ? []
          : [{ field: `job.tasks[${i}].resource_spec_id`, description: `"${task.resourceSpecId}" does not exist` }],
      );
      if (wrong.length > 0) throw badRequest("the job is wrong", wrong);
      const made = platform.add(job, Date.now());
      void (async () => {
        await pause(900);
        platform.place(made, Date.now());
        await pause(700);
        platform.start(made, Date.now());
        await pause(6000);
        platform.finish(made, Date.now());
      })();
      return made;
    },
    stopJob: ({ jobId }) => {
      const job = platform.find(jobId);
      job.state = State.STOPPED;
      job.endedAt = timestampFromMs(Date.now());
      for (const r of job.replicas) r.state = State.STOPPED;
      platform.changed(job);
      return job;
    },
    writeOffJob: ({ jobId, reason }) => {
      const job = platform.find(jobId);
      for (const r of job.replicas) {
        if (r.aiCenterId !== "zhongwei-1" || hasEnded(r.state)) continue;
        Object.assign(r, {
          state: State.FAILED,
          reason: "lost",
          message: reason,
          endedAt: timestampFromMs(Date.now() - 9 * HOUR),
        });
      }
      platform.changed(job);
      return job;
    },
    async *watchJobs(_, { signal }) {
      for await (const job of platform.watch(signal)) yield { job };
    },
    async *readLog({ jobId, taskIndex, offset, follow }, { signal }) {
      const job = platform.find(jobId);
      const text = LOG(job.spec?.tasks[taskIndex]?.name ?? "", job.spec?.name === "tokenizer-58" ? 300_000 : 40);
      const bytes = new TextEncoder().encode(text);
      const piece = bytes.length > 100_000 ? 65_536 : 220;
      for (let from = Number(offset); from < bytes.length && !signal.aborted; from += piece) {
        yield { data: bytes.slice(from, from + piece), offset: BigInt(from) };
        if (follow && piece < 1000 && !hasEnded(job.state)) await pause(150);
      }
      while (follow && !hasEnded(job.state) && !signal.aborted) await pause(200);
    },
  });
  router.service(SchedulerService, {
    listPolicies: () => ({ policies: POLICIES, presets: PRESETS }),
    getPolicySet: () => policySet,
    setPolicySet: ({ policySet: next }) => {
      const preset = PRESETS.find((p) => p.name === next?.preset);
      policySet = {
        weights: { ...(preset?.weights ?? next?.weights) },
        preset: preset?.name ?? "",
        updatedAt: timestampFromMs(Date.now()),
      };
      return policySet;
    },
    explainJob: ({ jobId }) => ({ jobId, decisions: decisions(platform.find(jobId)) }),
    getSchedulingStats: () => ({
      jobsScheduled: 48_211n,
      throughputPerSecond: 12_873.4,
      schedulingP50Microseconds: 8_740n,
      schedulingP99Microseconds: 61_220n,
      queued: 1n,
    }),
  });
  router.service(MeteringService, {
    listUsage: ({ jobId }) => ({ usage: platform.usage().filter((u) => !jobId || u.jobId === jobId) }),
    getJobCost: ({ jobId }) => {
      const lines = platform.usage().filter((u) => u.jobId === jobId);
      return {
        jobId,
        lines: lines.map((usage) => ({ usage, fen: usage.costMicros / 10_000n + 1n })),
        totalMicros: lines.reduce((s, u) => s + u.costMicros, 0n),
        totalFen: lines.reduce((s, u) => s + u.costMicros / 10_000n + 1n, 0n),
        currency: "CNY",
      };
    },
  });
  router.service(MonitorService, {
    listRunFigures: ({ jobId }) => ({
      runs: [0, 1].map((replicaIndex) => ({
        attemptId: `${jobId}-${replicaIndex}`,
        jobId,
        taskName: "train",
        replicaIndex,
        aiCenterId: CENTER_ROWS[0]?.[0] ?? "",
        cpuCores: 3.4 - replicaIndex,
        memoryBytes: 3n << 30n,
        reservedCpuCores: 4,
        reservedMemoryBytes: 8n << 30n,
      })),
    }),
    queryRange: ({ query, start, end, stepSeconds }) => {
      const from = Number(start?.seconds ?? 0n);
      const to = Number(end?.seconds ?? 0n);
      const step = Math.max(1, Number(stepSeconds));
      const wanted = /center="([^"]+)"/.exec(query)?.[1];
      const scale = query.includes("memory") ? 40e9 : query.includes("running") ? 300 : 100;
      const kinds = query.includes("label_replace")
        ? query.includes("waiting")
          ? ["running", "waiting"]
          : ["held", "busy"]
        : [""];
      return {
        series: CENTER_ROWS.filter((c) => !wanted || c[0] === wanted).flatMap(([center, , , , , , , used], i) =>
          kinds.map((kind, k) => ({
            labels: { center, ...(kind && { kind }) } as Record<string, string>,
            points: Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, n) => {
              const t = from + n * step;
              const wave = Math.sin(t / (500 + i * 90)) * 0.09 + Math.sin(t / (97 + i * 13)) * 0.04;
              return { at: BigInt(t) * 1000n, value: Math.min(1, Math.max(0, used * (k ? 0.7 : 1) + wave)) * scale };
            }),
          })),
        ),
      };
    },
  });
  new MeasurementFixture().mount(router);
  router.service(
    TopologyService,
    new TopologyFixture(CENTER_ROWS, Number(import.meta.env.VITE_FIXTURE_NODES ?? 900)).routes(),
  );
  router.service(AdapterService, {
    ...plugins.routes(),
    listGateways: () => ({
      gateways: CENTER_ROWS.map((c, i) => ({
        aiCenterId: c[0],
        version: "0.1.0",
        connected: i !== 7,
        joinedAt: at(80 * 24 * HOUR),
      })),
    }),
    createJoinToken: () => ({ token: "yj_0123456789abcdef0123456789abcdef", expiresAt: at(-HOUR) }),
  });
}

/** Clients of a new fixture. */
export function fixtureClients(): Clients {
  return createClients(createRouterTransport((router) => fixtureRoutes(router)));
}
