// The job form's values, and their way to and from the contract's JobSpec.
import { create, fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";
import {
  ConstraintsSchema,
  FailurePolicy,
  FileSchema,
  type JobSpec,
  JobSpecSchema,
  SuccessPolicy,
  type Task,
  TaskSchema,
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
  };
}

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
  return create(JobSpecSchema, {
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
  });
}

function toTask(task: TaskForm): Task {
  const maxPrice = parseYuan(task.maxPrice) ?? 0n;
  const constrained =
    task.centers.length > 0 || task.regions.length > 0 || (task.minSecurityGrade ?? 0) > 0 || maxPrice > 0n;
  return create(TaskSchema, {
    name: task.name,
    command: task.command,
    imageId: task.imageId,
    resourceSpecId: task.resourceSpecId,
    replicaNumber: task.replicaNumber,
    env: toMap(task.env),
    files: task.files.map((f) => create(FileSchema, f)),
    timeoutSeconds: BigInt(task.timeoutSeconds ?? 0),
    network: task.network,
    constraints: constrained
      ? create(ConstraintsSchema, {
          centers: task.centers,
          regions: task.regions,
          minSecurityGrade: BigInt(task.minSecurityGrade ?? 0),
          maxPrice,
        })
      : undefined,
    expectedSeconds: BigInt(task.expectedSeconds ?? 0),
    stopGraceSeconds: BigInt(task.stopGraceSeconds ?? 0),
    scratchMib: BigInt(task.scratchMib ?? 0),
  });
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
]);
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
]);

/** The form field that shows a violation at this path, undefined if the form has none for it. */
export function formField(path: FieldPath): FieldPath | undefined {
  const [head, index, field, sub] = path;
  if (head === "tasks" && typeof index === "number") {
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
