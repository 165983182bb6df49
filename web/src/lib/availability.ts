// Availability planning: a system as it is edited, its way to the contract, and
// files of it and of its plan.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { parse, stringify } from "yaml";
import {
  AvailabilityMethod,
  type AvailabilityPlan,
  type AvailabilitySystem,
  AvailabilitySystemSchema,
  type MeasuredRole,
} from "../gen/yunhe/availability/v1/availability_pb";

/** Availabilities are in per cent, as people write them. */
export interface SubmoduleValues {
  name: string;
  percent: number;
}

export interface ModuleValues {
  name: string;
  /** Of each microservice; undefined: as the system says. */
  instances?: number;
  submodules: SubmoduleValues[];
}

export interface SystemValues {
  /** Per cent; 0: none. */
  target: number;
  instances: number;
  /** Per cent. */
  commonCause: number;
  sites: SubmoduleValues[];
  modules: ModuleValues[];
  /** Kept as they came; they are not edited here. */
  dependencies: { from: string; to: string; strength: number }[];
}

/** Per cent of a share without the digits that multiplying adds. */
export function toPercent(share: number): number {
  return Number((share * 100).toPrecision(12));
}

export function toShare(percent: number): number {
  return Number((percent / 100).toPrecision(14));
}

/** A small system to begin with. */
export function exampleSystem(): SystemValues {
  return {
    target: 99.99,
    instances: 3,
    commonCause: 0,
    sites: [],
    dependencies: [],
    modules: [
      {
        name: "trading",
        submodules: [
          { name: "market", percent: 99.5 },
          { name: "matching", percent: 99 },
          { name: "applications", percent: 98 },
        ],
      },
      {
        name: "decision",
        submodules: [
          { name: "orchestration", percent: 99 },
          { name: "business", percent: 99 },
        ],
      },
    ],
  };
}

/** This platform: its roles, as available as they were measured. */
export function platformSystem(roles: readonly MeasuredRole[]): SystemValues {
  return {
    ...exampleSystem(),
    modules: [
      {
        name: "platform",
        // A role that never failed yet is not taken as one that cannot.
        submodules: roles.map((r) => ({ name: r.role, percent: toPercent(Math.min(r.availability, 0.9999)) })),
      },
    ],
  };
}

export function fromSystem(s: AvailabilitySystem): SystemValues {
  return {
    target: toPercent(s.target),
    instances: s.instances || 3,
    commonCause: toPercent(s.commonCause),
    sites: s.sites.map((x) => ({ name: x.name, percent: toPercent(x.availability) })),
    modules: s.modules.map((m) => ({
      name: m.name,
      ...(m.instances > 0 ? { instances: m.instances } : {}),
      submodules: m.submodules.map((x) => ({ name: x.name, percent: toPercent(x.availability || 0.99) })),
    })),
    dependencies: s.dependencies.map(({ from, to, strength }) => ({ from, to, strength: strength || 1 })),
  };
}

export function toSystem(v: SystemValues): AvailabilitySystem {
  const init: MessageInitShape<typeof AvailabilitySystemSchema> = {
    target: toShare(v.target),
    instances: v.instances,
    commonCause: toShare(v.commonCause),
    sites: v.sites.map((x) => ({ name: x.name, availability: toShare(x.percent) })),
    modules: v.modules.map((m) => ({
      name: m.name,
      instances: m.instances ?? 0,
      submodules: m.submodules.map((x) => ({ name: x.name, availability: toShare(x.percent) })),
    })),
    dependencies: v.dependencies,
  };
  return create(AvailabilitySystemSchema, init);
}

/** The file that `yunhe availability plan -f` reads. */
export function toYaml(v: SystemValues): string {
  const file: Record<string, unknown> = {
    modules: v.modules.map((m) => ({
      name: m.name,
      ...(m.instances ? { instances: m.instances } : {}),
      submodules: m.submodules.map((x) => ({ name: x.name, availability: toShare(x.percent) })),
    })),
    instances: v.instances,
  };
  if (v.target > 0) file.target = toShare(v.target);
  if (v.commonCause > 0) file.common_cause = toShare(v.commonCause);
  if (v.sites.length > 0) file.sites = v.sites.map((x) => ({ name: x.name, availability: toShare(x.percent) }));
  if (v.dependencies.length > 0) file.dependencies = v.dependencies;
  return stringify(file);
}

