// The console in a real browser against a running platform.
//
//	YUNHE_URL=http://127.0.0.1:8190 YUNHE_KEY=$(cat data/admin.key) npm run test:e2e
//
// It signs in, changes language and theme, looks at the centers, submits the
// digits example with the form, follows it to its end, and reads its log, its
// score table and its cost. Screenshots go to $SHOTS (default: a temporary
// folder, which is named at the end). It fails on any error in the browser's
// console and on any request that leaves the platform's origin.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { chromium } from "playwright-core";
import { BROWSER, watcher } from "./browser.mjs";

const url = process.env.YUNHE_URL;
const key = process.env.YUNHE_KEY;
// Set when the platform is the in-memory one of `npm run dev:fixture`, which has no REST interface.
const fixture = Boolean(process.env.YUNHE_FIXTURE);
const skip = url && key ? false : "YUNHE_URL and YUNHE_KEY name no running platform";
// Training the example takes seconds; a busy machine may need minutes.
const JOB_MS = 180_000;

describe("console", { skip, timeout: 600_000 }, () => {
  let browser;
  let context;
  let page;
  let shots;
  const seen = watcher(url);
  const watch = (ctx) => seen.watch(ctx);

  before(async () => {
    shots = process.env.SHOTS ?? mkdtempSync(join(tmpdir(), "yunhe-shots-"));
    mkdirSync(shots, { recursive: true });
    browser = await chromium.launch(BROWSER);
    context = await browser.newContext({
      locale: "en-US",
      viewport: { width: 1440, height: 900 },
      acceptDownloads: true,
    });
    context.setDefaultTimeout(30_000);
    watch(context);
    page = await context.newPage();
  });

  after(async () => {
    await browser?.close();
    if (shots) console.log(`screenshots: ${shots}`);
  });

  async function importJob(job) {
    await page.goto(`${url}/jobs/new`);
    await page
      .locator('input[type="file"][accept*="json"]')
      .setInputFiles({ name: "job.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(job)) });
    await page.waitForFunction(
      (n) => document.querySelector('[data-testid="preview"]')?.textContent?.includes(n),
      job.name,
    );
  }

  const shot = (name) => page.screenshot({ path: join(shots, `${name}.png`), fullPage: true });
  const heading = (name) => page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
  const open = (label) => page.getByRole("navigation").getByRole("link", { name: label, exact: true }).click();

  test("a wrong key is refused with a clear message", async () => {
    seen.expectRefusal = true;
    await page.goto(url);
    await page.getByLabel("API key").fill("wrong-key");
    await page.getByTestId("sign-in").click();
    await page.getByText("This key is not valid").waitFor();
    await shot("sign-in-refused");
    seen.expectRefusal = false;
  });

  test("the right key signs in", async () => {
    await page.getByLabel("API key").fill(key);
    await page.getByTestId("sign-in").click();
    await heading("Overview");
    await page
      .getByTestId("centers-available")
      .filter({ hasText: /^[1-9]\d*\/ [1-9]\d*$/ })
      .waitFor();
  });

  test("the language is switched and kept", async () => {
    await page.getByTestId("language").click();
    await heading("总览");
    await page.reload();
    await heading("总览");
    assert.equal(await page.evaluate(() => document.documentElement.lang), "zh-CN");
    await page.getByTestId("language").click();
    await heading("Overview");
  });

  test("the centers are there with their use", async () => {
    await open("Computing centers");
    await heading("Computing centers");
    const rows = page.locator(".ant-table-tbody tr.ant-table-row");
    await rows.first().waitFor();
    await page.getByRole("progressbar", { name: "CPU" }).first().waitFor();
    await shot("centers");
    await rows.first().getByRole("link").click();
    await page.getByRole("heading", { name: "Specifications on offer" }).waitFor();
    await page.locator(".yh-charts-3 canvas").first().waitFor();
    await shot("center");
  });

  test("a wrong job is refused at the field", async () => {
    await page.goto(`${url}/jobs/new`);
    await page.getByTestId("example").click();
    await page.getByLabel("Name").first().fill("");
    await page.getByTestId("submit").click();
    await page.locator(".ant-form-item-explain-error").first().waitFor();
  });

  test("the example job is submitted with the form and succeeds", { timeout: JOB_MS + 60_000 }, async () => {
    await page.getByTestId("example").click();
    await page.waitForFunction(() =>
      document.querySelector('[data-testid="preview"]')?.textContent?.includes("--model linear"),
    );
    await shot("submit");
    await page.getByTestId("submit").click();
    await page.waitForURL(/\/jobs\/job_/);
    await heading("digits");
    await page.locator(".yh-head .yh-state", { hasText: /^(Succeeded|Failed|Stopped)$/ }).waitFor({ timeout: JOB_MS });
    const state = await page.locator(".yh-head .yh-state").textContent();
    if (state !== "Succeeded") await shot("job-failed");
    assert.equal(state, "Succeeded");
    await page.getByText("3 / 3").waitFor();
    await shot("job");
  });

  test("its timeline shows every replica", async () => {
    await page.locator(".yh-timeline svg").waitFor();
    assert.equal(await page.locator(".yh-timeline .yh-bar-running").count(), 3);
    await shot("timeline");
  });

  test("its log tells the accuracy, is searched and downloaded", async () => {
    await page.getByRole("tab", { name: "Log" }).click();
    await page
      .locator(".yh-log-line", { hasText: /accuracy/i })
      .first()
      .waitFor();
    await page.getByRole("textbox", { name: "Search" }).fill("accuracy");
    await page.locator(".yh-log-line mark").first().waitFor();
    await shot("log");
    if (fixture) return;
    const [file] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download the whole log" }).click(),
    ]);
    assert.match(readFileSync(await file.path(), "utf8"), /accuracy/i);
  });

  test("its placement is explained", async () => {
    await page.getByRole("tab", { name: "Placement" }).click();
    const table = page.getByTestId("score-table").first();
    await table.waitFor();
    await table.getByText("chosen", { exact: true }).waitFor();
    assert.ok((await table.locator("thead th").count()) > 3, "the score table has a column for each policy");
    await page.locator(".yh-score-sentence", { hasText: "was chosen with" }).first().waitFor();
    await shot("placement");
  });

  test("its cost lines sum to its cost", async () => {
    await page.getByRole("tab", { name: "Cost" }).click();
    const total = (await page.getByTestId("cost-total").textContent()) ?? "";
    assert.match(total, /^¥[\d,]+\.\d\d$/);
    const fen = (text) => BigInt(text.replace(/[^\d]/g, ""));
    const posted = await page.locator(".ant-table-tbody tr.ant-table-row td:last-child").allTextContents();
    assert.equal(posted.length, 3);
    assert.equal(
      posted.reduce((sum, text) => sum + fen(text), 0n),
      fen(total),
      `${posted.join(" + ")} = ${total}`,
    );
    assert.equal(await page.getByTestId("job-cost").textContent(), total);
    await shot("cost");
  });

  test("its usage is recorded", async () => {
    await open("Usage and cost");
    await heading("Usage and cost");
    await page.locator(".ant-table-tbody tr.ant-table-row").nth(2).waitFor();
    await shot("usage");
    if (fixture) return;
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByTestId("csv").click()]);
    assert.ok(
      readFileSync(await file.path(), "utf8")
        .trim()
        .split("\n").length >= 4,
      "the CSV has a head and three runs",
    );
  });

  test("the server's field errors are shown at the fields", { skip: fixture }, async () => {
    await page.goto(`${url}/jobs/new`);
    await importJob({
      name: "wrong",
      tasks: [
        { name: "twin", command: "true", imageId: "host", resourceSpecId: "small", replicaNumber: 1 },
        { name: "twin", command: "true", imageId: "host", resourceSpecId: "tiny", replicaNumber: 1 },
      ],
    });
    seen.expectRefusal = true;
    await page.getByTestId("submit").click();
    const errors = page.locator(".ant-form-item-explain-error");
    await errors.filter({ hasText: "twin" }).waitFor();
    await errors.filter({ hasText: "tiny" }).waitFor();
    seen.expectRefusal = false;
    assert.ok(page.url().endsWith("/jobs/new"), page.url());
    await shot("submit-refused");
  });

  test("a running job's log is followed and the job is stopped", { skip: fixture }, async () => {
    await importJob({
      name: "ticker",
      tasks: [
        {
          name: "tick",
          command: "for i in $(seq 1 600); do echo tick $i; sleep 0.5; done",
          imageId: "host",
          resourceSpecId: "small",
          replicaNumber: 1,
        },
      ],
    });
    await page.getByTestId("submit").click();
    await heading("ticker");
    await page.getByRole("tab", { name: "Log" }).click();
    await page.locator(".yh-log-line", { hasText: "tick 2" }).waitFor({ timeout: JOB_MS });
    await page.locator(".yh-log-line", { hasText: "tick 5" }).waitFor();
    await shot("log-live");
    await page.getByTestId("stop").click();
    await page.getByRole("tooltip").getByRole("button", { name: "Stop" }).click();
    await page.locator(".yh-head .yh-state", { hasText: "Stopped" }).waitFor();
    await page.locator(".yh-log-note", { hasText: "Complete" }).waitFor();
  });

  test("long lists are loaded page by page", { skip: fixture }, async () => {
    const name = `page-${Date.now().toString(36)}`;
    const task = { name: "t", command: "true", imageId: "host", resourceSpecId: "small", replicaNumber: 1 };
    const jobs = Array.from({ length: 55 }, () => ({ name, tasks: [task] }));
    const answer = await fetch(`${url}/v1/jobs:batch`, {
      method: "POST",
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
      body: JSON.stringify({ jobs }),
    });
    assert.equal(answer.status, 200, await answer.text());
    await page.goto(`${url}/jobs?name=${name}`);
    const rows = page.locator(".ant-table-tbody tr.ant-table-row");
    await rows.nth(49).waitFor();
    await page.getByTestId("more").click();
    await rows.nth(54).waitFor();
    assert.equal(await rows.count(), 55);
    // Without a reload, the list follows the jobs to their end.
    await page.waitForFunction(
      () => document.querySelectorAll(".ant-table-tbody .yh-state.yh-tone-good").length === 55,
      undefined,
      { timeout: JOB_MS },
    );
  });

  test("a center is drained and put back into use", { skip: fixture }, async () => {
    await page.goto(`${url}/centers`);
    await page.locator(".ant-table-tbody a.yh-job-link").first().click();
    const change = async (what, becomes) => {
      await page.getByRole("button", { name: what }).click();
      await page.getByRole("tooltip").getByRole("button", { name: what }).click();
      await page.locator(".yh-head .yh-state", { hasText: becomes }).waitFor();
    };
    await change("Drain", "Drained");
    await change("Put back into use", "Available");
  });

  test("the policy set is changed and changed back", { skip: fixture }, async () => {
    await page.goto(`${url}/policies`);
    const choose = async (from, to) => {
      await page.locator(".ant-select", { hasText: from }).click();
      await page.locator(".ant-select-item-option", { hasText: to }).click();
      await page.getByTestId("save-policies").click();
      await page.getByRole("tooltip").getByRole("button", { name: "OK" }).click();
      await page.getByText("Policy set saved").first().waitFor();
      await page.reload();
      await page.locator(".ant-select", { hasText: to }).waitFor();
    };
    await choose("Best overall", "Lowest cost");
    await choose("Lowest cost", "Best overall");
  });

  test("tenants, users and specifications are created, and refused when wrong", { skip: fixture }, async () => {
    const id = `t${Date.now().toString(36)}`;
    const createTenant = async () => {
      await page.getByRole("button", { name: "New tenant" }).click();
      await page.getByLabel("Tenant ID").fill(id);
      await page.getByLabel("Name").fill("Browser test");
      await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
    };
    await page.goto(`${url}/identity?tab=tenants`);
    await createTenant();
    await page.locator(".ant-table-tbody", { hasText: id }).waitFor();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    seen.expectRefusal = true;
    await createTenant();
    await page.getByRole("dialog").getByText(id).first().waitFor();
    await page.getByRole("dialog").locator(".ant-alert-error, .ant-form-item-explain-error").first().waitFor();
    seen.expectRefusal = false;

    await page.goto(`${url}/identity?tab=users`);
    await page.getByRole("button", { name: "New user" }).click();
    await page.getByLabel("User ID").fill(`u.${id}`);
    await page.getByLabel("Name").fill("Browser test");
    await page.getByLabel("Tenant").fill(id);
    await page.locator(".ant-select-item-option", { hasText: id }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
    await page.locator(".ant-table-tbody", { hasText: `u.${id}` }).waitFor();

    await page.goto(`${url}/specs`);
    await page.getByRole("button", { name: "New specification" }).click();
    await page.getByRole("dialog").getByLabel("ID").fill(`spec-${id}`);
    await page.getByRole("dialog").getByLabel("Specification").fill("Browser test");
    await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
    await page.locator(".ant-table-tbody", { hasText: `spec-${id}` }).waitFor();
    await shot("specs");
    await page
      .locator("tr", { hasText: `spec-${id}` })
      .getByRole("button", { name: "Delete" })
      .click();
    await page.getByRole("tooltip").getByRole("button", { name: "Delete" }).click();
    await page.locator("tr", { hasText: `spec-${id}` }).waitFor({ state: "detached" });
  });

  test("a key is created, shown once and works in the address", async () => {
    await page.goto(`${url}/identity?tab=keys`);
    let fresh = key;
    if (!fixture) {
      await page.getByTestId("create-key").click();
      await page.getByLabel("Purpose").fill("browser test");
      await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
      fresh = (await page.getByTestId("secret").locator("code").textContent()) ?? "";
      await page.getByRole("button", { name: "I have stored it" }).click();
    }
    const other = await browser.newContext({
      locale: "zh-CN",
      colorScheme: "dark",
      viewport: { width: 1440, height: 900 },
    });
    watch(other);
    const theirs = await other.newPage();
    await theirs.goto(`${url}/#key=${encodeURIComponent(fresh)}`);
    await theirs.getByRole("heading", { level: 1, name: "总览" }).waitFor();
    assert.ok(!theirs.url().includes("key="), `the key is still in the address: ${theirs.url()}`);
    assert.equal(await theirs.evaluate(() => document.documentElement.dataset.theme), "dark");
    await other.close();
  });

  test("every page is drawn in both languages and themes", async () => {
    const job = await newestJob();
    const paths = {
      overview: "/",
      jobs: "/jobs",
      job,
      placement: `${job}?tab=placement`,
      submit: "/jobs/new",
      centers: "/centers",
      specs: "/specs",
      images: "/images",
      policies: "/policies",
      usage: "/usage",
      identity: "/identity",
      audit: "/identity?tab=audit",
    };
    for (const language of ["en", "zh"]) {
      for (const theme of ["light", "dark"]) {
        await page.evaluate(
          ([l, t]) => {
            localStorage.setItem("yunhe.language", l);
            localStorage.setItem("yunhe.theme", t);
          },
          [language, theme],
        );
        for (const [name, path] of Object.entries(paths)) {
          await page.goto(url + path);
          await page.getByRole("heading", { level: 1 }).waitFor();
          await page.locator(".ant-skeleton").first().waitFor({ state: "detached" });
          if (name === "overview") await page.locator(".yh-grid-2 canvas").first().waitFor();
          assert.equal(await page.locator(".yh-problem").count(), 0, `${path} shows a problem`);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
          assert.ok(wide <= 0, `${path} is ${wide} pixels too wide in ${language}`);
          await shot(`${language}-${theme}-${name}`);
        }
      }
    }
  });

  async function newestJob() {
    await page.goto(`${url}/jobs?name=digits&state=succeeded`);
    return page.locator(".ant-table-tbody a.yh-job-link").first().getAttribute("href");
  }

  test("signing out forgets the key", async () => {
    await page.evaluate(() => localStorage.setItem("yunhe.language", "en"));
    await page.goto(url);
    await page.getByTestId("user").click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await page.getByTestId("sign-in").waitFor();
    assert.equal(await page.evaluate(() => localStorage.getItem("yunhe.key")), null);
    await page.reload();
    await page.getByTestId("sign-in").waitFor();
  });

  test("nothing went wrong in the browser", () => assert.deepEqual(seen.problems, []));
});
