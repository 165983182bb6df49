import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  ApplyOutcome,
  ApplyResourcesResponseSchema,
  ResourceSchema,
  ResourceState,
  ResourceTypeSchema,
} from "../gen/yunhe/registry/v1/resource_pb";
import { type Format, headOf, type Item, kindsOf, lineOf, readFile, rowsOf, writeResource } from "./resourcefile";
import { type Apply, importItems, type Progress } from "./resourceimport";

const kinds = kindsOf([
  create(ResourceTypeSchema, {
    type: "compute",
    schema: JSON.stringify({
      properties: {
        count: { type: "integer" },
        shared: { type: "boolean" },
        zones: { type: "array" },
        performance: { type: "object" },
        chip_model: { type: "string" },
      },
    }),
  }),
]);
const read = (format: Format, text: string) => readFile(format, text, kinds);
const problems = (items: Item[]) =>
  items.flatMap((i) => i.problems.map((p) => `${p.line} ${p.field} ${p.code}${p.got && ` ${p.got}`}`));
const right = (items: Item[]) => {
  expect(problems(items)).toEqual([]);
  return items.map((i) => i.resource);
};

describe("YAML", () => {
  test("a list, what the API answers, and documents", () => {
    for (const text of [
      "- resource_id: a\n  type: cloud\n- resourceId: b\n",
      'resources:\n- resourceId: a\n  type: cloud\n  createdAt: "2030-01-01T00:00:00Z"\n- resourceId: b\nnextPageToken: ""\n',
      "\uFEFFresource_id: a\r\ntype: cloud\r\n---\r\nresource_id: b\r\n",
      '{"resources":[{"resourceId":"a","type":"cloud"},{"resourceId":"b"}]}',
    ])
      expect(right(read("yaml", text))).toEqual([{ resourceId: "a", type: "cloud" }, { resourceId: "b" }]);
    expect(read("yaml", "# nothing\n")).toEqual([]);
  });

  test("texts stay as they are written, attributes keep their types", () => {
    const text =
      "- resource_id: 007\n  state: available\n  labels: {rack: 007, on: true, none: ~}\n  attributes:\n    count: 85899345920\n    list: [1, x, null, true]\n    deep: {a: {b: 1.5}}\n";
    expect(right(read("yaml", text))).toEqual([
      {
        resourceId: "007",
        state: ResourceState.AVAILABLE,
        labels: { rack: "007", on: "true", none: "~" },
        attributes: { count: 85899345920, list: [1, "x", null, true], deep: { a: { b: 1.5 } } },
      },
    ]);
  });

  test("every mistake, with its line", () => {
    const text =
      "- resource_id: a\n  colour: red\n  type: cloud\n  type: cloud\n- [x]\n- resource_id: b\n  state: broken\n  version: 1.5\n  labels: [x]\n  attributes: {a: .nan, b: 1, b: 2}\n- resource_id: c\n  name: [1]\n  attributes: 5\n- type: cloud\n- resource_id: ok\n";
    expect(problems(read("yaml", text))).toEqual([
      "2 colour unknownMember",
      "4 type twice",
      "5  notResource",
      "7 state wantState broken",
      "8 version wantInteger 1.5",
      "9 labels wantObject",
      "10 attributes.a wantNumber .nan",
      "10 attributes.b twice",
      "12 name wantText",
      "13 attributes wantObject",
      "14 resource_id noId",
    ]);
    expect(problems(read("yaml", "- resource_id: a\n  x: [\n"))[0]).toMatch(/^[23] {2}syntax/);
    expect(problems(read("yaml", "a: &x 1\n---\n- resource_id: *x\n"))).not.toEqual([]);
  });

  test("a field of the platform is found on its line", () => {
    const [item] = read(
      "yaml",
      "- resource_id: a\n  attributes:\n    chips:\n      - {a: 1}\n      - a: 2\n        b: 3\n",
    );
    if (!item) throw new Error("no item");
    const want = {
      resource_id: 1,
      "attributes.chips[1].b": 6,
      "attributes.chips[1].no": 5,
      "attributes.no": 2,
      type: 1,
    };
    for (const [field, line] of Object.entries(want)) expect(lineOf(item, field), field).toBe(line);
  });
});

describe("CSV", () => {
  test("rows, quotes, and lines within cells", () => {
    expect([...rowsOf('a,"b ""x""\ny",\r\n\r\n1,2,3')].map((r) => [r.line, r.cells, r.broken])).toEqual([
      [1, ["a", 'b "x"\ny', ""], false],
      [4, ["1", "2", "3"], false],
    ]);
    expect([...rowsOf('a,x"y\n"open')].map((r) => r.broken)).toEqual([true, true]);
  });

  test("attributes as their schema says", () => {
    const text =
      "resource_id,type,attributes.chip_model,attributes.count,attributes.shared,attributes.zones,attributes.performance,attributes,labels.rack\n" +
      'a,compute,4090,8,TRUE,"[""x"",1]","{""fp16"":1}","{""extra"":true}",007\nb,node,,,,,,,\n';
    expect(right(read("csv", text))).toEqual([
      {
        resourceId: "a",
        type: "compute",
        attributes: {
          chip_model: "4090",
          count: 8,
          shared: true,
          zones: ["x", 1],
          performance: { fp16: 1 },
          extra: true,
        },
        labels: { rack: "007" },
      },
      { resourceId: "b", type: "node" },
    ]);
  });

  test("every mistake, with its line", () => {
    const text =
      'resource_id,type,state,attributes.count,attributes.shared,attributes.zones,attributes\na,compute,broken,many,maybe,1,5\nb,compute\nc,compute,,1,,,"{""count"":2}"\n,compute,,,,,\n';
    expect(problems(read("csv", text))).toEqual([
      "2 state wantState broken",
      "2 attributes.count wantNumber many",
      "2 attributes.shared wantBoolean maybe",
      "2 attributes.zones wantList 1",
      "2 attributes wantObject 5",
      "3  columns 2 ≠ 7",
      "4 attributes.count twice",
      "5 resource_id noId",
    ]);
    expect(problems(read("csv", "resource_id,type,colour,type\n"))).toEqual(["1 colour unknownColumn", "1 type twice"]);
    expect(problems(read("csv", "name\n"))).toEqual(["1 resource_id missingColumn", "1 type missingColumn"]);
  });
});

