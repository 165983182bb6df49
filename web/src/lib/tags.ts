// Tags as the console shows them.
import {
  ChangeOp,
  ObjectKind,
  type ObjectTag,
  RuleMode,
  Setter,
  Source,
  type Tag,
  ValueType,
} from "../gen/yunhe/tags/v1/tags_pb";
import type { Tone } from "./states";

export const OBJECT_KINDS = [
  ObjectKind.PLATFORM,
  ObjectKind.CENTER,
  ObjectKind.NODE,
  ObjectKind.RESOURCE,
  ObjectKind.SPEC,
  ObjectKind.IMAGE,
] as const;

const KINDS = {
  [ObjectKind.UNSPECIFIED]: "any",
  [ObjectKind.PLATFORM]: "platform",
  [ObjectKind.CENTER]: "center",
  [ObjectKind.NODE]: "node",
  [ObjectKind.RESOURCE]: "resource",
  [ObjectKind.SPEC]: "spec",
  [ObjectKind.IMAGE]: "image",
} as const;
export const kindName = (kind: ObjectKind) => KINDS[kind] ?? "any";
/** The kind of that name, CENTER if there is none. */
export const kindOf = (name: string) => OBJECT_KINDS.find((k) => KINDS[k] === name) ?? ObjectKind.CENTER;

const TYPES = {
  [ValueType.UNSPECIFIED]: "text",
  [ValueType.TEXT]: "text",
  [ValueType.BOOLEAN]: "boolean",
  [ValueType.NUMBER]: "number",
} as const;
export const valueTypeName = (type: ValueType) => TYPES[type] ?? "text";

const SETTERS = {
  [Setter.UNSPECIFIED]: "operators",
  [Setter.OPERATORS]: "operators",
  [Setter.ADMINISTRATORS]: "administrators",
  [Setter.RULES]: "rules",
} as const;
export const setterName = (setter: Setter) => SETTERS[setter] ?? "operators";

const MODES = {
  [RuleMode.UNSPECIFIED]: "automatic",
  [RuleMode.AUTOMATIC]: "automatic",
  [RuleMode.RECOMMEND]: "recommend",
  [RuleMode.OFF]: "off",
} as const;
export const modeName = (mode: RuleMode) => MODES[mode] ?? "automatic";

/** "resource:gpu-1" shows on the registry's page, a center on its own, and so on; "" if nowhere. */
export function objectPath(object: string): string {
  const [kind, ...rest] = object.split(":");
  const id = rest.join(":");
  switch (kind) {
    case "center":
      return `/centers/${encodeURIComponent(id)}`;
    case "node":
      return `/resources/${encodeURIComponent(object)}`;
    case "resource":
      return `/resources/${encodeURIComponent(id)}`;
    case "spec":
      return "/specs";
    case "image":
      return "/images";
    default:
      return "";
  }
}

export interface Change {
  key: string;
  value: string;
  op: ChangeOp;
}

/**
 * Changes as they are typed: "key=value" sets, "key-" takes back, "key!" says
 * that there is no value. Undefined for what is none of these.
 */
export function changeOf(text: string): Change | undefined {
  const match = /^([a-z][a-z0-9._/-]*?)(?:=(.*)|(-)|(!))$/.exec(text.trim());
  if (!match) return undefined;
  const [, key = "", value, clear, block] = match;
  if (clear) return { key, value: "", op: ChangeOp.CLEAR };
  if (block) return { key, value: "", op: ChangeOp.BLOCK };
  return { key, value: value ?? "", op: ChangeOp.SET };
}

export function changeText(c: Change): string {
  return c.op === ChangeOp.CLEAR ? `${c.key}-` : c.op === ChangeOp.BLOCK ? `${c.key}!` : `${c.key}=${c.value}`;
}

/** The values a tag may have, if they are few; undefined if any of its type. */
export function valuesOf(tag: Pick<Tag, "allowedValues" | "valueType"> | undefined): string[] | undefined {
  if (!tag) return undefined;
  if (tag.allowedValues.length > 0) return tag.allowedValues;
  return tag.valueType === ValueType.BOOLEAN ? ["true", "false"] : undefined;
}

/** In the viewer's language, the key if it has no title. */
export function tagTitle(x: { key: string; title: string; titleZh: string }, language: string): string {
  return (language === "zh" ? x.titleZh || x.title : x.title) || x.key;
}

/** Where a value comes from, for the texts of tag.origins. */
export function originOf(object: string, x: ObjectTag): "blocked" | "inherited" | "rule" | "person" {
  if (x.blocked) return "blocked";
  if (x.from !== object && x.from !== "") return "inherited";
  return x.source === Source.RULE ? "rule" : "person";
}

/** How what became of a shared thing looks. */
export function adoptedTone(outcome: string): Tone {
  switch (outcome) {
    case "created":
    case "replaced":
      return "good";
    case "different":
      return "warn";
    case "refused":
      return "bad";
    default:
      return "neutral";
  }
}
