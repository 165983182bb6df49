// What operators do in a real browser: a gateway joins and ends at its center's
// record, is lost and heard of again; conditions of access; centers side by
// side; a command typed into the terminal of a running job; volumes.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { bin, root, skip, start } from "./platform.mjs";

describe("operation", { skip, timeout: 900_000 }, () => {
  let p;
  let page;
  let lab;

  before(async () => {
    p = await start("operation", ["--centers", join(root, "examples/centers.yaml")]);
    page = p.page;
    await p.until(async () => (await p.rest("GET", "/v1/nodes")).nodes.length === 3, "three nodes are reported");
    writeFileSync(join(p.dir, "lab.yaml"), "id: lab-1\nname: Physics lab\nregion: anhui\nperformance: 1000\n");
  });
  after(() => p?.end());

  const gateway = (token) =>
    p.run(
      bin,
      ["gateway", "--server", p.url, "--data", join(p.dir, "lab"), "--center", join(p.dir, "lab.yaml")],
      token ? { YUNHE_JOIN_TOKEN: token } : {},
    );

  test("the wizard of a gateway ends at the new center's record", async () => {
    await page.goto(`${p.url}/connect?plugin=gateway`);
    await page.getByLabel("Center ID").fill("lab-1");
    await p.named();
    await page.getByTestId("make-token").click();
    await page.getByTestId("join-stages").locator("li").first().filter({ hasText: "Under way" }).waitFor();
    const command = await page.locator(".yh-secret code").textContent();
    assert.match(command, new RegExp(`yunhe gateway --server ${p.url} `));
    await p.shot("join-command");
    lab = gateway(/YUNHE_JOIN_TOKEN=(\S+)/.exec(command)[1]);
    await page.getByTestId("join-stages").locator("li").nth(1).filter({ hasText: "Done" }).waitFor();
    await page.getByText("Physics lab is connected with").waitFor();
    assert.equal(await page.locator(".yh-secret").count(), 0, "the token was shown once");
    await page
      .locator(".yh-state", { hasText: /^compliant$/ })
      .first()
      .waitFor();
    await p.shot("joined");
    await page.getByRole("link", { name: "Its record of access" }).click();
    await p.heading("Access");
    await p.dialog().getByText("center:lab-1").first().waitFor();
    await p
      .dialog()
      .locator(".yh-state", { hasText: /^compliant$/ })
      .first()
      .waitFor();
    await p.shot("access-record");
    await p.close();
  });

  test("records of access are filtered, and a condition is turned off and on", async () => {
    await p.row("Physics lab").first().waitFor();
    await page.getByRole("combobox", { name: "Compliance" }).click();
    await page.locator(".ant-select-item-option", { hasText: "non-compliant" }).click();
    await p.row("Physics lab").first().waitFor({ state: "detached" });
    await page.getByRole("tab", { name: "Conditions" }).click();
    const first = page.locator(".ant-table-tbody").getByRole("switch").first();
    await first.waitFor();
    const name = await first.getAttribute("aria-label");
    const named = page.getByRole("switch", { name, exact: true });
    const was = await named.isChecked();
    for (const now of [!was, was]) {
      await named.click();
      await page.locator(`button[role=switch][aria-checked=${now}]:not([disabled])`).and(named).waitFor();
    }
    await p.shot("access-rules");
  });

  test("a gateway that is lost is an alarm, looked after, and cleared when it is back", async () => {
    await lab.end();
    await p.open(/^Alarms/);
    await p.heading("Alarms");
    const alarm = p.row("lab-1").or(p.row("Physics lab")).first();
    await alarm.waitFor();
    await page.locator(".yh-menu .ant-badge-count").waitFor();
    await alarm.getByTestId("acknowledge").click();
    await p.dialog().getByRole("textbox").fill("someone pulled the plug");
    await p.dialog().getByTestId("acknowledge-confirm").click();
    await p.row("someone pulled the plug").first().waitFor();
    await p.shot("alarm");
    lab = gateway();
    await p.row("someone pulled the plug").first().waitFor({ state: "detached" });
    await page.locator(".ant-segmented-item", { hasText: "Cleared" }).click();
    await p.row("someone pulled the plug").first().waitFor();
    await p.shot("alarm-cleared");
  });

  test("centers are compared side by side", async () => {
    await page.goto(`${p.url}/compare?c=guian`);
    await page.getByText("Choose two").or(page.locator(".ant-empty")).first().waitFor();
    const chosen = page.getByRole("main").getByRole("combobox").first();
    await chosen.click();
    await page.locator(".ant-select-item-option", { hasText: "Beijing" }).click();
    await page.waitForURL(/c=guian&c=beijing/);
    await page.getByRole("columnheader", { name: "Beijing trusted center" }).waitFor();
    const rows = page.locator(".ant-table-tbody tr.ant-table-row");
    await rows.first().waitFor();
    await rows
      .filter({ hasText: /[+−×%]|\d/ })
      .first()
      .waitFor();
    await p.shot("compare");
  });

  test("a command is typed beside a running job, and its end is told", async () => {
    const job = await p.rest("POST", "/v1/jobs", {
      job: {
        name: "sleeper",
        tasks: [{ name: "t", command: "sleep 900", imageId: "host", resourceSpecId: "small", replicaNumber: 1 }],
      },
    });
    await page.goto(`${p.url}/jobs/${job.jobId}`);
    await page.locator(".yh-head .yh-state", { hasText: "Running" }).waitFor();
    await page.getByRole("tab", { name: "Terminal" }).click();
    await page.getByTestId("terminal-open").click();
    const screen = page.getByTestId("terminal");
    await screen.locator(".xterm-rows").waitFor();
    // The shell has shown its prompt.
    await page.waitForFunction(() => /[$#]/.test(document.querySelector(".xterm-rows")?.textContent ?? ""));
    await screen.click();
    await page.keyboard.type("echo said-$((40+2))");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent?.includes("said-42"));
    await p.shot("terminal");
    await page.keyboard.type("exit 3");
    await page.keyboard.press("Enter");
    await page.getByTestId("terminal-status").filter({ hasText: "Ended with exit code 3" }).waitFor();
    await page.getByTestId("stop").click();
    await page.getByRole("tooltip").getByRole("button", { name: "Stop" }).click();
    await page.locator(".yh-head .yh-state", { hasText: "Stopped" }).waitFor();
  });

  test("a volume is made at a center, grown and deleted", async () => {
    await p.open("Volumes");
    await p.heading("Volumes");
    await page.getByTestId("new-volume").click();
    await p.dialog().getByLabel("Name", { exact: true }).fill("Data Set");
    await p.dialog().getByTestId("save-volume").click();
    await p.dialog().locator(".ant-form-item-explain-error", { hasText: "Lower-case" }).waitFor();
    await p.dialog().getByLabel("Name", { exact: true }).fill("data-set");
    await p.choose(p.dialog(), "Center", "Wuhu");
    await p.dialog().getByLabel("Size in GiB").fill("0.5");
    await p.named();
    await p.dialog().getByTestId("save-volume").click();
    await p.row("data-set").locator(".yh-state", { hasText: "Ready" }).waitFor();
    await p.row("data-set").getByRole("button", { name: "Grow" }).click();
    await p.dialog().getByLabel("Size in GiB").fill("0.75");
    await p.dialog().getByTestId("save-volume").click();
    await p.row("data-set").filter({ hasText: "768 MiB" }).waitFor();
    await p.shot("volumes");
    await p.row("data-set").getByRole("button", { name: "Delete" }).click();
    await page.getByRole("tooltip").getByRole("button", { name: "Delete" }).click();
    await p.row("data-set").waitFor({ state: "detached" });
  });

  test("every page is drawn in both languages, wide and narrow", async () => {
    await p.drawn({
      alarms: "/alarms",
      volumes: "/volumes",
      access: "/access",
      compare: "/compare?c=guian&c=beijing",
      join: "/connect?plugin=gateway",
    });
  });

  test("nothing went wrong in the browser", () => assert.deepEqual(p.seen.problems, []));
});
