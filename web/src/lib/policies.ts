// Policy records: a document as it is edited, and what is said of it.
import { create, fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";
import { parse, stringify } from "yaml";
import {
  type PolicyDocument,
  PolicyDocumentSchema,
  type PolicyProblem,
  PolicyRulesSchema,
  PolicyScopeSchema,
  PolicyState,
} from "../gen/yunhe/policies/v1/policies_pb";
import type { Tone } from "./states";

const STATES = {
  [PolicyState.UNSPECIFIED]: "unknown",
  [PolicyState.DRAFT]: "draft",
  [PolicyState.VALIDATED]: "validated",
  [PolicyState.SIMULATED]: "simulated",
  [PolicyState.ISSUED]: "issued",
  [PolicyState.WITHDRAWN]: "withdrawn",
} as const;
export const policyStateName = (s: PolicyState) => STATES[s] ?? "unknown";

export function policyTone(s: PolicyState): Tone {
  switch (s) {
    case PolicyState.ISSUED:
      return "good";
    case PolicyState.VALIDATED:
    case PolicyState.SIMULATED:
      return "active";
    case PolicyState.DRAFT:
      return "waiting";
    default:
      return "neutral";
  }
}

/** What an empty document begins with. */
export function newDocument(): PolicyDocument {
  return create(PolicyDocumentSchema, { rules: {}, scope: {} });
}

/** A document as people exchange it. */
export function documentText(document: PolicyDocument): string {
  return stringify(toJson(PolicyDocumentSchema, document, { useProtoFieldName: true }), { lineWidth: 0 });
}

/** A document that was typed. Throws if it is none. */
export function readDocument(text: string): PolicyDocument {
  const value = parse(text) as JsonValue;
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error("not a policy document");
  const document = fromJson(PolicyDocumentSchema, value);
  document.rules ??= create(PolicyRulesSchema);
  document.scope ??= create(PolicyScopeSchema);
  return document;
}

/** Problems by the field they are of, "" for those of no field that is shown. */
export function problemsBy(
  problems: readonly PolicyProblem[],
  fields: readonly string[],
): Map<string, PolicyProblem[]> {
  const out = new Map<string, PolicyProblem[]>();
  for (const p of problems) {
    const field =
      fields.find((f) => f === p.field) ??
      fields
        .filter((f) => p.field.startsWith(`${f}.`) || p.field.startsWith(`${f}[`))
        .sort((a, b) => b.length - a.length)[0] ??
      "";
    out.set(field, [...(out.get(field) ?? []), p]);
  }
  return out;
}

/** How the rules say what weighs how much. */
export type Weighing = "none" | "preset" | "ranking" | "weights";

export function weighingOf(document: PolicyDocument): Weighing {
  const r = document.rules;
  if (!r) return "none";
  if (r.preset) return "preset";
  if (r.ranking.length > 0) return "ranking";
  return Object.keys(r.weights).length > 0 ? "weights" : "none";
}

/** "night@3" as an include; without a version, the one in force. */
export function includeOf(text: string): { policyId: string; version: bigint } | undefined {
  const match = /^([A-Za-z0-9._-]{1,32})(?:@([1-9]\d{0,8}))?$/.exec(text.trim());
  return match?.[1] ? { policyId: match[1], version: BigInt(match[2] ?? 0) } : undefined;
}

/** A difference's value: JSON as it is written by people. */
export function valueText(json: string): string {
  if (json === "") return "";
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === "string" ? value : JSON.stringify(value);
  } catch {
    return json;
  }
}
