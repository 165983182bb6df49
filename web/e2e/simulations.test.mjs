// Simulations in a real browser: what the platform did is played by several
// policies, compared, opened decision by decision, downloaded and deleted.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { root, skip, start } from "./platform.mjs";

describe("simulations", { skip, timeout: 900_000 }, () => {
  let p;
  let page;
  let job;
  let path;

  before(async () => {
    p = await start("simulations", ["--centers", join(root, "examples/centers.yaml")]);
    page = p.page;
    await p.until(async () => (await p.rest("GET", "/v1/nodes")).nodes.length === 3, "three nodes are reported");
    for (const name of ["first", "second", "third"]) {
      job = (
        await p.rest("POST", "/v1/jobs", {
          job: {
            name,
            tasks: [{ name: "t", command: "true", imageId: "host", resourceSpecId: "small", replicaNumber: 2 }],
          },
        })
      ).jobId;
    }
    await p.until(async () => (await p.rest("GET", `/v1/jobs/${job}`)).state === "STATE_SUCCEEDED", "the jobs ran");
    await p.rest("POST", "/v1/policy-records", {
      document: { policyId: "cheap", rules: { weights: { "lowest-price": 1 } } },
    });
  });
  after(() => p?.end());

  test("what the platform did is played by three policies", async () => {
    await page.goto(`${p.url}/simulations`);
    await page.getByText("There is no simulation yet").waitFor();
    await page.getByTestId("new-simulation").click();
    const form = p.dialog();
    await form.getByLabel("Title").fill("Last week");
    const policies = form.getByRole("combobox", { name: "Policies to compare" });
    for (const name of ["cheap@1", "price=3,energy=1"]) {
      await policies.fill(name);
      await policies.press("Enter");
    }
    await form.getByLabel("Title").click(); // the list of policies closes
    await p.named();
    await p.shot("simulation-new");
    await form.getByTestId("start-simulation").click();
    await p.heading("Last week");
    const measures = page.getByTestId("simulation-measures");
    await measures.getByRole("cell", { name: "Jobs done" }).waitFor();
    await measures.getByRole("columnheader", { name: "cheap@1" }).waitFor();
    await measures.getByRole("columnheader", { name: "in force" }).waitFor();
    await page.getByRole("img", { name: "Jobs that wait" }).waitFor();
    await p.shot("simulation");
    path = new URL(page.url()).pathname;
  });

  test("a job is opened decision by decision", async () => {
    const events = page.getByTestId("simulation-events");
    await events
      .getByRole("button", { name: `${job}/0/0` })
      .first()
      .click();
    const row = events
      .getByRole("row")
      .filter({ hasText: "starts" })
      .filter({ hasText: `${job}/0/0` });
    await row.waitFor();
    await row.getByRole("button", { name: "Expand row" }).click();
    await events.getByRole("table").first().waitFor();
    await p.shot("simulation-decision");
  });

  test("what is wrong is said where it is", async () => {
    await page.goto(`${p.url}/simulations`);
    await page.getByTestId("new-simulation").click();
    const form = p.dialog();
    await form.getByText("Made up", { exact: true }).click();
    await form.getByLabel("Recipe").fill("centers=2,cats=3");
    p.seen.expectRefusal = true; // the browser may tell of it later
    await form.getByTestId("start-simulation").click();
    await form.locator(".ant-alert-error, .ant-form-item-explain-error").first().waitFor();
    await form.getByRole("button", { name: "Cancel" }).click();
    await form.waitFor({ state: "detached" });
  });

  test("every page is drawn in both languages, wide and narrow", async () => {
    await p.drawn({ simulations: "/simulations", simulation: path });
  });

  test("it is deleted", async () => {
    await page.goto(`${p.url}${path}`);
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("tooltip").getByRole("button", { name: "Delete" }).click();
    await page.getByText("There is no simulation yet").waitFor();
  });

  test("nothing went wrong in the browser", () => assert.deepEqual(p.seen.problems, []));
});
