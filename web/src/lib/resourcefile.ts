// Files of resources, YAML and CSV, as `yunhe resource import` and `export`
// have them. Reading finds every mistake of a file, each with its line; what is
// written is read back the same.
import type { MessageInitShape } from "@bufbuild/protobuf";
import { isAlias, isMap, isScalar, isSeq, LineCounter, type Node, parseAllDocuments, stringify } from "yaml";
import {
  type Resource,
  type ResourceSchema,
  ResourceState,
  type ResourceType,
} from "../gen/yunhe/registry/v1/resource_pb";
import { isObject } from "./schema";

export type Format = "yaml" | "csv";
export type ResourceInit = MessageInitShape<typeof ResourceSchema> & { resourceId: string };

/** What is wrong with a file, by the key of its text. */
export type ProblemCode =
  | "syntax"
  | "notResource"
  | "unknownMember"
  | "unknownColumn"
  | "missingColumn"
  | "twice"
  | "wantText"
  | "wantObject"
  | "wantList"
  | "wantNumber"
  | "wantBoolean"
  | "wantInteger"
  | "wantState"
  | "alias"
  | "columns"
  | "noId"
  | "deep";

export interface Problem {
  line: number;
  /** "" if it is of the whole. */
  field: string;
  code: ProblemCode;
  /** What was found. */
  got: string;
}

/** A resource of a file, or what is wrong with it. */
export interface Item {
  line: number;
  resource: ResourceInit;
  problems: Problem[];
  /** Line of each member. */
  lines: Map<string, number>;
}

/** More than a browser takes at once; `yunhe resource import` has no limit. */
export const MAX_FILE_BYTES = 16 * 1024 * 1024;

export function formatOf(fileName: string): Format {
  return /\.csv$/i.test(fileName) ? "csv" : "yaml";
}

/** JSON type of an attribute of a type of resource, "" if it is not known. */
export type Kinds = (type: string, attribute: string) => string;

/** Kinds as the schemas of the types have them. */
export function kindsOf(types: readonly ResourceType[]): Kinds {
  const all = new Map(
    types.map((t) => {
      const schema: unknown = JSON.parse(t.schema || "{}");
      return [t.type, isObject(schema) && isObject(schema.properties) ? schema.properties : {}];
    }),
  );
  return (type, attribute) => {
    const property = all.get(type)?.[attribute];
    return isObject(property) && typeof property.type === "string" ? property.type : "";
  };
}

/** Members that are texts, in the order they are written. */
const TEXTS = [
  ["resource_id", "resourceId"],
  ["type", "type"],
  ["name", "name"],
  ["parent_id", "parentId"],
  ["platform_id", "platformId"],
  ["ai_center_id", "aiCenterId"],
  ["tenant_id", "tenantId"],
  ["region", "region"],
  ["service_provider", "serviceProvider"],
] as const;
const OTHERS = ["state", "labels", "attributes", "version"];
// Set by the platform; read over, so that what was listed can be imported.
const OUTPUT = new Set(["created_at", "createdAt", "updated_at", "updatedAt", "children", "identifier"]);
const NAMES = new Map<string, string>([
  ...TEXTS.flatMap(([name, json]): [string, string][] => [
    [name, name],
    [json, name],
  ]),
  ...OTHERS.map((name): [string, string] => [name, name]),
]);
export const COLUMNS = [...TEXTS.map(([name]) => name), "state", "labels"] as const;

const STATES = {
  registered: ResourceState.REGISTERED,
  available: ResourceState.AVAILABLE,
  unavailable: ResourceState.UNAVAILABLE,
  maintenance: ResourceState.MAINTENANCE,
  retired: ResourceState.RETIRED,
} as const;
export const STATE_NAMES = Object.keys(STATES) as (keyof typeof STATES)[];

/** "available"; "" if it is none. */
export function resourceStateName(state: ResourceState): keyof typeof STATES | "" {
  return STATE_NAMES.find((name) => STATES[name] === state) ?? "";
}

export function resourceStateOf(name: string): ResourceState {
  const short = name.toLowerCase().replace(/^resource_state_/, "");
  return short in STATES ? STATES[short as keyof typeof STATES] : ResourceState.UNSPECIFIED;
}

