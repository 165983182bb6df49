import { describe, expect, test } from "vitest";
import { type Field, isFilled, isSecret, linesOf, parseSchema, titleOf, toConfig, toForm } from "./schema";

// As sdk/adapter.Schema writes it for Go structs, with what other languages add.
const SCHEMA = JSON.stringify({
  type: "object",
  properties: {
    region: { type: "string", description: "where it is" },
    token: { type: "string" },
    kubeconfig: { type: "string" },
    url: { type: "string", description: "address", maxLength: 256, pattern: "^https?://", examples: ["https://c"] },
    retries: { type: "integer", minimum: 0, exclusiveMaximum: 10, default: 3 },
    ratio: { type: "number" },
    tls: { type: "boolean" },
    mode: { enum: ["a", "b", null] },
    prices: { type: "object", additionalProperties: { type: "integer" } },
    setup: { type: ["null", "array"], items: { type: "string" } },
    partitions: {
      type: ["null", "array"],
      items: {
        type: "object",
        properties: {
          price: { type: "integer" },
          name: { type: "string" },
          quantity: { type: "object", additionalProperties: { type: "string" } },
        },
        required: ["name"],
        additionalProperties: false,
      },
    },
    models: { type: "object", additionalProperties: { $ref: "#/$defs/model" } },
    proxy: { $ref: "#/$defs/proxy", description: "a way out" },
    odd: { oneOf: [{ type: "string" }, { type: "integer" }] },
  },
  required: ["url"],
  additionalProperties: false,
  $defs: {
    model: { type: "object", properties: { vendor: { type: "string" } } },
    proxy: {
      type: "object",
      properties: { host: { type: "string" }, password: { type: "string" } },
      required: ["host"],
    },
  },
});

const root = parseSchema(SCHEMA);
const field = (key: string) => root.fields.find((f) => f.key === key) as Field;

describe("parseSchema", () => {
  test("puts what is required first and keeps the order otherwise", () => {
    expect(root.fields.map((f) => f.key).slice(0, 3)).toEqual(["url", "region", "token"]);
    expect(root.fields.filter((f) => f.required).map((f) => f.key)).toEqual(["url"]);
    expect(field("partitions").item?.fields.map((f) => f.key)).toEqual(["name", "price", "quantity"]);
  });

  test("finds out how each is edited", () => {
    const kinds = Object.fromEntries(root.fields.map((f) => [f.key, f.kind]));
    expect(kinds).toEqual({
      url: "text",
      region: "text",
      token: "secret",
      kubeconfig: "secretText",
      retries: "integer",
      ratio: "number",
      tls: "boolean",
      mode: "choice",
      prices: "map",
      setup: "words",
      partitions: "list",
      models: "map",
      proxy: "group",
      odd: "json",
    });
    expect(field("models").item?.kind).toBe("group");
    expect(field("mode").choices).toEqual(["a", "b"]);
  });

  test("keeps limits and words", () => {
    expect(field("retries")).toMatchObject({ minimum: 0, maximum: 9, initial: 3 });
    expect(field("url")).toMatchObject({
      maxLength: 256,
      pattern: "^https?://",
      placeholder: "https://c",
      help: "address",
    });
    expect(field("proxy").help).toBe("a way out");
  });

  test("a schema that contains itself ends", () => {
    const endless = parseSchema(
      JSON.stringify({
        type: "object",
        properties: { next: { $ref: "#" } },
      }),
    );
    let depth = 0;
    for (let f: Field | undefined = endless; f; f = f.fields[0]) depth++;
    expect(depth).toBeLessThan(20);
  });

  test("an object of anything is edited as JSON", () => {
    expect(parseSchema('{"type":"object"}').kind).toBe("json");
    expect(parseSchema('{"type":"object","additionalProperties":false}').kind).toBe("group");
  });

  test("what is no schema is refused", () => {
    expect(() => parseSchema("[]")).toThrow();
    expect(() => parseSchema("no")).toThrow();
  });
});

