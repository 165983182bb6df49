// The accelerator pool in a real browser: a node with the devices of this machine, and
// those that a stand-in of the driver of CUDA plays.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { bin, root, skip, start } from "./platform.mjs";

describe("accelerator pool", { skip, timeout: 900_000 }, () => {
  let p;
  let page;
  let missing = "";
  let cuda = "";

  before(async () => {
    p = await start("pool");
    page = p.page;
    const { token } = await p.rest("POST", "/v1/pool/node-tokens", {});
    const data = join(p.dir, "n");
    const libraries = join(p.dir, "cuda");
    mkdirSync(libraries);
    const source = join(root, "internal/pool/cards/testdata/fakecuda.c");
    const to = join(libraries, "libcuda.so.1");
    try {
      execFileSync("gcc", ["-std=gnu11", "-shared", "-fPIC", "-pthread", "-Wl,-Bsymbolic", "-o", to, source]);
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
      cuda = "no gcc to build what plays the driver of CUDA";
    }
    const { child } = p.run(bin, [
      "pool",
      "node",
      "--join",
      p.url,
      "--token",
      token,
      "--name",
      "n1",
      "--data",
      data,
      "--libraries",
      libraries,
    ]);
    try {
      await p.said(child, /(pool node listens)/);
    } catch (error) {
      if (!/OpenCL|devices of this machine|not built/.test(String(error))) throw error;
      missing = "no device of OpenCL";
      console.log(`SKIPPED: ${missing}`);
      return;
    }
    await p.until(
      async () => (await p.rest("GET", "/v1/pool/nodes")).nodes[0]?.devices?.length,
      "its devices are there",
    );
  });
  after(() => p?.end());

  const tab = (name) => page.getByRole("tab", { name, exact: true }).click();
  const request = (compute) =>
    p.rest("POST", "/v1/pool/slices", {
      computePercent: compute,
      memoryMib: 100,
      fixed: true,
      name: `held ${compute}`,
      nodeId: "n1",
      deviceId: "opencl-0",
    });

  test("a node is there with its devices, and a device is disabled and enabled", async (t) => {
    if (missing) return t.skip(missing);
    await p.open("Accelerator pool");
    await p.heading("Accelerator pool");
    const row = p.at("n1/opencl-0");
    await row.getByText("Online").waitFor();
    await row.getByRole("button", { name: "Disable opencl-0" }).click();
    await row.getByText("Device disabled").waitFor();
    await row.getByRole("button", { name: "Enable opencl-0" }).click();
    await row.getByText("Online").waitFor();
  });

  test("a specification and a group are made", async (t) => {
    if (missing) return t.skip(missing);
    await tab("Specifications");
    await page.getByTestId("new-slice-specs").click();
    await p.dialog().getByLabel("Specification", { exact: true }).fill("quarter");
    await p.named();
    await p.dialog().getByTestId("save").click();
    await p.row("quarter").getByText("25 %").waitFor();
    await tab("Logical groups");
    await page.getByTestId("new-pool-groups").click();
    await p.dialog().getByLabel("Group", { exact: true }).fill("team");
    await p.named();
    await p.dialog().getByTestId("save").click();
    await p.row("team").getByText("default").waitFor();
  });

  test("what is there is edited, and not replaced by a new one of its name; too large a number is told at its field", async (t) => {
    if (missing) return t.skip(missing);
    await p.rest("PUT", "/v1/pool/groups/team", {
      tenantIds: ["default"],
      computeLimitPercent: 90,
      memoryLimitMib: 4096,
      maxPriority: 7,
    });
    await page.getByTestId("new-pool-groups").click();
    await p.dialog().getByLabel("Group", { exact: true }).fill("team");
    await p.dialog().getByTestId("save").click();
    await p.dialog().getByText("team is there already: edit it, or choose another name").waitFor();
    await p.close();
    await p.row("team").getByText("90 %").waitFor();
    await p.row("team").getByRole("button", { name: "Edit team" }).click();
    await p.dialog().getByLabel("Highest priority").fill("99999999999");
    await p.dialog().getByTestId("save").click();
    await p.dialog().getByText("must be at most 2147483647, got 99999999999").waitFor();
    await p.dialog().getByLabel("Highest priority").fill("8");
    await p.dialog().getByTestId("save").click();
    await p.dialog().waitFor({ state: "detached" });
    const team = (await p.rest("GET", "/v1/pool/groups")).groups.find((g) => g.groupId === "team");
    assert.deepEqual([team.computeLimitPercent, team.memoryLimitMib, team.maxPriority], ["90", "4096", 8]);
    await p.rest("PUT", "/v1/pool/groups/team", { tenantIds: ["default"] });
    await p.rest("PUT", "/v1/pool/specs/quarter", { computePercent: 25, memoryMib: "1024", weighted: true });
    await tab("Specifications");
    await p.row("quarter").getByText("25 % weight").waitFor();
    await p.row("quarter").getByRole("button", { name: "Edit quarter" }).click();
    await p.dialog().getByLabel("Memory in MiB").fill("2048");
    await p.dialog().getByTestId("save").click();
    await p.row("quarter").getByText("2 GiB").waitFor();
    await p.row("quarter").getByText("25 % weight").waitFor();
  });

  test("on a phone the table of nodes shows the nodes", async (t) => {
    if (missing) return t.skip(missing);
    await page.setViewportSize({ width: 390, height: 900 });
    await tab("Nodes and devices");
    const covered = await p.until(async () => {
      const cell = p.at("n1/opencl-0").getByText("Online");
      const box = await cell.boundingBox();
      if (!box) return undefined;
      const at = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
      const seen = await page.evaluate(({ x, y }) => document.elementFromPoint(x, y)?.textContent, at);
      return { seen };
    }, "the state of n1 is drawn");
    await p.shot("pool-nodes-phone");
    await page.setViewportSize({ width: 1440, height: 900 });
    assert.equal(covered.seen, "Online");
  });

  test("what is held and what waits is shown, and room that is made is given", async (t) => {
    if (missing) return t.skip(missing);
    const held = await request(80);
    const waits = await request(60);
    await tab("Tasks and queue");
    await p.at(held.sliceId).getByText("Assigned").waitFor();
    await p.at(waits.sliceId).getByText("1 in the queue").waitFor();
    await p.shot("pool-slices");
    await p.at(held.sliceId).getByRole("button", { name: "Release" }).click();
    await page.locator(".ant-popover").getByRole("button", { name: "Release" }).click();
    await p.at(held.sliceId).waitFor({ state: "detached" });
    await p.at(waits.sliceId).getByText("Assigned").waitFor();
    await tab("Nodes and devices");
    await p.at("n1/opencl-0").getByText("60 %").first().waitFor();
    await p.shot("pool-nodes");
  });

  test("devices and slices of CUDA are told apart", async (t) => {
    if (missing || cuda) return t.skip(missing || cuda);
    await p.at("n1/opencl-0").getByText("OpenCL", { exact: true }).waitFor();
    await p.at("n1/cuda-0").getByText("CUDA", { exact: true }).waitFor();
    const slice = await p.rest("POST", "/v1/pool/slices", {
      computePercent: 30,
      memoryMib: 100,
      fixed: true,
      name: "held of CUDA",
      api: "cuda",
    });
    await tab("Tasks and queue");
    const row = p.at(slice.sliceId);
    await row.getByText("CUDA", { exact: true }).waitFor();
    await row.getByText(`n1/${slice.deviceId}`).waitFor();
    await p.shot("pool-cuda");
    await row.getByRole("button", { name: "Release" }).click();
    await page.locator(".ant-popover").getByRole("button", { name: "Release" }).click();
    await row.waitFor({ state: "detached" });
  });

  test("a job is submitted whose run has CUDA's driver on the node's machine", async (t) => {
    if (missing || cuda) return t.skip(missing || cuda);
    if (process.getuid() !== 0) return t.skip("gateways need root to isolate what they run");
    const shared = join(p.dir, "programs");
    mkdirSync(shared);
    const source = join(root, "shim/test/cuda.c");
    const libraries = join(p.dir, "cuda");
    const options = [
      "-std=gnu11",
      "-o",
      join(shared, "cuda"),
      source,
      `-L${libraries}`,
      "-l:libcuda.so.1",
      "-ldl",
      "-pthread",
    ];
    execFileSync("gcc", options);
    const center = join(p.dir, "near.yaml");
    writeFileSync(center, "id: near\nprices: {small: 100}\naccelerators: none\n");
    const { token } = await p.rest("POST", "/v1/join-tokens", { aiCenterId: "near" });
    const near = ["--pool-node", join(p.dir, "n"), "--pool-libraries", libraries, "--share", `${shared}=/programs`];
    const own = ["--center", center, "--measure", "no", "--data", join(p.dir, "near"), "--token", token];
    const { child } = p.run(bin, ["gateway", "--server", p.url, ...own, ...near]);
    await p.said(child, /(connected to the platform)/);

    await page.goto(`${p.url}/jobs/new`);
    await page.getByLabel("Name").first().fill("driver");
    await page.getByRole("textbox", { name: "Command" }).fill("/programs/cuda linked info");
    await p.choose(page, "Image", "host");
    await p.choose(page, "Resource specification", "small");
    await page.getByText("Time limit, constraints, data, quality, accelerators, environment, files").first().click();
    const form = page.getByTestId("task-pool");
    await form.getByLabel("Compute", { exact: true }).fill("30");
    await form.getByLabel("Memory", { exact: true }).fill("100");
    await p.choose(form, "Programs use", "CUDA");
    await page.getByLabel("on the run's machine").check();
    await form.scrollIntoViewIfNeeded();
    await p.shot("pool-job");
    await page.getByTestId("submit").click();
    await page.waitForURL(/\/jobs\/job_/);
    await page.locator(".yh-head .yh-state", { hasText: "Succeeded" }).waitFor();
    await page.getByRole("tab", { name: "Log" }).click();
    await page.locator(".yh-log-line", { hasText: "100 of 100 free" }).waitFor();
    await p.shot("pool-job-log");
    await p.open("Accelerator pool");
  });

  test("a job that waits for the pool says so in both languages, and has no place meanwhile", async (t) => {
    if (missing) return t.skip(missing);
    const tasks = [
      {
        name: "main",
        command: "true",
        imageId: "host",
        resourceSpecId: "small",
        replicaNumber: 1,
        network: true,
        pool: { computePercent: 90, memoryMib: 10 },
      },
    ];
    const job = await p.rest("POST", "/v1/jobs", { job: { name: "waits", priority: 20, tasks } });
    for (const [language, text] of [
      ["zh", "等待其加速卡资源池份额：允许使用的设备目前都没有空间"],
      ["en", "waits for its shares of the accelerator pool: no device that is allowed has room now"],
    ]) {
      await page.evaluate((l) => localStorage.setItem("yunhe.language", l), language);
      await page.goto(`${p.url}/jobs/${job.jobId}`);
      await page.getByTestId("waits").getByText(text).waitFor();
      await p.shot(`pool-job-waits-${language}`);
    }
    assert.equal((await p.rest("GET", `/v1/jobs/${job.jobId}`)).replicas[0].aiCenterId ?? "", "");
    await page.goto(`${p.url}/pool?tab=slices`);
    await page.getByText("1 in the queue: its job's priority 20: no device").waitFor();
    await p.shot("pool-queue-priority");
    await p.rest("POST", `/v1/jobs/${job.jobId}/stop`, {});
    await p.open("Accelerator pool");
  });

  test("the policy of the pool is set", async (t) => {
    if (missing) return t.skip(missing);
    await tab("Scheduling policy");
    await page.getByText("That node first", { exact: true }).click();
    await p.until(async () => (await p.rest("GET", "/v1/pool/policy")).local === "LOCAL_FIRST", "the policy is stored");
    await p.shot("pool-policy");
  });

  test("the pages are drawn in both languages", async (t) => {
    if (missing) return t.skip(missing);
    await p.drawn({
      pool: "/pool",
      "pool-queue": "/pool?tab=slices",
      "pool-specs": "/pool?tab=specs",
      "pool-groups": "/pool?tab=groups",
    });
  });
});