const MAX_DEPTH = 32;
const clip = (text: string) => (text.length > 64 ? `${text.slice(0, 64)}…` : text);

/** The line of a field as the platform names it, or of what is around it. */
export function lineOf(item: Item, field: string): number {
  for (let at = field; at !== ""; at = at.replace(/(^|[.[])[^.[]*$/, "")) {
    const line = item.lines.get(at);
    if (line !== undefined) return line;
  }
  return item.line;
}

export function readFile(format: Format, text: string, kinds: Kinds): Item[] {
  const items = format === "csv" ? readCSV(text.replace(/^\uFEFF/, ""), kinds) : readYAML(text.replace(/^\uFEFF/, ""));
  for (const item of items) {
    if (item.problems.length === 0 && item.resource.resourceId === "")
      item.problems.push({ line: item.line, field: "resource_id", code: "noId", got: "" });
  }
  return items;
}

function newItem(line: number): Item {
  return { line, resource: { resourceId: "" }, problems: [], lines: new Map() };
}

/* YAML: a list of resources, an object whose "resources" is that list, or one document for each. */

function readYAML(text: string): Item[] {
  const lines = new LineCounter();
  const items: Item[] = [];
  const at = (node: Node | null | undefined) => (node?.range ? lines.linePos(node.range[0]).line : 1);
  // Members given twice are found here, with their lines.
  const documents = parseAllDocuments(text, { lineCounter: lines, uniqueKeys: false, prettyErrors: false });
  for (const document of Array.isArray(documents) ? documents : []) {
    const error = document.errors[0];
    if (error) {
      const item = newItem(lines.linePos(error.pos[0]).line || 1);
      item.problems.push({ line: item.line, field: "", code: "syntax", got: error.message });
      items.push(item);
      continue;
    }
    const root = document.contents;
    if (root === null) continue;
    const list = isMap(root) ? (root.get("resources") as unknown) : undefined;
    const nodes = isSeq(root) ? root.items : isSeq(list) ? list.items : [root];
    for (const node of nodes) items.push(yamlItem(node as Node, at));
  }
  return items;
}

function yamlItem(node: Node, at: (node: Node) => number): Item {
  const item = newItem(at(node));
  const problem = (line: number, field: string, code: ProblemCode, got = "") =>
    item.problems.push({ line, field, code, got: clip(got) });
  if (!isMap(node)) {
    problem(item.line, "", "notResource");
    return item;
  }
  const value = (from: unknown, field: string, depth: number): unknown => {
    const v = from as Node;
    item.lines.set(field, at(v));
    if (depth > MAX_DEPTH) problem(at(v), field, "deep");
    else if (isAlias(v)) problem(at(v), field, "alias");
    else if (isSeq(v)) return v.items.map((x, i) => value(x, `${field}[${i}]`, depth + 1));
    else if (isMap(v)) return members(v, field, (x, f) => value(x, f, depth + 1));
    else if (isScalar(v)) {
      if (typeof v.value !== "number" && typeof v.value !== "bigint") return v.value ?? null;
      if (Number.isFinite(Number(v.value))) return Number(v.value);
      problem(at(v), field, "wantNumber", String(v.source));
    }
    return null;
  };
  const members = (map: Node, field: string, read: (v: unknown, field: string) => unknown) => {
    const out: Record<string, unknown> = {};
    if (!isMap(map)) {
      problem(at(map), field, "wantObject");
      return out;
    }
    for (const { key, value: v } of map.items) {
      const name = isScalar(key) ? String(key.source ?? key.value) : "";
      const path = `${field}.${name}`;
      if (name in out) problem(at(key as Node), path, "twice");
      out[name] = v === null ? null : read(v, path);
    }
    return out;
  };
  const plain = (v: unknown, field: string): string => {
    if (isScalar(v))
      return v.value === null && !v.source ? "" : typeof v.value === "string" ? v.value : String(v.source);
    if (v !== null) problem(at(v as Node), field, "wantText");
    return "";
  };
  const seen = new Set<string>();
  for (const { key, value: v } of node.items) {
    const given = isScalar(key) ? String(key.value) : "";
    if (OUTPUT.has(given)) continue;
    const name = NAMES.get(given);
    const line = at(key as Node);
    if (name === undefined) {
      problem(line, clip(given), "unknownMember");
      continue;
    }
    if (seen.has(name)) problem(line, name, "twice");
    seen.add(name);
    item.lines.set(name, line);
    if (v === null) continue;
    if (name === "labels")
      item.resource.labels = members(v as Node, name, (x, f) => {
        item.lines.set(f, at(x as Node));
        return plain(x, f);
      }) as Record<string, string>;
    else if (name === "attributes")
      item.resource.attributes = members(v as Node, name, (x, f) => value(x, f, 1)) as never;
    else setMember(item, name, plain(v, name), at(v as Node));
  }
  return item;
}

function setMember(item: Item, name: string, text: string, line: number): void {
  if (name === "state") {
    const state = resourceStateOf(text);
    if (text !== "" && state === ResourceState.UNSPECIFIED)
      item.problems.push({ line, field: name, code: "wantState", got: clip(text) });
    item.resource.state = state;
    return;
  }
  if (name === "version") {
    if (/^\d{1,18}$/.test(text)) item.resource.version = BigInt(text);
    else if (text !== "") item.problems.push({ line, field: name, code: "wantInteger", got: clip(text) });
    return;
  }
  const json = TEXTS.find(([n]) => n === name)?.[1];
  if (json) item.resource[json] = text;
}

/* CSV */

/** A row of a CSV file with the lines its cells begin on. */
export interface Row {
  line: number;
  cells: string[];
  lines: number[];
  /** A quote that does not belong there, or is not closed. */
  broken: boolean;
}

/** Rows of a CSV file (RFC 4180); lines that are empty are no rows. */
export function* rowsOf(text: string): Generator<Row> {
  let line = 1;
  for (let i = 0; i < text.length; ) {
    const row: Row = { line, cells: [], lines: [], broken: false };
    for (let more = true; more; ) {
      row.lines.push(line);
      let cell = "";
      if (text[i] === '"') {
        i++;
        for (;;) {
          const end = text.indexOf('"', i);
          const part = text.slice(i, end < 0 ? undefined : end);
          line += part.split("\n").length - 1;
          cell += part;
          if (end < 0) {
            row.broken = true;
            i = text.length;
            break;
          }
          i = end + 1;
          if (text[i] !== '"') break;
          cell += '"';
          i++;
        }
      }
      const rest = /[^,\r\n]*/y;
      rest.lastIndex = i;
      const plain = rest.exec(text)?.[0] ?? "";
      if (plain.includes('"') || (plain !== "" && cell !== "" && text[i - 1] === '"')) row.broken = true;
      i += plain.length;
      row.cells.push(cell + plain);
      more = text[i] === ",";
      if (more) i++;
    }
    if (text[i] === "\r") i++;
    if (text[i] === "\n") i++;
    line++;
    if (row.cells.length > 1 || row.cells[0] !== "") yield row;
  }
}

function readCSV(text: string, kinds: Kinds): Item[] {
  const rows = rowsOf(text);
  const first = rows.next();
  if (first.done) return [];
  const columns = first.value.cells.map((c) => c.trim());
  const head = newItem(first.value.line);
  const known = (name: string) => NAMES.has(name) || OUTPUT.has(name) || /^(labels|attributes)\../.test(name);
  columns.forEach((name, i) => {
    const at = (code: ProblemCode) => head.problems.push({ line: head.line, field: clip(name), code, got: "" });
    if (!known(name)) at("unknownColumn");
    else if (columns.indexOf(name) !== i) at("twice");
  });
  for (const name of ["resource_id", "type"]) {
    if (!columns.some((c) => NAMES.get(c) === name))
      head.problems.push({ line: head.line, field: name, code: "missingColumn", got: "" });
  }
  if (head.problems.length > 0) return [head];
  const type = columns.indexOf("type");
  const items: Item[] = [];
  for (const row of rows) {
    const item = newItem(row.line);
    items.push(item);
    if (row.broken) item.problems.push({ line: row.line, field: "", code: "syntax", got: "CSV" });
    else if (row.cells.length !== columns.length)
      item.problems.push({
        line: row.line,
        field: "",
        code: "columns",
        got: `${row.cells.length} ≠ ${columns.length}`,
      });
    else
      row.cells.forEach((cell, i) => {
        if (cell !== "") setCell(item, columns[i] ?? "", cell, row.lines[i] ?? row.line, row.cells[type] ?? "", kinds);
      });
  }
  return items;
}

function setCell(item: Item, column: string, cell: string, line: number, type: string, kinds: Kinds): void {
  if (OUTPUT.has(column)) return;
  const [group, ...parts] = column.split(".");
  const name = parts.join(".");
  item.lines.set(NAMES.get(column) ?? column, line);
  const wrong = (code: ProblemCode, field = column) =>
    item.problems.push({ line, field, code, got: code === "twice" ? "" : clip(cell) });
  const put = (to: Record<string, unknown>, key: string, value: unknown) => {
    if (key in to) wrong("twice", `${group}.${key}`);
    to[key] = value;
  };
  if (group === "labels" || group === "attributes") {
    item.resource[group] ??= {};
    const to = item.resource[group] as Record<string, unknown>;
    if (name === "") {
      const all = json(cell);
      if (!isObject(all) || (group === "labels" && Object.values(all).some((v) => typeof v !== "string")))
        wrong("wantObject");
      else for (const [k, v] of Object.entries(all)) put(to, k, v);
      return;
    }
    const { value, code } = group === "labels" ? { value: cell } : typed(kinds(type.trim(), name), cell);
    if (code) wrong(code);
    else put(to, name, value);
    return;
  }
  setMember(item, NAMES.get(column) ?? column, cell, line);
}

function json(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

// Which attribute is a number follows from the schema, not from how it looks: the model "4090" stays text.
function typed(kind: string, cell: string): { value?: unknown; code?: ProblemCode } {
  switch (kind) {
    case "number":
    case "integer": {
      const n = Number(cell);
      return cell.trim() !== "" && Number.isFinite(n) ? { value: n } : { code: "wantNumber" };
    }
    case "boolean":
      return /^(true|false)$/i.test(cell.trim())
        ? { value: cell.trim().toLowerCase() === "true" }
        : { code: "wantBoolean" };
    case "array": {
      const v = json(cell);
      return Array.isArray(v) ? { value: v } : { code: "wantList" };
    }
    case "object": {
      const v = json(cell);
      return isObject(v) ? { value: v } : { code: "wantObject" };
    }
    default:
      return { value: cell };
  }
}

/* Writing */

/** What a file begins with. */
export function headOf(format: Format, attributes: readonly string[]): string {
  if (format === "yaml") return "";
  return `${[...COLUMNS, "attributes", ...attributes.map((a) => `attributes.${a}`)].map(quoted).join(",")}\n`;
}

/** A resource as the file has it. */
export function writeResource(format: Format, r: Resource, attributes: readonly string[]): string {
  const texts = TEXTS.map(([name, json]): [string, string] => [name, r[json]]);
  const state = resourceStateName(r.state);
  if (format === "yaml") {
    const out: Record<string, unknown> = Object.fromEntries(texts.filter(([, v]) => v !== ""));
    if (state) out.state = state;
    if (Object.keys(r.labels).length > 0) out.labels = r.labels;
    if (r.attributes && Object.keys(r.attributes).length > 0) out.attributes = r.attributes;
    return stringify([out], { lineWidth: 0 });
  }
  const has = r.attributes ?? {};
  const rest = Object.fromEntries(Object.entries(has).filter(([name]) => !attributes.includes(name)));
  const object = (o: object) => (Object.keys(o).length > 0 ? JSON.stringify(o) : "");
  const cells = [
    ...texts.map(([, v]) => v),
    state,
    object(r.labels),
    object(rest),
    ...attributes.map((a) => {
      const v = has[a];
      return v === undefined ? "" : typeof v === "string" ? v : JSON.stringify(v);
    }),
  ];
  return `${cells.map(quoted).join(",")}\n`;
}

const quoted = (cell: string) => (/[",\r\n]|^\s|\s$/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
