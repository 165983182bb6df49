// The job form's values, and their way to and from the contract's JobSpec.
import { clone, create, fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import dayjs, { type Dayjs } from "dayjs";
import {
  ConstraintsSchema,
  type Dependency_Condition,
  DependencySchema,
  FailurePolicy,
  FileSchema,
  InputSchema,
  type JobSpec,
  JobSpecSchema,
  type PlacementRule_Kind,
  PlacementRuleSchema,
  type PoolShares,
  PoolSharesSchema,
  type Qos,
  QosSchema,
  RetryRuleSchema,
  SuccessPolicy,
  type Task,
  TaskSchema,
  VolumeMountSchema,
} from "../gen/yunhe/jobs/v1/jobs_pb";
import type { FieldPath } from "./errors";
import { fenToInput, parseYuan } from "./format";

export interface Pair {
  name: string;
  value: string;
}

export interface FileForm {
  path: string;
  content: Uint8Array<ArrayBuffer>;
  executable: boolean;
}

export interface RuleForm {
  kind: PlacementRule_Kind;
  over: string;
  ofJob: string;
  ofGroup: string;
  maxSkew?: number | null;
  preferred: boolean;
}

export interface InputForm {
  name: string;
  sizeMib?: number | null;
  centers: string[];
  volume?: string | null;
  stays: boolean;
}

/** What quality a task needs, in the units of people; empty: no target. */
export interface QosForm {
  latencyMs?: number | null;
  jitterMs?: number | null;
  lossPercent?: number | null;
  bandwidthMbps?: number | null;
  finishSeconds?: number | null;
  availabilityPercent?: number | null;
  required: boolean;
}

/** Shares of the accelerator pool; nothing is asked for without compute, a specification or a whole card. */
export interface PoolForm {
  groupId?: string;
  specId?: string;
  computePercent?: number | null;
  memoryMib?: number | null;
  weighted: boolean;
  /** By what programs use them; empty: opencl. */
  api?: string;
  model?: string;
  cards?: number | null;
  acrossNodes: boolean;
  physical: boolean;
  local: boolean;
  priority?: number | null;
  nodeId?: string;
  affinity?: string;
  antiAffinity?: string;
}

export interface RetryForm {
  reasons: string[];
  /** As typed. */
  exitCodes: string[];
  maxRetries?: number | null;
  backoffSeconds?: number | null;
}

export interface TaskForm {
  name: string;
  command: string;
  imageId: string;
  resourceSpecId: string;
  replicaNumber: number;
  env: Pair[];
  files: FileForm[];
  network: boolean;
  /** Seconds; empty is the platform's default. */
  timeoutSeconds?: number | null;
  expectedSeconds?: number | null;
  stopGraceSeconds?: number | null;
  scratchMib?: number | null;
  centers: string[];
  regions: string[];
  minSecurityGrade?: number | null;
  /** Yuan per package and hour, as typed. */
  maxPrice: string;
  volumes: { volume: string; path: string; readOnly: boolean }[];
  after: { task: string; condition: Dependency_Condition }[];
  rules: RuleForm[];
  minReplicas?: number | null;
  maxReplicas?: number | null;
  inputs: InputForm[];
  qos: QosForm;
  precision: string;
  pool: PoolForm;
  /** What the form does not show of a task that was read. */
  rest?: Task;
}

export interface JobForm {
  name: string;
  desc: string;
  tasks: TaskForm[];
  priority: number;
  successPolicy: SuccessPolicy;
  failurePolicy: FailurePolicy;
  maxRetries: number;
  gang: boolean;
  /** Off: the platform's policy set decides. */
  ownWeights: boolean;
  policyWeights: Record<string, number>;
  labels: Pair[];
  notBefore?: Dayjs | null;
  deadline?: Dayjs | null;
  nearJob: string;
  originId: string;
  groups: string[];
  noPreemption: boolean;
  distributed: boolean;
  /** With gang only, as elastic. */
  restartWhole: boolean;
  elastic: boolean;
  retryRules: RetryForm[];
  /** What the form does not show of a job that was read. */
  rest?: JobSpec;
}

export function emptyTask(name: string): TaskForm {
  return {
    name,
    command: "",
    imageId: "",
    resourceSpecId: "",
    replicaNumber: 1,
    env: [],
    files: [],
    network: false,
    centers: [],
    regions: [],
    maxPrice: "",
    volumes: [],
    after: [],
    rules: [],
    inputs: [],
    qos: { required: false },
    precision: "",
    pool: { ...NO_POOL },
  };
}

const NO_POOL: PoolForm = { weighted: false, acrossNodes: false, physical: false, local: false };

export function emptyJob(): JobForm {
  return {
    name: "",
    desc: "",
    tasks: [emptyTask("task-1")],
    priority: 0,
    successPolicy: SuccessPolicy.ALL,
    failurePolicy: FailurePolicy.ANY,
    maxRetries: 0,
    gang: false,
    ownWeights: false,
    policyWeights: {},
    labels: [],
    nearJob: "",
    originId: "",
    groups: [],
    noPreemption: false,
    distributed: false,
    restartWhole: false,
    elastic: false,
    retryRules: [],
  };
}

/** The handwritten-digits example: two ways to train, on data every compute gateway brings. */
export function digitsExample(): JobForm {
  const task = (name: string, command: string, replicaNumber: number): TaskForm => ({
    ...emptyTask(name),
    command,
    replicaNumber,
    imageId: "host",
    resourceSpecId: "small",
  });
  return {
    ...emptyJob(),
    name: "digits",
    desc: "handwritten digits, two models",
    tasks: [
      task("train-mlp", "/examples/digits/train --model mlp", 2),
      task("train-linear", "/examples/digits/train --model linear", 1),
    ],
  };
}

/** What is sent. A price that is no amount is left out; the form has refused it before. */
export function toSpec(form: JobForm): JobSpec {
  const spec = form.rest ? clone(JobSpecSchema, form.rest) : create(JobSpecSchema);
  return Object.assign(spec, {
    name: form.name,
    desc: form.desc,
    tasks: form.tasks.map(toTask),
    priority: form.priority,
    successPolicy: form.successPolicy,
    failurePolicy: form.failurePolicy,
    maxRetries: form.maxRetries,
    gang: form.gang,
    policyWeights: form.ownWeights ? form.policyWeights : {},
    labels: toMap(form.labels),
    notBefore: moment(form.notBefore),
    deadline: moment(form.deadline),
    nearJob: form.nearJob.trim(),
    originId: form.originId ?? "",
    groups: form.groups,
    noPreemption: form.noPreemption,
    distributed: form.distributed,
    restartWhole: form.gang && form.restartWhole,
    elastic: form.gang && form.elastic,
    retryRules: form.retryRules.filter(Boolean).map((r) =>
      create(RetryRuleSchema, {
        reasons: r.reasons ?? [],
        exitCodes: (r.exitCodes ?? []).map(Number).filter(Number.isInteger),
        maxRetries: r.maxRetries ?? 0,
        backoffSeconds: BigInt(r.backoffSeconds ?? 0),
      }),
    ),
  });
}

function moment(at: Dayjs | null | undefined): Timestamp | undefined {
  return at ? timestampFromDate(at.toDate()) : undefined;
}

function fromMoment(at: Timestamp | undefined): Dayjs | undefined {
  return at && dayjs(timestampDate(at));
}

function toTask(task: TaskForm): Task {
  const maxPrice = parseYuan(task.maxPrice) ?? 0n;
  const out = task.rest ? clone(TaskSchema, task.rest) : create(TaskSchema);
  const constraints = Object.assign(out.constraints ?? create(ConstraintsSchema), {
    centers: task.centers,
    regions: task.regions,
    minSecurityGrade: BigInt(task.minSecurityGrade ?? 0),
    maxPrice,
    rules: task.rules.filter((r) => r?.kind).map((r) => create(PlacementRuleSchema, { ...r, maxSkew: r.maxSkew ?? 0 })),
  });
  const constrained =
    constraints.centers.length > 0 ||
    constraints.regions.length > 0 ||
    constraints.rules.length > 0 ||
    constraints.minSecurityGrade > 0n ||
    maxPrice > 0n ||
    constraints.expression !== "" ||
    constraints.node !== "";
  return Object.assign(out, {
    name: task.name,
    command: task.command,
    imageId: task.imageId,
    resourceSpecId: task.resourceSpecId,
    replicaNumber: task.replicaNumber,
    env: toMap(task.env),
    files: task.files.map((f) => create(FileSchema, f)),
    timeoutSeconds: BigInt(task.timeoutSeconds ?? 0),
    network: task.network || asksPool(task.pool),
    constraints: constrained ? constraints : undefined,
    expectedSeconds: BigInt(task.expectedSeconds ?? 0),
    stopGraceSeconds: BigInt(task.stopGraceSeconds ?? 0),
    scratchMib: BigInt(task.scratchMib ?? 0),
    volumes: task.volumes.filter((v) => v?.volume).map((v) => create(VolumeMountSchema, v)),
    after: task.after.filter((d) => d?.task).map((d) => create(DependencySchema, d)),
    minReplicas: task.minReplicas ?? 0,
    maxReplicas: task.maxReplicas ?? 0,
    inputs: task.inputs.filter((x) => x?.name).map(toInput),
    qos: toQos(task.qos),
    precision: task.precision ?? "",
    pool: asksPool(task.pool) ? toPool(task.pool) : undefined,
  });
}

function asksPool(p: PoolForm): boolean {
  return Boolean(p.computePercent || p.specId || p.physical);
}

function toPool(p: PoolForm) {
  return create(PoolSharesSchema, {
    ...p,
    groupId: p.groupId ?? "",
    specId: p.specId ?? "",
    api: p.api ?? "",
    model: p.model ?? "",
    computePercent: BigInt(p.computePercent ?? 0),
    memoryMib: BigInt(p.memoryMib ?? 0),
    cards: BigInt(p.cards ?? 0),
    priority: p.priority ?? 0,
    nodeId: p.nodeId ?? "",
    affinity: p.affinity ?? "",
    antiAffinity: p.antiAffinity ?? "",
  });
}

function fromPool(p: PoolShares | undefined): PoolForm {
  if (!p) return { ...NO_POOL };
  return {
    groupId: p.groupId || undefined,
    specId: p.specId || undefined,
    api: p.api || undefined,
    model: p.model || undefined,
    computePercent: optional(p.computePercent),
    memoryMib: optional(p.memoryMib),
    cards: optional(p.cards),
    priority: p.priority || undefined,
    weighted: p.weighted,
    acrossNodes: p.acrossNodes,
    physical: p.physical,
    local: p.local,
    nodeId: p.nodeId || undefined,
    affinity: p.affinity || undefined,
    antiAffinity: p.antiAffinity || undefined,
  };
}

const MIB = 1024 * 1024;

function toInput({ name, sizeMib, centers, volume, stays }: InputForm) {
  return create(InputSchema, {
    name,
    sizeBytes: scaled(sizeMib, MIB),
    centers: centers ?? [],
    volume: volume ?? "",
    stays: stays ?? false,
  });
}

/** The fields of a Qos by those of the form: how much of the contract's unit one of a person's is. */
const QOS = {
  latencyMs: ["maxLatencyUs", 1000],
  jitterMs: ["maxJitterUs", 1000],
  lossPercent: ["maxLossPpm", 10_000],
  bandwidthMbps: ["minBandwidthKbps", 1000],
  finishSeconds: ["finishSeconds", 1],
  availabilityPercent: ["minAvailabilityPpm", 10_000],
} as const;
const QOS_KEYS = Object.keys(QOS) as (keyof typeof QOS)[];

function toQos(form: QosForm): Qos | undefined {
  const out = create(QosSchema, { required: form.required ?? false });
  for (const key of QOS_KEYS) out[QOS[key][0]] = scaled(form[key], QOS[key][1]);
  return out.required || QOS_KEYS.some((key) => out[QOS[key][0]] !== 0n) ? out : undefined;
}

function fromQos(qos: Qos | undefined): QosForm {
  const out: QosForm = { required: qos?.required ?? false };
  for (const key of QOS_KEYS) {
    const value = qos?.[QOS[key][0]] ?? 0n;
    if (value !== 0n) out[key] = Number(value) / QOS[key][1];
  }
  return out;
}

function scaled(value: number | null | undefined, unit: number): bigint {
  return BigInt(Math.round((value ?? 0) * unit));
}

/** The form that edits a given specification. */
export function fromSpec(spec: JobSpec): JobForm {
  return {
    name: spec.name,
    desc: spec.desc,
    tasks: spec.tasks.map(fromTask),
    priority: spec.priority,
    successPolicy: spec.successPolicy || SuccessPolicy.ALL,
    failurePolicy: spec.failurePolicy || FailurePolicy.ANY,
    maxRetries: spec.maxRetries,
    gang: spec.gang,
    ownWeights: Object.keys(spec.policyWeights).length > 0,
    policyWeights: { ...spec.policyWeights },
    labels: toPairs(spec.labels),
    notBefore: fromMoment(spec.notBefore),
    deadline: fromMoment(spec.deadline),
    nearJob: spec.nearJob,
    originId: spec.originId,
    groups: [...spec.groups],
    noPreemption: spec.noPreemption,
    distributed: spec.distributed,
    restartWhole: spec.restartWhole,
    elastic: spec.elastic,
    retryRules: spec.retryRules.map((r) => ({
      reasons: [...r.reasons],
      exitCodes: r.exitCodes.map(String),
      maxRetries: r.maxRetries,
      backoffSeconds: optional(r.backoffSeconds),
    })),
    rest: spec,
  };
}

function fromTask(task: Task): TaskForm {
  const c = task.constraints;
  return {
    name: task.name,
    command: task.command,
    imageId: task.imageId,
    resourceSpecId: task.resourceSpecId,
    replicaNumber: task.replicaNumber || 1,
    env: toPairs(task.env),
    files: task.files.map((f) => ({ path: f.path, content: new Uint8Array(f.content), executable: f.executable })),
    network: task.network,
    timeoutSeconds: optional(task.timeoutSeconds),
    expectedSeconds: optional(task.expectedSeconds),
    stopGraceSeconds: optional(task.stopGraceSeconds),
    scratchMib: optional(task.scratchMib),
    centers: c ? [...c.centers] : [],
    regions: c ? [...c.regions] : [],
    minSecurityGrade: c ? optional(c.minSecurityGrade) : undefined,
    maxPrice: c && c.maxPrice > 0n ? fenToInput(c.maxPrice) : "",
    volumes: task.volumes.map(({ volume, path, readOnly }) => ({ volume, path, readOnly })),
    after: task.after.map(({ task: name, condition }) => ({ task: name, condition })),
    rules: (c?.rules ?? []).map(({ kind, over, ofJob, ofGroup, maxSkew, preferred }) => ({
      kind,
      over,
      ofJob,
      ofGroup,
      maxSkew: maxSkew || undefined,
      preferred,
    })),
    minReplicas: task.minReplicas || undefined,
    maxReplicas: task.maxReplicas || undefined,
    inputs: task.inputs.map(({ name, sizeBytes, centers, volume, stays }) => ({
      name,
      sizeMib: sizeBytes === 0n ? undefined : Number(sizeBytes) / MIB,
      centers: [...centers],
      volume: volume || undefined,
      stays,
    })),
    qos: fromQos(task.qos),
    precision: task.precision,
    pool: fromPool(task.pool),
    rest: task,
  };
}

/** The specification as JSON: what the command line and the REST interface take. */
export function specToJson(spec: JobSpec): string {
  return JSON.stringify(toJson(JobSpecSchema, spec), null, 2);
}

/** Reads a specification, bare or as the "job" of a submit request. Throws with the reason. */
export function specFromJson(text: string): JobSpec {
  const value = JSON.parse(text) as JsonValue;
  if (value && typeof value === "object" && !Array.isArray(value) && value.job !== undefined) {
    return fromJson(JobSpecSchema, value.job);
  }
  return fromJson(JobSpecSchema, value);
}

const TASK_FIELDS = new Set([
  "name",
  "command",
  "imageId",
  "resourceSpecId",
  "replicaNumber",
  "env",
  "files",
  "timeoutSeconds",
  "network",
  "expectedSeconds",
  "stopGraceSeconds",
  "scratchMib",
  "minReplicas",
  "maxReplicas",
  "precision",
]);
/** Lists whose entries have fields of their own. */
const TASK_LISTS = new Set(["volumes", "after", "inputs"]);
const CONSTRAINT_FIELDS = new Set(["centers", "regions", "minSecurityGrade", "maxPrice"]);
const JOB_FIELDS = new Set([
  "name",
  "desc",
  "priority",
  "successPolicy",
  "failurePolicy",
  "maxRetries",
  "gang",
  "policyWeights",
  "labels",
  "notBefore",
  "deadline",
  "nearJob",
  "originId",
  "groups",
  "noPreemption",
  "distributed",
  "restartWhole",
  "elastic",
]);

/** The form field that shows a violation at this path, undefined if the form has none for it. */
export function formField(path: FieldPath): FieldPath | undefined {
  const [head, index, field, sub, at, entry] = path;
  if (head === "retryRules" && typeof index === "number" && typeof field === "string") return [head, index, field];
  if (head === "tasks" && typeof index === "number") {
    if (field === "constraints" && sub === "rules" && typeof at === "number" && typeof entry === "string")
      return ["tasks", index, "rules", at, entry];
    if (typeof field === "string" && TASK_LISTS.has(field) && typeof sub === "number" && typeof at === "string")
      return ["tasks", index, field, sub, at === "sizeBytes" ? "sizeMib" : at];
    if (field === "pool") return ["tasks", index, field, typeof sub === "string" ? sub : "computePercent"];
    if (field === "qos") {
      const key = QOS_KEYS.find((k) => QOS[k][0] === sub);
      return ["tasks", index, field, key ?? "required"];
    }
    if (field === "constraints" && typeof sub === "string" && CONSTRAINT_FIELDS.has(sub)) return ["tasks", index, sub];
    if (typeof field === "string" && TASK_FIELDS.has(field)) return ["tasks", index, field];
    return undefined;
  }
  return typeof head === "string" && JOB_FIELDS.has(head) ? [head] : undefined;
}

function optional(value: bigint): number | undefined {
  return value === 0n ? undefined : Number(value);
}

function toMap(pairs: Pair[]): Record<string, string> {
  return Object.fromEntries(pairs.filter((p) => p?.name).map((p) => [p.name, p.value ?? ""]));
}

function toPairs(map: Record<string, string>): Pair[] {
  return Object.entries(map)
    .map(([name, value]) => ({ name, value }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}
