// A plug-in's configuration as a form: its JSON Schema becomes fields, what
// fields hold becomes the configuration. A part of a schema that no field can
// show is edited as JSON, so that every configuration can be written.

/** How a field is edited. */
export type Kind =
  | "text"
  /** A masked line. */
  | "secret"
  /** Masked lines: a kubeconfig, a private key. */
  | "secretText"
  | "integer"
  | "number"
  | "boolean"
  | "choice"
  /** A list of words. */
  | "words"
  /** Names with values. */
  | "map"
  /** A list of anything but words. */
  | "list"
  /** Named fields. */
  | "group"
  | "json";

export interface Field {
  /** Its name in the configuration; "" for what has none, as an item of a list. */
  key: string;
  kind: Kind;
  title: string;
  help: string;
  required: boolean;
  placeholder: string;
  initial?: unknown;
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  pattern?: string;
  /** Of a choice. */
  choices: (string | number)[];
  /** Of a group: required fields first. */
  fields: Field[];
  /** Of a list: its items; of a map: its values. */
  item?: Field;
}

type Schema = Record<string, unknown>;

// Deeper than any configuration; a schema that contains itself ends here.
const MAX_DEPTH = 8;

/** The configuration a schema describes, as a group. Throws if the text is not a schema. */
export function parseSchema(text: string): Field {
  const root: unknown = JSON.parse(text);
  if (!isObject(root)) throw new Error("the schema is not a JSON object");
  const field = fieldOf("", root, false, root, 0);
  return field.kind === "group" ? field : { ...field, kind: "json" };
}

function fieldOf(key: string, given: unknown, required: boolean, root: Schema, depth: number): Field {
  const schema = resolve(given, root);
  const field: Field = {
    key,
    kind: "json",
    title: text(schema.title) || titleOf(key),
    help: text(schema.description),
    required,
    placeholder: exampleOf(schema),
    initial: schema.default,
    minimum: lowest(schema),
    maximum: highest(schema),
    maxLength: numeric(schema.maxLength),
    pattern: text(schema.pattern) || undefined,
    choices: [],
    fields: [],
  };
  if (depth > MAX_DEPTH) return field;
  const choices = Array.isArray(schema.enum) ? schema.enum.filter((c) => c !== null) : [];
  if (choices.length > 0) {
    return choices.every((c) => typeof c === "string" || typeof c === "number")
      ? { ...field, kind: "choice", choices }
      : field;
  }
  switch (typeOf(schema)) {
    case "string":
      return { ...field, kind: textKind(key, schema) };
    case "integer":
      return { ...field, kind: "integer" };
    case "number":
      return { ...field, kind: "number" };
    case "boolean":
      return { ...field, kind: "boolean" };
    case "array": {
      if (!isObject(schema.items)) return field;
      const item = fieldOf("", schema.items, true, root, depth + 1);
      if (item.kind === "json") return field;
      return item.kind === "text" ? { ...field, kind: "words", item } : { ...field, kind: "list", item };
    }
    case "object": {
      const properties = isObject(schema.properties) ? schema.properties : {};
      const names = Object.keys(properties);
      if (names.length > 0) {
        const wanted = new Set(Array.isArray(schema.required) ? schema.required : []);
        const fields = names.map((name) => fieldOf(name, properties[name], wanted.has(name), root, depth + 1));
        return {
          ...field,
          kind: "group",
          fields: [...fields.filter((f) => f.required), ...fields.filter((f) => !f.required)],
        };
      }
      if (!isObject(schema.additionalProperties))
        return schema.additionalProperties === false && depth === 0 ? { ...field, kind: "group" } : field;
      const item = fieldOf("", schema.additionalProperties, true, root, depth + 1);
      if (item.kind === "json") return field;
      return {
        ...field,
        kind: "map",
        item: item.kind === "text" && isSecret(key) ? { ...item, kind: "secret" } : item,
      };
    }
    default:
      return field;
  }
}

