// Paths and origins, jobs that say where their users and data are, how a center stands, vetoes of a policy and shared tags,
// in a real browser.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { root, skip, start } from "./platform.mjs";

describe("network", { skip, timeout: 900_000 }, () => {
  let p;
  let page;

  before(async () => {
    p = await start("network", ["--centers", join(root, "examples/centers.yaml")]);
    page = p.page;
    await p.until(async () => (await p.rest("GET", "/v1/nodes")).nodes.length === 3, "three nodes are reported");
  });
  after(() => p?.end());

  test("an origin is made, and found again", async () => {
    await page.goto(`${p.url}/network?tab=origins`);
    await p.heading("Network and users");
    await page.getByText("There is no origin yet").waitFor();
    await page.getByTestId("new-origin").click();
    await p.named();
    const form = p.dialog();
    await form.getByLabel("ID", { exact: true }).fill("hq");
    await form.getByLabel("Longitude", { exact: true }).fill("116.4");
    p.seen.expectRefusal = true; // the browser may tell of it later
    await form.getByTestId("save-origin").click();
    await form.locator(".ant-form-item-explain-error, .ant-alert-error").first().waitFor();
    await form.getByLabel("Latitude", { exact: true }).fill("39.9");
    await form.getByTestId("save-origin").click();
    await form.waitFor({ state: "detached" });
    await p.at("hq").getByText("116.4000°").waitFor();
    await p.shot("origins");
  });

  test("a path is declared, counts, and is forgotten", async () => {
    await p.at("hq").getByRole("link").click();
    await page.getByText("Nothing is known of paths of this end").waitFor();
    await page.getByTestId("declare-path").click();
    await p.named();
    const form = p.dialog();
    await p.choose(form, "From", "hq");
    await p.choose(form, "To", "Wuhu");
    await form.getByTestId("save-path").click();
    await form.locator(".ant-alert-error, .ant-form-item-explain-error").first().waitFor();
    await form.getByLabel("Latency", { exact: true }).fill("18.5");
    await form.getByLabel("Fee per GiB", { exact: true }).fill("0.30");
    await form.getByTestId("save-path").click();
    await form.waitFor({ state: "detached" });
    const row = p.row("Wuhu hub");
    await row.getByText("18.5 ms").waitFor();
    await row.getByText("¥0.30").waitFor();
    const between = page.getByRole("region", { name: "What counts between two places" });
    await p.choose(between, "From", "hq");
    await p.choose(between, "To", "Wuhu");
    await page.getByTestId("between").getByText("18.5 ms").waitFor();
    await p.shot("paths");
    await row.getByRole("button", { name: "Delete" }).click();
    await page.locator(".ant-popconfirm").getByRole("button", { name: "Forget what was declared" }).click();
    await row.waitFor({ state: "detached" });
    await page.getByTestId("between").getByText("18.5 ms").waitFor({ state: "detached" });
  });

  test("a job says where its users and its data are, and what quality it needs", async () => {
    await page.goto(`${p.url}/jobs/new`);
    const job = {
      name: "survey",
      tasks: [{ name: "t", command: "true", imageId: "host", resourceSpecId: "small", replicaNumber: 1 }],
    };
    await page
      .locator("input[type=file]")
      .first()
      .setInputFiles({ name: "job.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(job)) });
    await page.getByTestId("preview").filter({ hasText: '"survey"' }).waitFor();
    await page.getByText("Time limit, constraints").click();
    await page.getByText("When it runs, what it stays near").click();
    await p.named();
    const inputs = page.locator(".ant-form-item", { hasText: "Data it reads" }).last();
    await inputs.getByRole("button", { name: "Add" }).click();
    await inputs.getByLabel("Name of the data").fill("s3://survey/2030");
    await inputs.getByLabel("Size").fill("2048");
    await p.choose(inputs, "Centers that hold it", "Wuhu hub");
    await page.keyboard.press("Escape");
    await page.getByLabel("Round trip at most", { exact: true }).fill("1.5");
    await page.getByLabel("Availability at least", { exact: true }).fill("200");
    await page.getByLabel("Availability at least", { exact: true }).blur();
    await p.choose(page, "Computes in", "FP16");
    await p.choose(page, "Its users are at", "hq");
    const definition = page.getByTestId("preview");
    for (const line of [
      '"maxLatencyUs": "1500"',
      '"minAvailabilityPpm": "1000000"',
      '"sizeBytes": "2147483648"',
      '"originId": "hq"',
    ])
      await definition.filter({ hasText: line }).waitFor();
    await p.shot("submit-data");
    await inputs.getByLabel("Size").fill("0");
    p.seen.expectRefusal = true;
    await page.getByTestId("submit").click();
    await inputs.locator(".ant-form-item-explain-error, .ant-alert-error").first().waitFor();
    await p.shot("submit-data-refused");
    await inputs.getByLabel("Size").fill("2048");
    await page.getByTestId("submit").click();
    await p.heading("survey");
    const { jobs } = await p.rest("GET", "/v1/jobs?name=survey");
    const { spec } = await p.rest("GET", `/v1/jobs/${jobs[0].jobId}`);
    assert.equal(spec.originId, "hq");
    assert.equal(spec.tasks[0].precision, "FP16");
    assert.deepEqual(spec.tasks[0].inputs[0].centers, ["wuhu"]);
  });

  test("a center says how its link stands, and how long it is waited for", async () => {
    await page.goto(`${p.url}/centers/wuhu`);
    const standing = page.getByTestId("standing");
    await standing.locator(".yh-state", { hasText: /^connected$/ }).waitFor();
    await standing.getByText("It refused nothing in the last 24 hours").waitFor();
    await page.getByTestId("set-grace").click();
    await p.dialog().getByRole("spinbutton").fill("600");
    await p.dialog().getByTestId("save-grace").click();
    await p.dialog().waitFor({ state: "detached" });
    await standing.getByText("10 m 00 s").waitFor();
    assert.equal((await p.rest("GET", "/v1/standings/wuhu")).lostGraceSeconds, "600");
    await p.shot("standing");
  });

  test("a policy gets a veto, and is issued to a scope", async () => {
    await page.goto(`${p.url}/policies?tab=records`);
    await page.getByTestId("new-policy").click();
    const form = p.dialog();
    await form.getByLabel(/^ID/).fill("strict");
    await form.getByRole("button", { name: "Add a veto" }).click();
    await p.choose(form, "Veto 1", "Highest security");
    await form.getByLabel("Veto 1: Least score").fill("60");
    await p.named();
    await form.getByTestId("policy-check").filter({ hasText: "Nothing is wrong" }).waitFor();
    await p.shot("policy-veto");
    await form.getByTestId("save-policy").click();
    await p.heading("strict");
    await page.getByTestId("issue").click();
    await p.dialog().getByRole("checkbox").check();
    const tenants = p.dialog().getByRole("combobox", { name: "Tenants" });
    await tenants.fill("physics");
    await tenants.press("Enter");
    await p.dialog().getByLabel("Reason").fill("physics first");
    await p.shot("policy-issue-scope");
    await p.dialog().getByTestId("ask-confirm").click();
    await p.dialog().waitFor({ state: "detached" });
    const record = await p.rest("GET", "/v1/policy-records/strict");
    assert.deepEqual(record.issuedScope.tenants, ["physics"]);
    assert.deepEqual(record.version.document.rules.minimums, { "highest-security": 60 });
  });

  test("tags are shared as a file, and adopted", async () => {
    await page.goto(`${p.url}/tags`);
    const download = page.waitForEvent("download");
    await page.getByTestId("share-tags").click();
    const path = await (await download).path();
    const shared = JSON.parse(readFileSync(path, "utf8"));
    assert.ok(shared.tags.length > 0, "the library has tags");
    const tag = { ...shared.tags[0], key: "lab.cold", title: "Cold", titleZh: "" };
    await page.getByTestId("adopt-tags").click();
    const upload = (value, name) =>
      p
        .dialog()
        .locator("input[type=file]")
        .setInputFiles({ name, mimeType: "application/json", buffer: Buffer.from(value) });
    await upload("{", "broken.json");
    await p.dialog().getByText("broken.json is not what a platform shares").waitFor();
    await upload(JSON.stringify({ ...shared, tags: [shared.tags[0], tag], rules: [] }), "tags.json");
    await p.dialog().getByTestId("adopted").getByText("new", { exact: true }).waitFor();
    await p.shot("adopt");
    await p.dialog().getByTestId("adopt").click();
    await p.dialog().getByText("tags.json: 1 thing changed").waitFor();
    await p.dialog().getByRole("button", { name: "Close", exact: true }).last().click();
    await p.at("lab.cold").waitFor();
  });

  test("every page is drawn in both languages, wide and narrow", async () => {
    await p.drawn({ paths: "/network", origins: "/network?tab=origins", center: "/centers/wuhu" });
  });

  test("nothing went wrong in the browser", () => assert.deepEqual(p.seen.problems, []));
});
