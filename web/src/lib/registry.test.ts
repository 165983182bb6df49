import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ResourceState, ResourceTypeSchema } from "../gen/yunhe/registry/v1/resource_pb";
import {
  attributeLines,
  attributesOf,
  labelsOf,
  labelTexts,
  objectOf,
  resourceField,
  resourceFilterOf,
  resourcePath,
  resourceTone,
} from "./registry";

const types = [
  create(ResourceTypeSchema, {
    type: "storage",
    schema: JSON.stringify({
      type: "object",
      properties: {
        storage_type: { type: "string", enum: ["object", "file"] },
        capacity_bytes: { type: "integer" },
        iops: { type: "integer" },
        chips: { type: "array", items: { type: "object", properties: { chip_model: { type: "string" } } } },
      },
      required: ["storage_type"],
    }),
  }),
];

test("attributes are read line by line", () => {
  const schema = attributesOf(types, "storage");
  const lines = attributeLines(schema, {
    extra: { a: 1 },
    iops: 120000,
    capacity_bytes: 1536,
    storage_type: "file",
    chips: [{ chip_model: "4090" }],
  });
  expect(lines.map((l) => `${l.path}: ${l.text}`)).toEqual([
    "storage_type: file",
    "capacity_bytes: 1.5 KiB",
    "iops: 120,000",
    "chips: chip_model: 4090",
    'extra: {"a":1}',
  ]);
  const offer = [
    { kind: "cpu", scale: 20000, unit: "cores" },
    { kind: "memory", scale: 2 ** 30, unit: "bytes" },
  ];
  const schemaOfCenter = attributesOf(
    [
      create(ResourceTypeSchema, {
        type: "center",
        schema: JSON.stringify({
          type: "object",
          properties: {
            available_resources: {
              type: "array",
              items: { type: "object", properties: { kind: { type: "string" }, scale: { type: "number" } } },
            },
          },
        }),
      }),
    ],
    "center",
  );
  expect(attributeLines(schemaOfCenter, { available_resources: offer }).map((l) => l.text)).toEqual([
    "cpu 20,000 cores",
    "memory 1 GiB",
  ]);
  expect(attributesOf(types, "nothing")).toBeUndefined();
  expect(attributeLines(undefined, { a: "b" })).toEqual([{ path: "a", text: "b" }]);
});

test("a violation finds the field of its attribute", () => {
  const schema = attributesOf(types, "storage");
  expect(resourceField(schema, ["attributes", "storageType"])).toEqual(["attributes", "storage_type"]);
  expect(resourceField(schema, ["attributes", "chips", 1, "chipModel"])).toEqual([
    "attributes",
    "chips",
    1,
    "chip_model",
  ]);
  expect(resourceField(schema, ["attributes", "no", "such"])).toEqual(["attributes", "no", "such"]);
  expect(resourceField(schema, ["serviceProvider"])).toEqual(["serviceProvider"]);
});

test("labels are typed as name=value", () => {
  expect(labelsOf(["rack=7", "hot", "x=a=b"])).toEqual({ rack: "7", hot: "", x: "a=b" });
  expect(labelTexts({ rack: "7", hot: "" })).toEqual(["hot", "rack=7"]);
  expect(labelsOf(undefined)).toEqual({});
});

test("names, places, tones", () => {
  expect(objectOf("gpu-1")).toBe("resource:gpu-1");
  expect(objectOf("node:gz:n1")).toBe("node:gz:n1");
  expect(resourcePath("node:gz:n 1")).toBe("/resources/node%3Agz%3An%201");
  expect(resourceTone(ResourceState.RETIRED)).toBe("neutral");
  const filter = resourceFilterOf(new URLSearchParams("type=cloud&label=a&label=b=1&state=available"));
  expect(filter).toMatchObject({ type: "cloud", labels: ["a", "b=1"], state: "available", region: "" });
});
