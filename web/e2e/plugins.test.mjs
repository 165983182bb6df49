// Plug-ins, the wizard, nodes and lost runs in a real browser. It starts a
// platform of its own, with bin/yunhe or $YUNHE_BIN: the example driver is a
// plug-in on demand there, and one that runs elsewhere as well, behind an
// address that can be taken away. Screenshots go to $SHOTS.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { chromium } from "playwright-core";
import { BROWSER, watcher } from "./browser.mjs";

const root = resolve(import.meta.dirname, "../..");
const bin = process.env.YUNHE_BIN ?? join(root, "bin/yunhe");
const skip = existsSync(bin) ? false : `${bin} is not there`;
// What takes a second takes a minute on a busy machine.
const PATIENCE_MS = 120_000;

describe("plug-ins", { skip, timeout: 900_000 }, () => {
  const dir = mkdtempSync(join(tmpdir(), "yunhe-plugins-"));
  const shots = process.env.SHOTS ?? mkdtempSync(join(tmpdir(), "yunhe-shots-"));
  const ends = [];
  let url;
  let key;
  let browser;
  let page;
  let remote;
  let seen;

  before(async () => {
    mkdirSync(shots, { recursive: true });
    const driver = join(dir, "driver");
    execFileSync("go", ["build", "-o", driver, "./examples/driver"], {
      cwd: root,
      env: { ...process.env, CGO_ENABLED: "0" },
    });
    writeFileSync(
      join(dir, "config.yaml"),
      `adapters:\n  plugins:\n    - name: processes\n      command: [${JSON.stringify(driver)}]\n      on_demand: true\n`,
    );
    const socket = join(dir, "remote.sock");
    run(driver, ["--center", "remote", "--dir", join(dir, "remote")], { YUNHE_DRIVER_SOCKET: socket });
    remote = await forward(socket);
    const args = ["up", "--config", join(dir, "config.yaml"), "--data", join(dir, "data"), "--listen", "127.0.0.1:0"];
    url = await said(run(bin, args), /^Console and API: (\S+)$/m);
    key = readFileSync(join(dir, "data/admin.key"), "utf8").trim();
    browser = await chromium.launch(BROWSER);
    seen = watcher(url);
    const context = await browser.newContext({ locale: "en-US", viewport: { width: 1440, height: 900 } });
    context.setDefaultTimeout(PATIENCE_MS);
    seen.watch(context);
    page = await context.newPage();
    await page.goto(`${url}/#key=${encodeURIComponent(key)}`);
    await heading("Overview");
  });

  after(async () => {
    await browser?.close();
    for (const end of ends.reverse()) await end();
    rmSync(dir, { recursive: true, force: true });
    console.log(`screenshots: ${shots}`);
  });

  // Starts a program that is ended, and waited for, at the end.
  function run(command, args, env = {}) {
    // A driver ends when its standard input closes.
    const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "pipe"] });
    const exit = new Promise((done) => child.once("exit", done));
    child.log = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (data) => {
        child.log += data;
        child.emit("said");
      });
    }
    ends.push(() => {
      child.kill("SIGTERM");
      return exit;
    });
    return child;
  }

  function said(child, pattern) {
    return new Promise((found, failed) => {
      const look = () => {
        const match = pattern.exec(child.log);
        if (match) found(match[1]);
      };
      child.on("said", look);
      child.once("exit", (code) => failed(new Error(`it ended with ${code}:\n${child.log}`)));
      look();
    });
  }

  // An address at which a private socket is reached, until it is taken away.
  async function forward(socket) {
    const open = new Set();
    const server = createServer((from) => {
      const to = connect(socket);
      for (const [a, b] of [
        [from, to],
        [to, from],
      ]) {
        open.add(a);
        a.pipe(b);
        a.on("error", () => b.destroy());
        a.on("close", () => {
          open.delete(a);
          b.destroy();
        });
      }
    });
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    const close = () =>
      new Promise((done) => {
        server.close(done);
        for (const s of open) s.destroy();
      });
    ends.push(() => (server.listening ? close() : undefined));
    return { address: `http://127.0.0.1:${server.address().port}`, close };
  }

  const shot = (name) => page.screenshot({ path: join(shots, `${name}.png`), fullPage: true });
  const heading = (name) => page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
  const row = (text) => page.locator(".ant-table-tbody tr.ant-table-row", { hasText: text });
  const stateOf = (text, state) => row(text).locator(".yh-state", { hasText: state }).waitFor();
  const confirm = (name) => page.getByRole("dialog").getByRole("button", { name, exact: true }).click();
  const field = (label) => page.locator(".yh-connect").getByLabel(label, { exact: true });
  const live = (state) => page.locator(".yh-panel-head .yh-state", { hasText: state }).waitFor();

  async function act(center, action) {
    await page.getByRole("button", { name: `Actions: ${center}` }).click();
    await page.getByRole("menuitem", { name: action, exact: true }).click();
  }

  async function rest(method, path, body) {
    const answer = await fetch(url + path, {
      method,
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
      body: body && JSON.stringify(body),
    });
    const text = await answer.text();
    assert.equal(answer.status, 200, `${method} ${path}: ${text}`);
    return JSON.parse(text);
  }

  // Everything that can be typed into has a name that is read out.
  async function named() {
    const without = await page
      .locator("main input, main textarea, .ant-modal input, form input, form textarea")
      .evaluateAll((list) =>
        list
          .filter((e) => e.type !== "file" && e.offsetParent !== null)
          .filter((e) => !e.getAttribute("aria-label") && !e.labels?.length)
          .map((e) => e.outerHTML),
      );
    assert.deepEqual(without, [], "inputs without a label");
  }

  test("the list shows what there is", async () => {
    await page.getByRole("navigation").getByRole("link", { name: "Plug-ins", exact: true }).click();
    await heading("Plug-ins");
    await stateOf("gateway", "Up");
    await stateOf("processes", "Idle");
    await row("processes").getByText("Configured").waitFor();
    await row("gateway").getByText("Built in").waitFor();
    await shot("plugins");
  });

  test("the wizard refuses what is wrong, at the field", async () => {
    await page.goto(`${url}/centers`);
    await page.getByRole("link", { name: "Connect a center" }).click();
    // By keyboard alone.
    await page.getByTestId("plugin-processes").focus();
    await page.keyboard.press("Enter");
    await field("Region").waitFor();
    await named();
    await page.getByTestId("review").click();
    await page.locator(".ant-form-item-explain-error", { hasText: "Required" }).waitFor();
    await field("Center ID").fill("no spaces");
    await page.locator(".ant-form-item-explain-error", { hasText: "Letters, digits" }).waitFor();
    // The platform's own refusal comes back to the field.
    await field("Center ID").fill("local");
    await page.getByTestId("review").click();
    seen.expectRefusal = true;
    await page.getByTestId("apply").click();
    await page.locator(".ant-form-item-explain-error", { hasText: "is connected already" }).waitFor();
    seen.expectRefusal = false;
  });

  test("a center is connected with the form and comes up", async () => {
    await field("Center ID").fill("proc-1");
    await field("Name").fill("Processes");
    await field("Region").fill("lab");
    await field("Dir").fill(join(dir, "proc-1"));
    await page.getByRole("button", { name: "Add: prices" }).click();
    await page.getByLabel("prices 1: Name").fill("small");
    await page.getByLabel("prices 1: Value").fill("120");
    await page.getByRole("button", { name: "Add: prices" }).click();
    await page.getByLabel("prices 2: Name").fill("small");
    await page.locator(".ant-form-item-explain-error", { hasText: "twice" }).waitFor();
    await page.getByRole("button", { name: "Remove: prices 2" }).click();
    await page.getByRole("button", { name: "Add: labels" }).click();
    await page.getByLabel("labels 1: Name").fill("owner");
    await page.getByLabel("labels 1: Value").fill("lab");
    await named();
    await shot("wizard-form");
    await page.getByTestId("review").click();
    const lines = page.getByTestId("review-lines");
    await lines.getByText("prices.small").waitFor();
    await shot("wizard-review");
    await page.getByTestId("apply").click();
    await live("Up");
    await page.getByText("Processes is connected with").waitFor();
    await shot("wizard-up");
    await page.getByRole("link", { name: "Go to the center" }).click();
    await heading("Processes");
    await page.locator(".yh-panel", { hasText: "Connection" }).locator(".yh-state", { hasText: "Up" }).waitFor();
    await page.getByTestId("node-summary").filter({ hasText: "1 node: 1 ready" }).waitFor();
    await page.getByRole("button", { name: "machine" }).click();
    await page.getByRole("dialog").getByText("Allocatable").waitFor();
    await shot("node");
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await shot("center-connection");
  });

  test("trouble is shown as it is, and a changed configuration mends it", async () => {
    const file = join(dir, "a-file");
    writeFileSync(file, "");
    await page.goto(`${url}/connect?plugin=processes`);
    await field("Center ID").fill("proc-2");
    await field("Dir").fill(file);
    await page.getByTestId("review").click();
    await page.getByTestId("apply").click();
    await page.getByTestId("live-message").filter({ hasText: file }).waitFor();
    await shot("wizard-trouble");
    await page.getByRole("button", { name: "Change configuration" }).click();
    assert.equal(await field("Center ID").isDisabled(), true);
    assert.equal(await field("Dir").inputValue(), file, "what was typed is still there");
    await field("Dir").fill(join(dir, "proc-2"));
    await page.getByTestId("review").click();
    await page.getByTestId("apply").click();
    await live("Up");
  });

  test("a kubeconfig is typed masked and never shown", async () => {
    await page.goto(`${url}/connect?plugin=kubernetes`);
    await field("Center ID").fill("kube-1");
    const text = field("Kubeconfig");
    await text.fill(
      JSON.stringify({
        apiVersion: "v1",
        kind: "Config",
        "current-context": "c",
        clusters: [{ name: "c", cluster: { server: "http://127.0.0.1:1" } }],
        users: [{ name: "u", user: { token: "top-secret" } }],
        contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
      }),
    );
    assert.equal(await text.evaluate((e) => getComputedStyle(e).webkitTextSecurity), "disc");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    assert.equal(await text.evaluate((e) => getComputedStyle(e).webkitTextSecurity), "none");
    await page.getByRole("button", { name: "Hide", exact: true }).click();
    await page.getByRole("button", { name: "Add: resources" }).click();
    await named();
    // What was begun must be finished.
    await page.getByTestId("review").click();
    await page.locator(".ant-form-item-explain-error", { hasText: "Required" }).first().waitFor();
    await shot("wizard-kubernetes");
    await page.getByRole("button", { name: "Remove: resources 1" }).click();
    await page.getByTestId("review").click();
    await page.getByTestId("review-lines").getByText("Set, not shown").waitFor();
    assert.doesNotMatch((await page.getByTestId("review-lines").textContent()) ?? "", /top-secret/);
    await shot("wizard-secret");
    await page.getByTestId("apply").click();
    await page.getByTestId("live-message").filter({ hasText: "127.0.0.1:1" }).waitFor();
    await shot("wizard-unreachable");
    await page.getByRole("button", { name: "Disconnect" }).click();
    await confirm("Disconnect");
    await page.getByText("No center is connected through it").waitFor();
  });

  test("an instance is disabled, with a question, and enabled", async () => {
    await page.goto(`${url}/plugins/processes`);
    await stateOf("proc-2", "Up");
    await act("proc-2", "Disable");
    await shot("confirm-disable");
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    await stateOf("proc-2", "Up");
    await act("proc-2", "Disable");
    await confirm("Disable");
    await stateOf("proc-2", "Disabled");
    await act("proc-2", "Enable");
    await stateOf("proc-2", "Up");
    await act("proc-2", "Disconnect");
    await confirm("Disconnect");
    await row("proc-2").waitFor({ state: "detached" });
  });

  test("a plug-in is restarted", async () => {
    await page.getByTestId("restart").click();
    await confirm("Restart");
    await page.getByText("processes is restarting").waitFor();
    await stateOf("proc-1", "Up");
    await shot("plugin");
  });

  test("lost runs are written off, only when they are lost", async () => {
    const job = await rest("POST", "/v1/jobs", {
      job: {
        name: "lost",
        tasks: [
          {
            name: "t",
            command: "sleep 600",
            imageId: "host",
            resourceSpecId: "small",
            replicaNumber: 1,
            constraints: { centers: ["proc-1"] },
          },
        ],
      },
    });
    await page.goto(`${url}/jobs/${job.jobId}`);
    await page.locator(".yh-head .yh-state", { hasText: "Running" }).waitFor();
    assert.equal(await page.getByTestId("write-off").count(), 0);
    await rest("PATCH", "/v1/plugins/processes/instances/proc-1", { enabled: false });
    await page.getByTestId("write-off").click();
    await page.getByTestId("write-off-confirm").click();
    await page.locator(".ant-form-item-explain-error", { hasText: "Required" }).waitFor();
    await page.getByLabel("Reason").fill("rack 7 burned");
    await named();
    await shot("write-off");
    await page.getByTestId("write-off-confirm").click();
    await page.locator(".yh-head .yh-state", { hasText: "Failed" }).waitFor();
    await page.getByText("rack 7 burned").first().waitFor();
    await page.getByTestId("write-off").waitFor({ state: "detached" });
    await shot("written-off");
    await rest("PATCH", "/v1/plugins/processes/instances/proc-1", { enabled: true });
  });

  test("a plug-in elsewhere is registered by its address, loses it, and is removed", async () => {
    await page.goto(`${url}/connect`);
    await page.getByRole("link", { name: /A plug-in that runs elsewhere/ }).click();
    await page.getByRole("dialog").getByLabel("Plug-in").fill("elsewhere");
    await page.getByLabel("Address 1", { exact: true }).fill("127.0.0.1:70");
    await page.getByTestId("register").click();
    await page.locator(".ant-form-item-explain-error", { hasText: "http(s)://host:port" }).waitFor();
    await page.getByLabel("Address 1", { exact: true }).fill(remote.address);
    await named();
    await shot("register");
    await page.getByTestId("register").click();
    await heading("elsewhere");
    await stateOf("remote", "Up");
    await row("remote").getByText(remote.address).waitFor();
    await shot("registered");
    await remote.close();
    await stateOf("remote", "Down");
    assert.notEqual((await row("remote").locator("td").nth(2).textContent()).trim(), "–", "why it is down is said");
    await shot("registered-down");
    await page.getByRole("button", { name: "Change addresses" }).click();
    await page.getByRole("button", { name: "Add an address" }).click();
    await page.getByLabel("Address 2", { exact: true }).fill("http://127.0.0.1:1");
    await page.getByRole("button", { name: "Remove: Address 1" }).click();
    await page.getByTestId("register").click();
    await page
      .locator(".ant-modal-confirm", { hasText: "Give up 1 address?" })
      .getByRole("button", { name: "Save" })
      .click();
    await row("http://127.0.0.1:1").waitFor();
    await row(remote.address).waitFor({ state: "detached" });
    await page.getByTestId("remove").click();
    await confirm("Remove");
    await heading("Plug-ins");
    await row("elsewhere").waitFor({ state: "detached" });
    await page.goto(`${url}/centers/remote`);
    await page.getByText("There is no plug-in elsewhere any more").waitFor();
    await page.locator(".yh-head .yh-state", { hasText: "Unavailable" }).waitFor();
  });

  test("nodes of all centers are counted and filtered", async () => {
    await page.getByRole("navigation").getByRole("link", { name: "Nodes", exact: true }).click();
    await heading("Nodes");
    await row("machine").first().waitFor();
    const total = Number(await page.getByTestId("nodes-total").textContent());
    assert.equal(await row("machine").count(), total);
    await page.getByLabel("Center", { exact: true }).click();
    await page.locator('.ant-select-item-option[title="Processes"]').click();
    await page.waitForURL(/center=proc-1/);
    await page.waitForFunction(() => document.querySelectorAll(".ant-table-tbody tr.ant-table-row").length === 1);
    const labels = page.getByRole("combobox", { name: "Labels: name or name=value" });
    await labels.fill("zone=nowhere");
    await labels.press("Enter");
    await page.getByText("No node passes the filter").waitFor();
    await page.getByRole("button", { name: "Clear filters" }).click();
    await row("machine").first().waitFor();
    assert.equal(new URL(page.url()).search, "");
  });

  test("who may only read changes nothing, who may not read sees nothing", async () => {
    for (const [user, role] of [
      ["reader", "ROLE_AUDITOR"],
      ["worker", "ROLE_USER"],
    ]) {
      await rest("POST", "/v1/users", { userId: user, tenantId: "default", name: user, role });
      const { secret } = await rest("POST", "/v1/keys", { userId: user });
      const context = await browser.newContext({ locale: "en-US", viewport: { width: 1440, height: 900 } });
      context.setDefaultTimeout(PATIENCE_MS);
      seen.watch(context);
      const theirs = await context.newPage();
      await theirs.goto(`${url}/#key=${encodeURIComponent(secret)}`);
      await theirs.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
      const link = theirs.getByRole("navigation").getByRole("link", { name: "Plug-ins", exact: true });
      if (role === "ROLE_AUDITOR") {
        await link.click();
        await theirs.getByRole("link", { name: "processes" }).click();
        await theirs.locator(".ant-table-tbody", { hasText: "proc-1" }).waitFor();
        assert.equal(await theirs.getByRole("button", { name: /^(Restart|Actions.*|Connect a center)$/ }).count(), 0);
      } else {
        assert.equal(await link.count(), 0);
      }
      await theirs.goto(`${url}/connect`);
      await theirs.getByText("Only administrators and operators connect centers").waitFor();
      await theirs.goto(`${url}/centers/proc-1`);
      await theirs.getByTestId("node-summary").waitFor();
      await context.close();
    }
  });

  test("every page is drawn in both languages and themes", async () => {
    const paths = {
      plugins: "/plugins",
      plugin: "/plugins/processes",
      gateway: "/plugins/gateway",
      connect: "/connect",
      join: "/connect?plugin=gateway",
      configure: "/connect?plugin=kubernetes",
      change: "/connect?plugin=processes&center=proc-1",
      live: "/connect?plugin=processes&center=proc-1&live=1",
      nodes: "/nodes",
      center: "/centers/proc-1",
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
          assert.equal(await page.locator(".ant-alert-error").count(), 0, `${path} shows a problem`);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
          assert.ok(wide <= 0, `${path} is ${wide} pixels too wide in ${language}`);
          await shot(`${language}-${theme}-${name}`);
        }
      }
    }
  });

  test("nothing went wrong in the browser", () => assert.deepEqual(seen.problems, []));
});
