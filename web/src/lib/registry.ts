// Registered resources as the console shows them.
import { ResourceState, type ResourceType } from "../gen/yunhe/registry/v1/resource_pb";
import type { FieldPath } from "./errors";
import { formatBytes, formatCount } from "./format";
import { type Field, isObject, linesOf, parseSchema } from "./schema";
import type { Tone } from "./states";

const TYPES = ["platform", "cloud", "center", "node", "compute", "network", "storage", "security"] as const;
export type TypeName = (typeof TYPES)[number];

/** The type if the console has a word for it. */
export function knownType(type: string): TypeName | undefined {
  return TYPES.find((t) => t === type);
}

export function resourceTone(state: ResourceState): Tone {
  switch (state) {
    case ResourceState.AVAILABLE:
      return "good";
    case ResourceState.UNAVAILABLE:
      return "bad";
    case ResourceState.MAINTENANCE:
      return "warn";
    case ResourceState.REGISTERED:
      return "active";
    default:
      return "neutral";
  }
}

/** Whether it was registered here, and may be changed. Others are read from what joined. */
export function isRegistered(r: { version: bigint }): boolean {
  return r.version > 0n;
}

/** The attributes of a type as form fields; undefined if the type is not known. */
export function attributesOf(types: readonly ResourceType[] | undefined, type: string): Field | undefined {
  const schema = types?.find((t) => t.type === type)?.schema;
  if (!schema) return undefined;
  const field = parseSchema(schema);
  return field.kind === "group" ? { ...field, required: true } : undefined;
}

export interface AttributeLine {
  path: string;
  field?: Field;
  text: string;
}

/** Attributes line by line, known ones in the order of their schema, each as people read it. */
export function attributeLines(schema: Field | undefined, attributes: Record<string, unknown>): AttributeLine[] {
  const known = new Set(schema?.fields.map((f) => f.key));
  const lines: AttributeLine[] = [];
  for (const field of schema?.fields ?? []) {
    const value = attributes[field.key];
    const items = field.kind === "list" && Array.isArray(value) ? value : undefined;
    if (items)
      items.forEach((item, i) => {
        const path = items.length > 1 ? `${field.key}[${i}]` : field.key;
        lines.push({ path, field, text: itemText(field.item, item) });
      });
    else
      for (const l of linesOf(field, value, field.key))
        lines.push({ path: l.path, field: l.field, text: amountText(l.path, l.value) });
  }
  for (const [name, value] of Object.entries(attributes)) {
    if (!known.has(name)) lines.push({ path: name, text: typeof value === "string" ? value : JSON.stringify(value) });
  }
  return lines;
}

// One item of a list in one line: "cpu 2 cores", else name and value of each member.
function itemText(item: Field | undefined, value: unknown): string {
  if (!isObject(value)) return String(value);
  const { kind, scale, unit, ...rest } = value;
  if (typeof kind === "string" && typeof scale === "number" && Object.keys(rest).length === 0)
    return unit === "bytes" ? `${kind} ${formatBytes(scale)}` : `${kind} ${formatCount(scale)} ${unit ?? ""}`.trim();
  return linesOf(item ?? NO_FIELD, value)
    .map((l) => `${l.path}: ${amountText(l.path, l.value)}`)
    .join(" · ");
}

const NO_FIELD = { kind: "json" } as Field;

function amountText(path: string, text: string): string {
  if (!/^\d+(\.\d+)?$/.test(text)) return text;
  if (/_bytes$/.test(path)) return formatBytes(Number(text));
  return Number.isInteger(Number(text)) && Number(text) >= 10_000 ? formatCount(Number(text)) : text;
}

const camel = (name: string) => name.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase());

/** A violation's path in the form: below "attributes" names are as the schema has them. */
export function resourceField(schema: Field | undefined, path: FieldPath): FieldPath {
  if (path[0] !== "attributes" || !schema) return path;
  const out: FieldPath = ["attributes"];
  let at: Field | undefined = schema;
  for (const part of path.slice(1)) {
    if (typeof part === "number") {
      out.push(part);
      at = at?.item;
      continue;
    }
    const next: Field | undefined = at?.fields.find((f) => camel(f.key) === part || f.key === part);
    out.push(next?.key ?? part);
    at = next;
  }
  // What no single control edits is shown at the list or group it is in.
  return out;
}

/** "name=value" texts as labels; a text without "=" is a name with no value. */
export function labelsOf(texts: readonly string[] | undefined): Record<string, string> {
  return Object.fromEntries(
    (texts ?? []).map((text): [string, string] => {
      const i = text.indexOf("=");
      return i < 0 ? [text.trim(), ""] : [text.slice(0, i).trim(), text.slice(i + 1).trim()];
    }),
  );
}

export function labelTexts(labels: Record<string, string>): string[] {
  return Object.entries(labels)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([k, v]) => (v === "" ? k : `${k}=${v}`));
}

/** What is shown about which resources. Empty fields do not filter. */
export interface ResourceFilter {
  type: string;
  region: string;
  parentId: string;
  centerId: string;
  state: string;
  labels: string[];
  attributes: string[];
}

const MOST = 8;

/** A filter as the address has it. */
export function resourceFilterOf(params: URLSearchParams): ResourceFilter {
  return {
    type: params.get("type") ?? "",
    region: params.get("region") ?? "",
    parentId: params.get("parent") ?? "",
    centerId: params.get("center") ?? "",
    state: params.get("state") ?? "",
    labels: params.getAll("label").slice(0, MOST),
    attributes: params.getAll("attribute").slice(0, MOST),
  };
}

/** Where a resource is shown. */
export function resourcePath(id: string): string {
  return `/resources/${encodeURIComponent(id)}`;
}

/** An object of tags as the registry names it: "resource:ID", "center:ID", "node:CENTER:NAME". */
export function objectOf(resourceId: string): string {
  return /^(center|node):/.test(resourceId) ? resourceId : `resource:${resourceId}`;
}