describe("secrets", () => {
  test.each(["token", "password", "kubeconfig", "api_key", "accessKey", "client-secret", "jwt", "private_key"])(
    "%s is one",
    (key) => expect(isSecret(key)).toBe(true),
  );
  test.each(["token_file", "kubeconfig_file", "secret_name", "key", "keyboard", "monkey", "url"])("%s is none", (key) =>
    expect(isSecret(key)).toBe(false),
  );
  test("a list of names of secrets is none", () => {
    const schema = parseSchema(
      '{"type":"object","properties":{"image_pull_secrets":{"type":"array","items":{"type":"string"}}}}',
    );
    expect(schema.fields[0]?.kind).toBe("words");
  });
  test("a map of secrets hides its values", () => {
    const schema = parseSchema(
      '{"type":"object","properties":{"secrets":{"type":"object","additionalProperties":{"type":"string"}}}}',
    );
    expect(schema.fields[0]?.item?.kind).toBe("secret");
  });
  test("a schema can say so itself", () => {
    const schema = parseSchema(
      '{"type":"object","properties":{"a":{"type":"string","format":"password"},"b":{"type":"string","writeOnly":true}}}',
    );
    expect(schema.fields.map((f) => f.kind)).toEqual(["secret", "secret"]);
  });
});

describe("toConfig", () => {
  test("leaves out what was left empty", () => {
    expect(
      toConfig(root, { url: "https://c", region: "", retries: undefined, prices: [], setup: [], proxy: { host: "" } }),
    ).toEqual({ url: "https://c" });
  });

  test("makes objects of rows and nests groups", () => {
    expect(
      toConfig(root, {
        url: "https://c",
        tls: false,
        retries: 0,
        prices: [{ name: " small ", value: 12 }, { value: 5 }],
        models: [{ name: "h800", value: { vendor: "NVIDIA" } }, { name: "unknown" }],
        partitions: [{ name: "gpu", quantity: [{ name: "cpu", value: "1" }] }],
        proxy: { host: "p", password: "x" },
        odd: "[1, 2]",
      }),
    ).toEqual({
      url: "https://c",
      tls: false,
      retries: 0,
      prices: { small: 12 },
      models: { h800: { vendor: "NVIDIA" }, unknown: {} },
      partitions: [{ name: "gpu", quantity: { cpu: "1" } }],
      proxy: { host: "p", password: "x" },
      odd: [1, 2],
    });
  });

  test("a name without a value has the empty one", () => {
    const schema = parseSchema(
      '{"type":"object","properties":{"labels":{"type":"object","additionalProperties":{"type":"string"}}}}',
    );
    expect(toConfig(schema, { labels: [{ name: "edge" }] })).toEqual({ labels: { edge: "" } });
  });

  test("JSON that is none is refused", () => {
    expect(() => toConfig(root, { odd: "{" })).toThrow();
  });

  test("nothing is an empty configuration", () => expect(toConfig(root, undefined)).toEqual({}));
});

test("defaults are put into the form, and come back", () => {
  expect(toForm(root)).toEqual({ retries: 3, proxy: {} });
  const config = {
    url: "https://c",
    retries: 1,
    prices: { small: 3 },
    partitions: [{ name: "a", quantity: { cpu: "1" } }],
    odd: { x: 1 },
  };
  expect(toConfig(root, toForm(root, config))).toEqual(config);
});

test("lines show everything but secrets", () => {
  const lines = linesOf(root, {
    url: "https://c",
    token: "t0p",
    prices: { small: 3 },
    setup: ["module load cuda", "ulimit -n 10"],
    partitions: [{ name: "gpu" }],
    proxy: { host: "p", password: "hidden" },
    odd: [1],
  });
  expect(lines.map((l) => [l.path, l.value, l.secret])).toEqual([
    ["url", "https://c", false],
    ["token", "", true],
    ["prices.small", "3", false],
    ["setup", "module load cuda, ulimit -n 10", false],
    ["partitions[0].name", "gpu", false],
    ["proxy.host", "p", false],
    ["proxy.password", "", true],
    ["odd", "[1]", false],
  ]);
  expect(JSON.stringify(lines)).not.toMatch(/t0p|hidden/);
});

test("an optional group is filled once any of it is", () => {
  const proxy = field("proxy");
  expect(isFilled(proxy, undefined)).toBe(false);
  expect(isFilled(proxy, { host: "" })).toBe(false);
  expect(isFilled(proxy, { password: "x" })).toBe(true);
});

test("names are read as words", () => {
  expect(titleOf("api_version")).toBe("API version");
  expect(titleOf("static_watts_per_cpu")).toBe("Static watts per CPU");
  expect(titleOf("pullSecret")).toBe("Pull secret");
});
