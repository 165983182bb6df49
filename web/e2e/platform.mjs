// A platform for one file of tests: started with bin/yunhe or $YUNHE_BIN and
// ended with it, with a browser that is signed in.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { chromium } from "playwright-core";
import { BROWSER, watcher } from "./browser.mjs";

export const root = resolve(import.meta.dirname, "../..");
export const bin = process.env.YUNHE_BIN ?? join(root, "bin/yunhe");
export const skip = existsSync(bin) ? false : `${bin} is not there`;
// What takes a second takes a minute on a busy machine.
export const PATIENCE_MS = Number(process.env.PATIENCE_MS ?? 120_000);

/** Starts a platform of that name, with further arguments of `yunhe up`, and a browser. */
export async function start(name, args = []) {
  const dir = mkdtempSync(join(tmpdir(), `yunhe-${name}-`));
  const shots = process.env.SHOTS ?? mkdtempSync(join(tmpdir(), "yunhe-shots-"));
  mkdirSync(shots, { recursive: true });
  const ends = [];

  // Starts a program that is ended, and waited for, at the end.
  function run(command, argv, env = {}) {
    const child = spawn(command, argv, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    const exit = new Promise((done) => child.once("exit", done));
    child.log = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (data) => {
        child.log += data;
        child.emit("said");
      });
    }
    const end = () => {
      child.kill("SIGTERM");
      return exit;
    };
    ends.push(end);
    return { child, end };
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

  const end = async () => {
    await browser?.close();
    for (const one of ends.reverse()) await one();
    rmSync(dir, { recursive: true, force: true });
    console.log(`screenshots: ${shots}`);
  };

  let browser;
  try {
    const { child } = run(bin, ["up", "--data", join(dir, "data"), "--listen", "127.0.0.1:0", ...args]);
    const url = await said(child, /^Console and API: (\S+)$/m);
    const key = readFileSync(join(dir, "data/admin.key"), "utf8").trim();
    browser = await chromium.launch(BROWSER);
    const seen = watcher(url);

    /** A page that is signed in. */
    const signedIn = async (secret, options = {}) => {
      const context = await browser.newContext({
        locale: "en-US",
        viewport: { width: 1440, height: 900 },
        acceptDownloads: true,
        // What opens is where it will be, however busy the machine.
        reducedMotion: "reduce",
        ...options,
      });
      context.setDefaultTimeout(PATIENCE_MS);
      seen.watch(context);
      const page = await context.newPage();
      await page.goto(`${url}/#key=${encodeURIComponent(secret)}`);
      await page.getByRole("heading", { level: 1 }).waitFor();
      return page;
    };
    const page = await signedIn(key);

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

    async function until(check, what) {
      const limit = Date.now() + PATIENCE_MS;
      for (;;) {
        const found = await check();
        if (found) return found;
        assert.ok(Date.now() < limit, `not within ${PATIENCE_MS} ms: ${what}`);
        await new Promise((done) => setTimeout(done, 200));
      }
    }

    const shot = (file) => page.screenshot({ path: join(shots, `${file}.png`), fullPage: true });
    const dialog = () => page.getByRole("dialog");
    const at = (key) => page.locator(`.ant-table-tbody tr[data-row-key="${key}"]`);
    const row = (text) => page.locator(".ant-table-tbody tr.ant-table-row", { hasText: text });

    return {
      dir,
      url,
      key,
      page,
      seen,
      end,
      run,
      said,
      rest,
      until,
      signedIn,
      shot,
      dialog,
      row,
      /** The row of that key. */
      at,
      heading: (text) => page.getByRole("heading", { level: 1, name: text, exact: true }).waitFor(),
      open: (label) => page.getByRole("navigation").getByRole("link", { name: label, exact: true }).click(),
      /** Chooses from a list that was opened by its label. */
      choose: async (within, label, option) => {
        const field = within.getByLabel(label, { exact: true });
        await field.click();
        // Its own list: another one may still be closing.
        await page.locator(".ant-select-dropdown:not(.ant-select-dropdown-hidden)").first().waitFor();
        const list = await field.getAttribute("aria-controls");
        await page
          .locator(`.ant-select-dropdown:has([id="${list}"]) .ant-select-item-option`, { hasText: option })
          .first()
          .click();
      },
      /** Closes what lies over the page. */
      close: async () => {
        await page.keyboard.press("Escape");
        await dialog().waitFor({ state: "detached" });
      },
      /** Everything that can be typed into has a name that is read out. */
      named: async () => {
        const without = await page
          .locator("main input, main textarea, .ant-modal input, form input, form textarea")
          .evaluateAll((list) =>
            list
              .filter((e) => e.type !== "file" && e.offsetParent !== null)
              .filter((e) => !e.getAttribute("aria-label") && !e.labels?.length)
              .map((e) => e.outerHTML),
          );
        assert.deepEqual(without, [], "inputs without a label");
      },
      /** Draws each page in both languages, wide and narrow, and fails if one has a problem or does not fit. */
      drawn: async (paths) => {
        for (const width of [1280, 800]) {
          await page.setViewportSize({ width, height: 900 });
          for (const language of ["zh", "en"]) {
            await page.evaluate((l) => localStorage.setItem("yunhe.language", l), language);
            for (const [file, path] of Object.entries(paths)) {
              await page.goto(url + path);
              await page.getByRole("heading", { level: 1 }).waitFor();
              await page.locator(".ant-skeleton").first().waitFor({ state: "detached" });
              assert.equal(await page.locator(".ant-alert-error").count(), 0, `${path} shows a problem`);
              const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
              assert.ok(wide <= 0, `${path} is ${wide} pixels too wide in ${language} at ${width}`);
              await shot(`${language}-${width}-${file}`);
            }
          }
        }
        await page.setViewportSize({ width: 1440, height: 900 });
      },
    };
  } catch (error) {
    await end();
    throw error;
  }
}
