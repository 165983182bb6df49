// The topology in a real browser: 10,000 nodes of 80,000 cards, reported by
// centers of this process to a platform that the test starts, with bin/yunhe or
// $YUNHE_BIN. Screenshots go to $SHOTS.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { chromium } from "playwright-core";
import { BROWSER, watcher } from "./browser.mjs";
import { DRAINED, NOT_READY, READY, TestCenter } from "./centers.mjs";

const root = resolve(import.meta.dirname, "../..");
const bin = process.env.YUNHE_BIN ?? join(root, "bin/yunhe");
const skip = existsSync(bin) ? false : `${bin} is not there`;
// What takes a second takes a minute on a busy machine.
const PATIENCE_MS = Number(process.env.PATIENCE_MS ?? 120_000);
// A frame this long is seen as a jerk. The machine may be busy with other tests: what is stated is measured alone.
const JERK_MS = 100;
// About as many cards as there are, whatever joined and left.
const CARDS = /79,99\d|80,00\d/;

const CENTERS = [
  ["guian-1", "Guian", "guizhou", 106.6, 26.4, 2400, "H800"],
  ["guian-2", "Guiyang", "guizhou", 106.7, 26.6, 600, "Ascend 910B"],
  ["zhongwei-1", "Zhongwei", "ningxia", 105.2, 37.5, 1600, "A100"],
  ["ulanqab-1", "Ulanqab", "inner mongolia", 113.1, 41.0, 1500, "H800"],
  ["hohhot-1", "Hohhot", "inner mongolia", 111.7, 40.8, 400, "H20"],
  ["zhangjiakou-1", "Zhangjiakou", "hebei", 114.9, 40.8, 1200, "A100"],
  ["qingyang-1", "Qingyang", "gansu", 107.6, 35.7, 900, "Ascend 910B"],
  ["shaoguan-1", "Shaoguan", "guangdong", 113.6, 24.8, 800, "H800"],
  ["wuhu-1", "Wuhu", "anhui", 118.4, 31.3, 350, "L40S"],
  ["chengdu-1", "Chengdu", "sichuan", 104.1, 30.7, 200, "A800"],
  ["chongqing-1", "Chongqing", "chongqing", 106.5, 29.5, 50, "A800"],
].map(([id, name, region, longitude, latitude, nodes, model]) => ({
  id,
  name,
  region,
  longitude,
  latitude,
  nodes,
  model,
}));