/** Reads such a file, or throws with what is wrong. */
export function fromYaml(text: string): SystemValues {
  const file = record(parse(text), "the file");
  const modules = list(file.modules, "modules").map((m, i): ModuleValues => {
    const at = record(m, `modules[${i}]`);
    const instances = number(at.instances, 0);
    return {
      name: String(at.name ?? ""),
      ...(instances > 0 ? { instances } : {}),
      submodules: list(at.submodules, `modules[${i}].submodules`).map((x, j) =>
        named(x, `modules[${i}].submodules[${j}]`),
      ),
    };
  });
  return {
    modules,
    target: toPercent(number(file.target, 0)),
    instances: number(file.instances, 3),
    commonCause: toPercent(number(file.common_cause, 0)),
    sites: list(file.sites ?? [], "sites").map((x, i) => named(x, `sites[${i}]`)),
    dependencies: list(file.dependencies ?? [], "dependencies").map((x, i) => {
      const d = record(x, `dependencies[${i}]`);
      return { from: String(d.from ?? ""), to: String(d.to ?? ""), strength: number(d.strength, 1) };
    }),
  };
}

function record(value: unknown, what: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new Error(`${what}: names and values are expected`);
  return value as Record<string, unknown>;
}

function list(value: unknown, what: string): unknown[] {
  if (!Array.isArray(value)) throw new Error(`${what}: a list is expected`);
  return value;
}

function number(value: unknown, other: number): number {
  return typeof value === "number" && Number.isFinite(value) ? value : other;
}

function named(value: unknown, what: string): SubmoduleValues {
  const at = record(value, what);
  return { name: String(at.name ?? ""), percent: toPercent(number(at.availability, 0.99)) };
}

const METHODS = {
  [AvailabilityMethod.UNSPECIFIED]: "own",
  [AvailabilityMethod.NONE]: "none",
  [AvailabilityMethod.FULL]: "full",
  [AvailabilityMethod.AWARE]: "aware",
  [AvailabilityMethod.CLUSTERED]: "fca",
} as const;

export type MethodName = (typeof METHODS)[AvailabilityMethod];

export function methodName(m: AvailabilityMethod): MethodName {
  return METHODS[m] ?? "own";
}

/** The plan as `yunhe availability plan -o json` prints it, which `availability deploy` reads. */
export function planToJson(p: AvailabilityPlan): string {
  return JSON.stringify(
    {
      method: methodName(p.method),
      microservices: p.microservices,
      availability: 100 * p.availability,
      unavailability: p.unavailability,
      target: p.target,
      reachable: p.reachable,
      minimal: p.minimal,
      at_least: p.atLeast,
      cost: Number(p.cost),
      modules: p.modules.map((m) => ({
        name: m.name,
        availability: 100 * m.availability,
        instances: m.instances,
        microservices: m.microservices.map((x) => x.submodules),
      })),
    },
    null,
    2,
  );
}

/** One line for each microservice. */
export function planToCsv(p: AvailabilityPlan): string {
  const cell = (text: string) => {
    // A spreadsheet takes what begins like this for a formula.
    const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const lines = ["module,microservice,instances,submodules,module_availability_percent"];
  for (const m of p.modules)
    m.microservices.forEach((x, i) => {
      lines.push(
        [m.name, String(i + 1), String(m.instances), x.submodules.join(" "), String(100 * m.availability)]
          .map(cell)
          .join(","),
      );
    });
  return `${lines.join("\r\n")}\r\n`;
}

/** How the submodules of each module are split: the number of the microservice each is in. */
export type OwnSplit = Record<string, Record<string, number>>;

export function splitOf(p: AvailabilityPlan): OwnSplit {
  const out: OwnSplit = {};
  for (const m of p.modules) {
    const at: Record<string, number> = {};
    m.microservices.forEach((x, i) => {
      for (const name of x.submodules) at[name] = i;
    });
    out[m.name] = at;
  }
  return out;
}

/** The split of a system; what it says nothing of is in the first microservice. */
export function toSplit(v: SystemValues, own: OwnSplit) {
  return v.modules.map((m) => {
    const groups = new Map<number, string[]>();
    for (const x of m.submodules) {
      const at = own[m.name]?.[x.name] ?? 0;
      groups.set(at, [...(groups.get(at) ?? []), x.name]);
    }
    const order = [...groups.keys()].sort((a, b) => a - b);
    return { name: m.name, microservices: order.map((i) => ({ submodules: groups.get(i) ?? [] })) };
  });
}

/** A share near 1 with the digits that tell it from 1: "99.99170 %". */
export function percentText(availability: number, unavailability = 1 - availability): string {
  // A moment up: 1 − 0.9 is a little less than 0.1.
  const digits =
    unavailability <= 0 ? 2 : Math.min(12, Math.max(2, 3 - Math.floor(Math.log10(unavailability * 100) + 1e-9)));
  return `${(100 - 100 * unavailability).toFixed(digits)} %`;
}

const YEAR_MS = 365.25 * 86_400_000;

/** How long it is down in a year, milliseconds. */
export function downPerYear(unavailability: number): number {
  return unavailability * YEAR_MS;
}
