import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ChangeOp, ObjectKind, ObjectTagSchema, Source, ValueType } from "../gen/yunhe/tags/v1/tags_pb";
import { changeOf, changeText, kindName, kindOf, OBJECT_KINDS, objectPath, originOf, tagTitle, valuesOf } from "./tags";

test("changes are typed as on the command line", () => {
  const set = (key: string, value: string) => ({ key, value, op: ChangeOp.SET });
  expect(changeOf("green=true")).toEqual(set("green", "true"));
  expect(changeOf(" a/b.c-d=x=y- ")).toEqual(set("a/b.c-d", "x=y-"));
  expect(changeOf("green=")).toEqual(set("green", ""));
  expect(changeOf("green-")).toEqual({ key: "green", value: "", op: ChangeOp.CLEAR });
  expect(changeOf("gpu-model-")).toEqual({ key: "gpu-model", value: "", op: ChangeOp.CLEAR });
  expect(changeOf("green!")).toEqual({ key: "green", value: "", op: ChangeOp.BLOCK });
  for (const none of ["", "green", "=x", "Green=1", "1=2", "!"]) expect(changeOf(none), none).toBeUndefined();
  for (const text of ["a=b", "a-", "a!"]) expect(changeText(changeOf(text) ?? set("", ""))).toBe(text);
});

test("objects lead to their pages", () => {
  expect(objectPath("center:gz 1")).toBe("/centers/gz%201");
  expect(objectPath("node:gz:n1")).toBe("/resources/node%3Agz%3An1");
  expect(objectPath("resource:gpu")).toBe("/resources/gpu");
  expect(objectPath("platform")).toBe("");
});

test("names of kinds go both ways", () => {
  for (const kind of OBJECT_KINDS) expect(kindOf(kindName(kind))).toBe(kind);
  expect(kindOf("no")).toBe(ObjectKind.CENTER);
});

test("what values there are, and where one comes from", () => {
  expect(valuesOf({ allowedValues: [], valueType: ValueType.BOOLEAN })).toEqual(["true", "false"]);
  expect(valuesOf({ allowedValues: ["a"], valueType: ValueType.TEXT })).toEqual(["a"]);
  expect(valuesOf({ allowedValues: [], valueType: ValueType.NUMBER })).toBeUndefined();
  const tag = (rest: object) => create(ObjectTagSchema, { from: "center:a", ...rest });
  expect(originOf("center:a", tag({ source: Source.RULE }))).toBe("rule");
  expect(originOf("node:a:n", tag({ source: Source.PERSON }))).toBe("inherited");
  expect(originOf("center:a", tag({ source: Source.PERSON }))).toBe("person");
  expect(originOf("center:a", tag({ blocked: true }))).toBe("blocked");
  expect(tagTitle({ key: "k", title: "T", titleZh: "" }, "zh")).toBe("T");
  expect(tagTitle({ key: "k", title: "", titleZh: "标" }, "en")).toBe("k");
});