describe("topology", { skip, timeout: 900_000 }, () => {
  const dir = mkdtempSync(join(tmpdir(), "yunhe-topology-"));
  const shots = process.env.SHOTS ?? mkdtempSync(join(tmpdir(), "yunhe-shots-"));
  const centers = CENTERS.map((c) => new TestCenter(c));
  const byId = new Map(centers.map((c) => [c.inventory.ai_center_id, c]));
  const ends = [];
  let url;
  let key;
  let browser;
  let page;
  let seen;

  before(async () => {
    mkdirSync(shots, { recursive: true });
    const child = spawn(bin, ["up", "--data", join(dir, "data"), "--listen", "127.0.0.1:0"], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    const exit = new Promise((done) => child.once("exit", done));
    ends.push(() => {
      child.kill("SIGTERM");
      return exit;
    });
    url = await new Promise((found, failed) => {
      let log = "";
      const look = (data) => {
        log += data;
        const match = /^Console and API: (\S+)$/m.exec(log);
        if (match) found(match[1]);
      };
      child.stdout.on("data", look);
      child.stderr.on("data", look);
      child.once("exit", (code) => failed(new Error(`it ended with ${code}:\n${log}`)));
    });
    key = readFileSync(join(dir, "data/admin.key"), "utf8").trim();
    const served = await Promise.all(centers.map((c) => c.serve()));
    for (const s of served) ends.push(s.end);
    await rest("PUT", "/v1/plugins/test", { endpoints: served.map((s) => s.address) });
    await until(async () => Number((await view()).nodes?.total ?? 0) >= 10_000, "10,000 nodes are known");
    browser = await chromium.launch(BROWSER);
    seen = watcher(url);
    const context = await browser.newContext({ locale: "en-US", viewport: { width: 1440, height: 900 } });
    context.setDefaultTimeout(PATIENCE_MS);
    seen.watch(context);
    page = await context.newPage();
    await page.goto(`${url}/#key=${encodeURIComponent(key)}`);
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  });

  after(async () => {
    await browser?.close();
    for (const end of ends.reverse()) await end();
    rmSync(dir, { recursive: true, force: true });
    console.log(`screenshots: ${shots}`);
  });

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

  const view = () => rest("GET", "/v1/topology/view");

  async function until(check, what) {
    const end = Date.now() + PATIENCE_MS;
    while (!(await check())) {
      assert.ok(Date.now() < end, `not within ${PATIENCE_MS} ms: ${what}`);
      await new Promise((done) => setTimeout(done, 200));
    }
  }

  const shot = (name) => page.screenshot({ path: join(shots, `${name}.png`) });
  const canvas = () => page.getByRole("application", { name: /Map of the network|网络拓扑图/ });
  const here = (name) => page.locator(".yh-topo [aria-current=location]", { hasText: name }).waitFor();
  const count = (health) => page.getByTestId(`health-${health}`).locator("b");
  const whole = (n) => page.getByTestId("topology-totals").filter({ hasText: n }).waitFor();

  // What each frame took, and what it drew, from now on.
  async function measure() {
    await page.evaluate(() => {
      window.frames_ = [];
      window.draws_ = [];
      if (window.measuring_) return;
      window.measuring_ = true;
      new PerformanceObserver((list) => {
        for (const e of list.getEntriesByName("topology.frame")) window.draws_.push({ ms: e.duration, ...e.detail });
      }).observe({ entryTypes: ["measure"] });
      let last = 0;
      const tick = (now) => {
        if (last) window.frames_.push(now - last);
        last = now;
        requestAnimationFrame(tick);
      };
      requestAnimationFrame(tick);
    });
  }

  async function measured(name) {
    const [frames, draws] = await page.evaluate(() => [window.frames_, window.draws_]);
    const at = (list, share) =>
      [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * share))];
    const ms = draws.map((d) => d.ms);
    const most = Object.fromEntries(
      ["tiles", "cells", "cards", "texts"].map((k) => [k, Math.max(...draws.map((d) => d[k]))]),
    );
    const result = { median: at(frames, 0.5), p95: at(frames, 0.95), draw: at(ms, 0.5), draw95: at(ms, 0.95), ...most };
    console.log(
      `${name}: frame median ${result.median.toFixed(1)} ms, p95 ${result.p95.toFixed(1)} ms of ${frames.length}; ` +
        `drawing median ${result.draw.toFixed(2)} ms, p95 ${result.draw95.toFixed(2)} ms of ${draws.length}; most in one: ${JSON.stringify(most)}`,
    );
    return result;
  }

  async function middle() {
    const box = await canvas().boundingBox();
    return [box.x + box.width / 2, box.y + box.height / 2];
  }

  async function pan() {
    const [x, y] = await middle();
    await page.mouse.move(x, y);
    await page.mouse.down();
    for (let i = 0; i < 80; i++) await page.mouse.move(x + Math.sin(i / 7) * 160, y + Math.sin(i / 5) * 90);
    await page.mouse.up();
  }

  async function wheel(steps, delta) {
    const [x, y] = await middle();
    await page.mouse.move(x, y);
    for (let i = 0; i < steps; i++) await page.mouse.wheel(0, delta);
  }

  // jump opens the first of that name, or that of a center: while the view flies there, others are listed first.
  async function jump(name, center = "") {
    await page.getByRole("combobox", { name: /Jump to|跳转/ }).fill(name);
    const options = page.locator(".ant-select-item-option", { hasText: name });
    await options.filter({ hasText: center }).first().click();
  }

  test("10,000 nodes are drawn", async () => {
    await page.getByRole("navigation").getByRole("link", { name: "Topology", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "Topology" }).waitFor();
    await whole("80,000 cards");
    await measure();
    await wheel(1, 1);
    await page.waitForFunction(() => window.draws_.length > 0);
    const most = await page.evaluate(() => Math.max(...window.draws_.map((d) => d.cells)));
    assert.ok(most >= 10_000, `${most} nodes were drawn`);
    // It is a picture: many colors are on it.
    const colors = await page.evaluate(() => {
      const c = document.querySelector(".yh-topo-stage canvas");
      const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
      return new Set(new Uint32Array(data.buffer)).size;
    });
    assert.ok(colors > 20, `${colors} colors`);
    await page.mouse.move(5, 5);
    await shot("network-light");
  });

  test("zooming and panning is smooth, and costs what is in view", async () => {
    await measure();
    await pan();
    const far = await measured("panning the network");
    await jump("Guian");
    await here("Guian");
    await measure();
    await pan();
    await measured("panning a center");
    await measure();
    await wheel(60, -24);
    const zoom = await measured("zooming in");
    await measure();
    await pan();
    const near = await measured("panning nodes");
    await measure();
    await wheel(160, 24);
    await measured("zooming out");
    for (const r of [far, zoom, near]) assert.ok(r.median < JERK_MS, `a frame took ${r.median} ms`);
    assert.ok(far.cells >= 9_000, "the whole network was in view");
    assert.ok(near.cells < 500, `${near.cells} nodes were drawn where few are in view`);
    assert.ok(near.tiles <= 3, `${near.tiles} centers were drawn where one is in view`);
  });

  test("from the network to a card, by keyboard, search and breadcrumb", async () => {
    await page.goto(`${url}/topology`);
    await whole("80,000 cards");
    await jump("Qingyang");
    await here("Qingyang");
    await page.getByTestId("detail").getByRole("heading", { name: "Qingyang" }).waitFor();
    await page.getByTestId("detail").getByRole("link", { name: "Center page" }).waitFor();
    await shot("center-light");
    await jump("node-00123");
    await here("node-00123");
    await page.getByTestId("detail").getByText("Ascend 910B").waitFor();
    await shot("node-light");
    await page.getByRole("button", { name: "Close" }).click();
    // What is in view is a table as well.
    const table = page.getByTestId("in-view");
    await table.getByRole("button", { name: "npu/5" }).click();
    await here("npu/5");
    await shot("card-light");
    await canvas().focus();
    await page.keyboard.press("Escape"); // lets go of what is selected
    await page.getByTestId("detail").waitFor({ state: "detached" });
    await page.keyboard.press("Escape"); // and up
    await here("node-00123");
    await page.keyboard.press("Escape");
    await here("Qingyang");
    await page.locator(".yh-topo").getByRole("navigation").getByRole("button", { name: "Network" }).click();
    await page.locator(".yh-topo [aria-current=location]").waitFor({ state: "detached" });
    await page.keyboard.press("+");
    await canvas().focus();
    await page.keyboard.press("0");
  });

  test("it follows what happens, and stays where it is", async () => {
    await jump("Chengdu");
    await here("Chengdu");
    const before = await page.url();
    const chengdu = byId.get("chengdu-1");
    chengdu.set("node-00007", NOT_READY, "kubelet stopped posting status");
    chengdu.set("node-00008", DRAINED);
    chengdu.add("node-new");
    await count("down").filter({ hasText: /^1$/ }).waitFor();
    await count("isolated").filter({ hasText: /^1$/ }).waitFor();
    await whole("10,00");
    await page.locator(".yh-topo").getByText("80,00").waitFor();
    await here("Chengdu");
    assert.equal(page.url(), before);
    await jump("node-00007");
    await page.getByTestId("detail").getByText("kubelet stopped posting status").first().waitFor();
    await page.getByTestId("detail").getByText("Ready → Not ready", { exact: false }).waitFor();
    await shot("failed-light");
    // A link to it is a link to what is seen.
    await page.reload();
    await here("node-00007");
    chengdu.set("node-00007", READY);
    await count("down").filter({ hasText: /^0$/ }).waitFor();
  });

  test("history is played, stopped at a time, and compared", async () => {
    await page.goto(`${url}/topology`);
    await whole(CARDS);
    const chengdu = byId.get("chengdu-1");
    chengdu.remove("node-00011");
    chengdu.set("node-00012", NOT_READY, "fans");
    await count("down").filter({ hasText: /^1$/ }).waitFor();
    const changes = () => rest("GET", "/v1/topology/changes?nodeId=node:chengdu-1:node-00011&newestFirst=true");
    await until(async () => (await changes()).changes[0]?.kind === "CHANGE_KIND_REMOVED", "node-00011 is gone");
    const before = Date.parse((await changes()).changes[0].at) - 1;
    await page.goto(`${url}/topology?v=center:chengdu-1`);
    await whole(CARDS);
    await here("Chengdu");
    await page.getByTestId("play").click();
    await page.getByTestId("as-of").waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("button", { name: "Play history" }).waitFor();
    assert.match(page.url(), /at=\d+/);
    await here("Chengdu");
    await shot("history-light");
    await page.goto(`${url}/topology?v=center:chengdu-1&base=${before}`);
    // Links come and go, too, where a busy machine measures late.
    await page.getByTestId("diff-removed").filter({ hasText: /[1-9]/ }).waitFor();
    await here("Chengdu");
    await shot("compare-light");
    // What is gone is still shown, and told of as it was.
    await jump("node-00011", "Chengdu");
    await page.getByTestId("detail").getByText("node:chengdu-1:node-00011").waitFor();
    await page.getByTestId("compare").click();
    await page.getByTestId("diff-removed").waitFor({ state: "detached" });
    // As of then, node-00011 is there.
    await page.goto(`${url}/topology?v=node:chengdu-1:node-00011&at=${before}`);
    await here("node-00011");
    await page.getByTestId("now").click();
    await page.getByTestId("as-of").waitFor({ state: "detached" });
  });

  test("colors show what is measured", async () => {
    await page.goto(`${url}/topology`);
    await whole(CARDS);
    await page.getByTestId("color-by").click();
    const options = page.locator(".ant-select-item-option");
    await options.first().waitFor();
    const titles = await options.allTextContents();
    assert.ok(titles.length > 3, `colors by: ${titles}`);
    await options
      .filter({ hasText: /accelerator busy/i })
      .first()
      .click();
    await page.locator(".yh-topo-ramp").waitFor();
    await shot("measured-light");
    await jump("Wuhu");
    await here("Wuhu");
    await shot("measured-center-light");
  });

  test("it is drawn in both languages and themes, and every input has a name", async () => {
    for (const language of ["en", "zh"]) {
      for (const theme of ["light", "dark"]) {
        await page.evaluate(
          ([l, t]) => {
            localStorage.setItem("yunhe.language", l);
            localStorage.setItem("yunhe.theme", t);
          },
          [language, theme],
        );
        for (const [name, query] of Object.entries({
          network: "",
          center: "?v=center:zhangjiakou-1",
          node: "?v=node:shaoguan-1:node-00042",
          card: "?v=card:shaoguan-1/node-00042/gpu/3",
        })) {
          await page.goto(`${url}/topology${query}`);
          await whole(CARDS);
          if (query) await page.getByTestId("detail").locator("dl").waitFor();
          else await page.getByTestId("in-view").waitFor();
          assert.equal(await page.locator(".ant-alert-error").count(), 0, `${query} shows a problem`);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
          assert.ok(wide <= 0, `${wide} pixels too wide in ${language}`);
          await shot(`${language}-${theme}-${name}`);
        }
        const without = await page
          .locator("main input, .yh-topo input, .yh-topo [role=slider], .yh-topo button")
          .evaluateAll((list) =>
            list
              .filter(
                (e) => e.offsetParent !== null && !e.getAttribute("aria-label") && !e.labels?.length && !e.textContent,
              )
              .map((e) => e.outerHTML),
          );
        assert.deepEqual(without, [], "without a name");
      }
    }
  });

  test("other pages lead here", async () => {
    await page.evaluate(() => localStorage.setItem("yunhe.language", "en"));
    for (const path of ["/", "/centers", "/centers/wuhu-1"]) {
      await page.goto(url + path);
      await page.locator("main, .yh-content").getByRole("link", { name: "Topology" }).first().click();
      await page.getByRole("heading", { level: 1, name: "Topology" }).waitFor();
    }
    await here("Wuhu");
  });

  test("nothing went wrong in the browser", () => assert.deepEqual(seen.problems, []));
});