// Follows references within the schema.
function resolve(given: unknown, root: Schema): Schema {
  let schema = isObject(given) ? given : {};
  for (let hops = 0; typeof schema.$ref === "string" && hops < MAX_DEPTH; hops++) {
    const { $ref, ...own } = schema;
    let at: unknown = root;
    for (const part of String($ref).replace(/^#\/?/, "").split("/").filter(Boolean)) {
      at = isObject(at) ? at[part.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
    }
    schema = isObject(at) ? { ...at, ...own } : own;
  }
  return schema;
}

// The one type besides null, "" if there are several or none.
function typeOf(schema: Schema): string {
  const types = (Array.isArray(schema.type) ? schema.type : [schema.type]).filter((t) => t !== "null");
  return types.length === 1 && typeof types[0] === "string" ? types[0] : "";
}

function textKind(key: string, schema: Schema): Kind {
  if (schema.format === "password" || schema.writeOnly === true || isSecret(key)) {
    return LONG_SECRET.test(key) ? "secretText" : "secret";
  }
  return "text";
}

const LONG_SECRET = /(^|_)(kubeconfig|private_?key|pem|credentials)$/i;
const SECRET = /(^|_)(token|password|passwd|passphrase|secret|jwt|credential|(access|api|auth|secret)_?key)s?$/i;

/** Whether a field of this name holds what nobody should read over a shoulder. */
export function isSecret(key: string): boolean {
  const name = key.replace(/([a-z0-9])([A-Z])/g, "$1_$2").replaceAll("-", "_");
  return LONG_SECRET.test(name) || SECRET.test(name);
}

const ACRONYMS = new Set([
  "api",
  "ca",
  "cpu",
  "dns",
  "gpu",
  "gres",
  "http",
  "https",
  "id",
  "ip",
  "jwt",
  "mlu",
  "npu",
  "qos",
  "ssh",
  "tls",
  "url",
]);

/** A field's name as words: "api_version" is "API version". */
export function titleOf(key: string): string {
  const words = key
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .split(/[\s_-]+/)
    .filter(Boolean)
    .map((w) => (ACRONYMS.has(w.toLowerCase()) ? w.toUpperCase() : w.toLowerCase()));
  const title = words.join(" ");
  return title.charAt(0).toUpperCase() + title.slice(1);
}

function exampleOf(schema: Schema): string {
  const example = Array.isArray(schema.examples) ? schema.examples[0] : undefined;
  return typeof example === "string" || typeof example === "number" ? String(example) : "";
}

function lowest(schema: Schema): number | undefined {
  const over = numeric(schema.exclusiveMinimum);
  return over !== undefined && typeOf(schema) === "integer" ? over + 1 : numeric(schema.minimum);
}

function highest(schema: Schema): number | undefined {
  const under = numeric(schema.exclusiveMaximum);
  return under !== undefined && typeOf(schema) === "integer" ? under - 1 : numeric(schema.maximum);
}

const numeric = (value: unknown) => (typeof value === "number" ? value : undefined);
const text = (value: unknown) => (typeof value === "string" ? value : "");

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A row of a map in a form. */
export interface Row {
  name?: string;
  value?: unknown;
}

/** What the form holds for a value of the configuration, or for the field's default. */
export function toForm(field: Field, value: unknown = field.initial): unknown {
  switch (field.kind) {
    case "group": {
      const from = isObject(value) ? value : {};
      return Object.fromEntries(
        field.fields.map((f) => [f.key, toForm(f, from[f.key])]).filter(([, v]) => v !== undefined),
      );
    }
    case "list":
      return Array.isArray(value) && field.item ? value.map((v) => toForm(field.item as Field, v)) : undefined;
    case "map":
      return isObject(value) && field.item
        ? Object.entries(value).map(([name, v]): Row => ({ name, value: toForm(field.item as Field, v) }))
        : undefined;
    case "json":
      return value === undefined ? undefined : JSON.stringify(value, null, 2);
    default:
      return value ?? undefined;
  }
}

/**
 * The value of the configuration for what the form holds; undefined for what
 * was left empty, which is then not part of the configuration. Throws if JSON
 * that was typed is none.
 */
export function toValue(field: Field, held: unknown): unknown {
  switch (field.kind) {
    case "group": {
      const from = isObject(held) ? held : {};
      const entries = field.fields
        .map((f) => [f.key, toValue(f, from[f.key])] as const)
        .filter(([, v]) => v !== undefined);
      return entries.length > 0 || field.required ? Object.fromEntries(entries) : undefined;
    }
    case "list": {
      const items = (Array.isArray(held) ? held : [])
        .map((v) => toValue(field.item as Field, v))
        .filter((v) => v !== undefined);
      return items.length > 0 || field.required ? items : undefined;
    }
    case "words":
      return Array.isArray(held) && (held.length > 0 || field.required) ? held : field.required ? [] : undefined;
    case "map": {
      const rows = (Array.isArray(held) ? held : []) as Row[];
      const entries = rows
        .filter((r) => r.name?.trim())
        .map((r) => [r.name?.trim() ?? "", mapValue(field.item as Field, r.value)] as const);
      return entries.length > 0 || field.required ? Object.fromEntries(entries) : undefined;
    }
    case "json": {
      const typed = typeof held === "string" ? held.trim() : "";
      return typed === "" ? undefined : (JSON.parse(typed) as unknown);
    }
    case "text":
    case "secret":
    case "secretText":
      return typeof held === "string" && held !== "" ? held : undefined;
    default:
      return held ?? undefined;
  }
}

// A name that is there has a value: what was left empty is the empty one.
function mapValue(item: Field, held: unknown): unknown {
  const value = toValue(item, held);
  if (value !== undefined) return value;
  return item.kind === "text" || item.kind === "secret" || item.kind === "secretText"
    ? ""
    : item.kind === "group"
      ? {}
      : value;
}

/** The configuration a form's values stand for. */
export function toConfig(field: Field, held: unknown): unknown {
  return toValue(field, held) ?? {};
}

/** A line of a configuration as it is shown: its place, its value, and whether that is kept from view. */
export interface Line {
  path: string;
  /** The fields on the way, with the names of lists' items and maps' rows between them. */
  field: Field;
  value: string;
  secret: boolean;
}

/** What a configuration sets, in the order of the form; nothing of a secret but that it is set. */
export function linesOf(field: Field, value: unknown, path = ""): Line[] {
  if (value === undefined) return [];
  const at = (name: string) => (path ? `${path}.${name}` : name);
  switch (field.kind) {
    case "group":
      return isObject(value) ? field.fields.flatMap((f) => linesOf(f, value[f.key], at(f.key))) : [];
    case "map":
      return isObject(value)
        ? Object.entries(value).flatMap(([name, v]) => linesOf({ ...(field.item as Field), key: name }, v, at(name)))
        : [];
    case "list":
      return Array.isArray(value) ? value.flatMap((v, i) => linesOf(field.item as Field, v, `${path}[${i}]`)) : [];
    case "secret":
    case "secretText":
      return [{ path, field, value: "", secret: true }];
    case "words":
      return [{ path, field, value: Array.isArray(value) ? value.join(", ") : String(value), secret: false }];
    case "json":
      return [{ path, field, value: JSON.stringify(value), secret: false }];
    default:
      return [{ path, field, value: String(value), secret: false }];
  }
}

/** Whether a form holds anything for a field. */
export function isFilled(field: Field, held: unknown): boolean {
  try {
    const value = toValue({ ...field, required: false }, held);
    return value !== undefined && value !== false;
  } catch {
    return true; // JSON that is none is something, too
  }
}
