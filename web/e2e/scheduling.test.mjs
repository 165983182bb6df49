// Scheduling in a real browser: a policy is written while the platform checks
// it, tried, simulated, issued, seen to decide, compared, rolled back and
// withdrawn; queues with limits; budgets; what a waiting job waits for.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { root, skip, start } from "./platform.mjs";

describe("scheduling", { skip, timeout: 900_000 }, () => {
  let p;
  let page;
  let placed;

  before(async () => {
    p = await start("scheduling", ["--centers", join(root, "examples/centers.yaml")]);
    page = p.page;
    await p.until(async () => (await p.rest("GET", "/v1/nodes")).nodes.length === 3, "three nodes are reported");
  });
  after(() => p?.end());

  const submit = async (name, task = {}, job = {}) =>
    (
      await p.rest("POST", "/v1/jobs", {
        job: {
          name,
          ...job,
          tasks: [{ name: "t", command: "true", imageId: "host", resourceSpecId: "small", replicaNumber: 1, ...task }],
        },
      })
    ).jobId;
  const issued = (version) =>
    page
      .getByTestId("issued-version")
      .filter({ hasText: new RegExp(`^${version}$`) })
      .waitFor();
  const ask = async (reason) => {
    await p.dialog().getByLabel("Reason").fill(reason);
    await p.dialog().getByTestId("ask-confirm").click();
    await p.dialog().waitFor({ state: "detached" });
  };

  test("a policy is checked while it is written, at the place", async () => {
    await page.goto(`${p.url}/policies?tab=records`);
    await page.getByTestId("new-policy").click();
    const form = p.dialog();
    await form.getByTestId("field-problem").first().waitFor();
    await form.getByLabel(/^ID/).fill("trusted");
    await form.getByRole("button", { name: "Add a condition" }).click();
    const condition = form.getByRole("textbox", { name: "Condition 1" });
    await condition.fill("job.tenant == 5");
    await form.getByTestId("expression-problem").filter({ hasText: "Line 1, column 12" }).waitFor();
    assert.equal(await form.getByTestId("save-policy").isDisabled(), true, "what is wrong cannot be saved");
    await p.shot("policy-wrong");
    await condition.fill('job.tenant == "default"');
    await form.getByRole("button", { name: "Add a filter" }).click();
    await form.getByRole("textbox", { name: "Filter 1", exact: true }).fill("security_grade >= 5");
    await form.getByRole("radio", { name: "A preset" }).check();
    await p.named();
    await form.getByTestId("policy-check").filter({ hasText: "Nothing is wrong" }).waitFor();
    await form.getByText("YAML", { exact: true }).click();
    await form.getByRole("textbox", { name: "Document" }).filter({ hasText: "security_grade >= 5" }).waitFor();
    await form.getByText("Form", { exact: true }).click();
    await form.getByTestId("save-policy").click();
    await p.heading("trusted");
    await page.getByTestId("policy-document").filter({ hasText: "security_grade >= 5" }).waitFor();
    await p.shot("policy");
  });

  test("it is tried on a job and simulated on the latest ones", async () => {
    placed = await submit("before");
    await p.until(async () => (await p.rest("GET", `/v1/jobs/${placed}`)).state === "STATE_SUCCEEDED", "a job ran");
    await page.getByRole("tab", { name: "Try" }).click();
    await page.getByRole("textbox", { name: "Job ID" }).fill(placed);
    await page.getByTestId("try-run").click();
    const tried = page.getByTestId("try-result");
    await tried.getByRole("heading", { name: "With the policy" }).waitFor();
    await tried.getByText("Beijing trusted center").first().waitFor();
    await p.shot("policy-tried");
    await page.getByRole("tab", { name: "Simulate" }).click();
    await page.getByTestId("simulate-run").click();
    await page.getByTestId("simulate-result").getByText("Would go elsewhere").waitFor();
    await p.shot("policy-simulated");
  });

  test("it is issued, and the next job follows it", async () => {
    await page.getByTestId("issue").click();
    await ask("only where trust is");
    await issued(1);
    const job = await submit("after");
    const { decisions } = await p.until(async () => {
      const found = await p.rest("GET", `/v1/jobs/${job}/explain`);
      return found.decisions.some((d) => d.attempt > 0) && found;
    }, "a job is placed");
    assert.equal(decisions[0].aiCenterId, "beijing");
    await page.goto(`${p.url}/jobs/${job}?tab=placement`);
    await page.getByText("trusted@1").first().waitFor();
    await p.shot("placement-by-policy");
  });

  test("a second version is written, compared with the first, and rolled back", async () => {
    await page.goto(`${p.url}/policies/trusted`);
    await page.getByRole("button", { name: "Change", exact: true }).click();
    await p.dialog().getByRole("textbox", { name: "Filter 1", exact: true }).fill("security_grade >= 3");
    await p.dialog().getByRole("textbox", { name: "Why" }).fill("one more center");
    await p.dialog().getByTestId("policy-check").filter({ hasText: "Nothing is wrong" }).waitFor();
    await p.dialog().getByTestId("save-policy").click();
    await p.dialog().waitFor({ state: "detached" });
    await page.getByRole("tab", { name: "Versions" }).click();
    for (const version of ["1", "2"]) await page.getByRole("checkbox", { name: `Version ${version}` }).check();
    await page.getByTestId("policy-diff").locator("ins", { hasText: "security_grade >= 3" }).waitFor();
    await p.shot("policy-diff");
    await page.getByTestId("start-test").click();
    await p.dialog().getByTestId("start-test-confirm").click();
    await p.dialog().waitFor({ state: "detached" });
    await page.getByRole("tab", { name: "Comparisons" }).click();
    await page.getByTestId("policy-tests").getByRole("button").first().click();
    await p.dialog().getByTestId("arms").waitFor();
    await p.shot("policy-test");
    await p.dialog().getByTestId("end-test").click();
    const end = p.dialog().filter({ hasText: "End the comparison?" });
    await p.choose(end, "Winner", "b (trusted@2)");
    await end.getByTestId("end-test-confirm").click();
    await issued(2);
    await page.getByTestId("rollback").click();
    await ask("too many");
    await issued(1);
    await page.getByTestId("withdraw").click();
    await ask("done");
    await issued("–");
    await page.getByRole("tab", { name: "History" }).click();
    await page.getByTestId("policy-events").getByText("withdrawn").waitFor();
    await p.shot("policy-events");
  });

  test("a queue with a limit holds a job back, and the job says so", async () => {
    await p.open("Queues");
    await p.heading("Queues");
    await page.getByTestId("new-queue").click();
    const form = p.dialog();
    await form.getByLabel("ID", { exact: true }).fill("default");
    const limit = form.getByLabel("Limit", { exact: true });
    await limit.fill("cpu=much");
    await limit.press("Enter");
    await form.getByTestId("save-queue").click();
    await form.locator(".ant-form-item-explain-error", { hasText: "name=quantity" }).waitFor();
    await form.locator(".ant-form-item .anticon-close").first().click(); // "cpu=much" goes
    await limit.fill("cpu=1");
    await limit.press("Enter");
    await p.named();
    await form.getByTestId("save-queue").click();
    await p.at("default").waitFor();
    await p.dialog().waitFor({ state: "detached" });
    await submit("first", { command: "sleep 900" });
    const second = await submit("second", { command: "sleep 900" });
    await p.at("default").getByRole("progressbar", { name: "cpu" }).waitFor();
    await p.shot("queues");
    await page.goto(`${p.url}/jobs/${second}`);
    await page.getByTestId("waits").filter({ hasText: "Quota" }).waitFor();
    await page.getByTestId("waits").getByText("Estimated start").waitFor();
    await p.shot("job-waits");
    await page.goto(`${p.url}/queues?tab=stats`);
    await page.getByTestId("queued").filter({ hasText: /^1$/ }).waitFor();
    await page.getByTestId("scheduling-stats").waitFor();
    await page.getByRole("tab", { name: "Order" }).click();
    await page.getByRole("radio", { name: "By priority, then fair among queues" }).check();
    await page.getByTestId("save-settings").click();
    await p.until(async () => (await p.rest("GET", "/v1/queue-settings")).order === "ORDER_FAIR", "the order is saved");
    await page.goto(`${p.url}/queues`);
    await p.at("default").getByRole("button", { name: "default" }).click();
    await p.dialog().getByRole("button", { name: "Delete", exact: true }).click();
    await page.locator(".ant-modal-confirm").getByRole("button", { name: "Delete", exact: true }).click();
    await p.at("default").waitFor({ state: "detached" });
    await p.until(async () => (await p.rest("GET", `/v1/jobs/${second}`)).state === "STATE_RUNNING", "it runs without");
  });

  test("a budget holds a job back until it is raised", async () => {
    await page.goto(`${p.url}/queues?tab=budgets`);
    await page.getByText("There are no budgets").waitFor();
    await page.getByTestId("new-budget").click();
    const form = p.dialog();
    await form.getByLabel("ID", { exact: true }).fill("collider");
    await form.getByLabel("Project", { exact: true }).fill("collider");
    const amount = form.getByLabel("Amount", { exact: true });
    await amount.fill("1.001");
    await form.getByLabel("Time zone", { exact: true }).fill("Nowhere");
    await form.getByTestId("save-budget").click();
    await form.locator(".ant-form-item-explain-error", { hasText: "In yuan" }).waitFor();
    await amount.fill("0.01"); // an hour of the cheapest center costs 12 yuan
    p.seen.expectRefusal = true;
    await form.getByTestId("save-budget").click();
    await form.locator(".ant-form-item-explain-error", { hasText: "Nowhere" }).waitFor();
    await p.shot("budget-refused");
    await form.getByLabel("Time zone", { exact: true }).fill("Asia/Shanghai");
    await form.getByTestId("save-budget").click();
    await form.waitFor({ state: "detached" });
    await p.at("collider").getByText("¥0.01").waitFor();
    const held = await submit("held", {}, { labels: { project: "collider" } });
    await page.goto(`${p.url}/jobs/${held}`);
    await page.getByTestId("waits").filter({ hasText: "collider" }).waitFor();
    await p.shot("job-waits-for-budget");
    await page.goto(`${p.url}/queues?tab=budgets`);
    await p.at("collider").getByRole("button", { name: "collider" }).click();
    await p.dialog().getByLabel("Amount", { exact: true }).fill("100");
    await p.dialog().getByTestId("save-budget").click();
    await p.dialog().waitFor({ state: "detached" });
    await p.until(async () => (await p.rest("GET", `/v1/jobs/${held}`)).state === "STATE_SUCCEEDED", "it runs now");
    await p.at("collider").getByText("¥100.00").waitFor();
    await p.shot("budgets");
    await p.at("collider").getByRole("button", { name: "collider" }).click();
    await p.dialog().getByRole("button", { name: "Delete", exact: true }).click();
    await page.locator(".ant-modal-confirm").getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByText("There are no budgets").waitFor();
  });

  test("what became of the runs before the latest, and what they wrote", async () => {
    const job = await submit("again", { command: "echo this was run $YUNHE_ATTEMPT; exit 3" }, { max_retries: 1 });
    await p.until(async () => (await p.rest("GET", `/v1/jobs/${job}`)).state === "STATE_FAILED", "it fails for good");
    await page.goto(`${p.url}/jobs/${job}`);
    await page.getByRole("button", { name: "Expand row" }).click();
    const earlier = page.locator(".ant-table-expanded-row");
    await earlier.getByText("Command failed.").waitFor();
    await p.shot("job-earlier-runs");
    await earlier.getByRole("button", { name: "Log", exact: true }).click();
    await page.getByText("this was run 1").waitFor();
    const run = page.locator(".ant-select", { has: page.getByLabel("Run", { exact: true }) });
    await run.click();
    await page.locator(".ant-select-item-option", { hasText: "run 2" }).click();
    await page.getByText("this was run 2").waitFor();
    await p.drawn({ "earlier-log": `/jobs/${job}?tab=log&replica=${encodeURIComponent("0.0#1")}` });
  });

  test("what a running job uses now, and used before", async () => {
    const job = await submit("busy", { command: "x=$(head -c 33554432 /dev/zero | tr '\\0' x); while :; do :; done" });
    const runs = await p.until(async () => {
      const found = (await p.rest("GET", `/v1/run-figures?job_id=${job}`)).runs;
      return found?.[0]?.cpuCores > 0.1 && Number(found[0].memoryBytes) >= 33554432 && found;
    }, "the run is measured, when it holds what it does");
    assert.equal(runs.length, 1);
    await page.goto(`${p.url}/jobs/${job}`);
    await page.getByRole("tab", { name: "Use", exact: true }).click();
    const table = page.getByTestId("run-use");
    await table.getByRole("progressbar", { name: "CPU cores" }).waitFor();
    await table.getByRole("progressbar", { name: "Memory" }).waitFor();
    await page.getByTestId("run-curves").getByRole("img", { name: "Memory" }).waitFor();
    await p.until(async () => {
      const q = encodeURIComponent(`count_over_time(yunhe_run_cpu_cores{job_id="${job}"}[5m])`);
      const { series } = await p.rest("GET", `/v1/query-range?query=${q}`);
      return series?.[0]?.points.some((at) => at.value >= 2);
    }, "it was measured twice");
    await page.reload();
    await page.getByTestId("run-curves").getByRole("img", { name: "CPU cores" }).waitFor();
    await p.shot("run-use");
    await p.drawn({ "run-use": `/jobs/${job}?tab=use` });
    await p.rest("POST", `/v1/jobs/${job}/stop`, {});
    await page.goto(`${p.url}/jobs/${job}?tab=use`);
    await page.getByText("The job has ended: nothing is in use.").waitFor();
    await page.getByTestId("run-curves").getByRole("img", { name: "CPU cores" }).waitFor();
  });

  test("every page is drawn in both languages, wide and narrow", async () => {
    await p.drawn({
      weights: "/policies",
      records: "/policies?tab=records",
      tests: "/policies?tab=tests",
      modules: "/policies?tab=modules",
      policy: "/policies/trusted",
      versions: "/policies/trusted?tab=versions",
      queues: "/queues",
      stats: "/queues?tab=stats",
      budgets: "/queues?tab=budgets",
      settings: "/queues?tab=settings",
    });
  });

  test("nothing went wrong in the browser", () => assert.deepEqual(p.seen.problems, []));
});