test("what is written is read back the same", () => {
  const given = {
    resourceId: "gpu-1",
    type: "compute",
    name: 'eight, "big" cards\nin a row',
    region: "on",
    state: ResourceState.MAINTENANCE,
    labels: { rack: "007", "": " x " },
    attributes: {
      chip_model: "4090",
      count: 8,
      shared: false,
      zones: ["- a", 1, null],
      performance: { fp16: 1.5 },
      note: "# no",
    },
  };
  const attributes = ["chip_model", "count", "shared", "zones", "performance"];
  for (const format of ["yaml", "csv"] as const) {
    const text = headOf(format, attributes) + writeResource(format, create(ResourceSchema, given), attributes);
    const [back] = right(read(format, text));
    expect(back, text).toEqual({ ...back, ...given });
  }
});

describe("import", () => {
  // A platform that knows parents, and refuses what is called bad.
  function platform(there: string[] = []) {
    const known = new Set(there);
    const calls: string[] = [];
    const apply: Apply = async (resources, dryRun) => {
      calls.push(`${dryRun ? "check" : "write"} ${resources.map((r) => r.resourceId).join(" ")}`);
      const batch = new Set(resources.map((r) => r.resourceId));
      const results = resources.map((r) => {
        const missing = Boolean(r.parentId) && !known.has(r.parentId ?? "") && !batch.has(r.parentId ?? "");
        const bad = r.name === "bad";
        return {
          resourceId: r.resourceId,
          outcome:
            missing || bad
              ? ApplyOutcome.REFUSED
              : known.has(r.resourceId)
                ? ApplyOutcome.UNCHANGED
                : ApplyOutcome.CREATED,
          parentMissing: missing && !bad,
          violations: bad
            ? [{ field: "name", problem: "is bad" }]
            : missing
              ? [{ field: "parent_id", problem: "is not there" }]
              : [],
        };
      });
      const applied = !dryRun && results.every((r) => r.outcome !== ApplyOutcome.REFUSED);
      if (applied) for (const id of batch) known.add(id);
      return create(ApplyResourcesResponseSchema, { applied, results });
    };
    return { apply, calls, known };
  }
  const file = (n: number, of: (i: number) => string) =>
    read("yaml", Array.from({ length: n }, (_, i) => `- ${of(i)}\n`).join(""));
  const run = (items: Item[], apply: Apply, dryRun = false) =>
    importItems(items, apply, dryRun, () => undefined, new AbortController().signal);
  const sum = ({ created, unchanged, refused }: Progress) => ({ created, unchanged, refused });

  test("children before their parents, across batches, dry and in earnest", async () => {
    const items = file(1200, (i) => (i < 1199 ? `{resource_id: r${i}, parent_id: top}` : "{resource_id: top}"));
    const p = platform();
    expect(sum(await run(items, p.apply, true))).toEqual({ created: 1200, unchanged: 0, refused: 0 });
    expect(p.known.size).toBe(0);
    expect(sum(await run(items, p.apply))).toEqual({ created: 1200, unchanged: 0, refused: 0 });
    expect(sum(await run(items, p.apply))).toEqual({ created: 0, unchanged: 1200, refused: 0 });
  });

  test("a batch with a mistake is checked, not written; the next one is", async () => {
    const items = file(700, (i) => (i === 3 ? "{resource_id: r3, name: bad}" : `{resource_id: r${i}}`));
    const p = platform();
    const end = await run(items, p.apply);
    expect(sum(end)).toEqual({ created: 200, unchanged: 0, refused: 500 });
    expect(end.refusals).toEqual([{ line: 4, resourceId: "r3", field: "name", problem: "is bad" }]);
    const broken = read("yaml", "- resource_id: a\n  colour: red\n- resource_id: b\n");
    const q = platform();
    expect(sum(await run(broken, q.apply))).toEqual({ created: 0, unchanged: 0, refused: 2 });
    expect(q.calls).toEqual(["check b"]);
  });

  test("a parent that is nowhere is told", async () => {
    for (const dryRun of [true, false]) {
      const end = await run(
        file(2, (i) => (i ? "{resource_id: b}" : "{resource_id: a, parent_id: no}")),
        platform().apply,
        dryRun,
      );
      expect(sum(end)).toEqual({ created: 1, unchanged: 0, refused: 1 });
      expect(end.refusals.map((r) => `${r.line} ${r.resourceId} ${r.field}`)).toEqual(["1 a parent_id"]);
    }
  });

  test("it ends when it is stopped", async () => {
    const stop = new AbortController();
    const p = platform();
    const apply: Apply = async (r, d) => {
      stop.abort();
      return p.apply(r, d);
    };
    await expect(
      importItems(
        file(1200, (i) => `{resource_id: r${i}}`),
        apply,
        false,
        () => undefined,
        stop.signal,
      ),
    ).rejects.toThrow();
    expect(p.calls.length).toBe(1);
  });
});
