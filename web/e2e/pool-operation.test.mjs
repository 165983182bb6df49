// The operation of the accelerator pool in a real browser: logs, alarms, components and statistics of two nodes with the
// devices of this machine.
import assert from "node:assert/strict";
import { appendFileSync, copyFileSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { bin, skip, start } from "./platform.mjs";

/** A mail server on loopback that keeps the mails it takes. */
function mailServer() {
  const mails = [];
  const server = createServer((socket) => {
    let text = "";
    let data;
    socket.on("error", () => {});
    socket.write("220 mail\r\n");
    socket.on("data", (chunk) => {
      text += chunk;
      for (let end = text.indexOf("\r\n"); end >= 0; end = text.indexOf("\r\n")) {
        const line = text.slice(0, end);
        text = text.slice(end + 2);
        if (data === undefined) {
          if (line === "DATA") data = "";
          socket.write(line === "DATA" ? "354 go on\r\n" : line === "QUIT" ? "221 bye\r\n" : "250 ok\r\n");
        } else if (line === ".") {
          mails.push(data);
          data = undefined;
          socket.write("250 taken\r\n");
        } else data += `${line}\n`;
      }
    });
  });
  return new Promise((listens) => {
    server.listen(0, "127.0.0.1", () => listens({ server, mails, at: `127.0.0.1:${server.address().port}` }));
  });
}

describe("operation of the accelerator pool", { skip, timeout: 900_000 }, () => {
  let p;
  let page;
  let mail;
  let missing = "";

  before(async () => {
    mail = await mailServer();
    p = await start("pool-operation");
    page = p.page;
    for (const name of ["n1", "n2"]) {
      const { token } = await p.rest("POST", "/v1/pool/node-tokens", {});
      const argv = ["pool", "node", "--join", p.url, "--token", token, "--name", name, "--data", join(p.dir, name)];
      const { child } = p.run(bin, argv);
      try {
        await p.said(child, /(pool node listens)/);
      } catch (error) {
        if (!/OpenCL|devices of this machine|not built/.test(String(error))) throw error;
        missing = "no device of OpenCL";
        console.log(`SKIPPED: ${missing}`);
        return;
      }
    }
    await p.until(
      async () => (await p.rest("GET", "/v1/pool/components")).nodes?.filter((n) => n.components?.length).length === 2,
      "the components of both are there",
    );
    await p.rest("PUT", "/v1/pool/groups/team", { tenantIds: ["default"] });
    const slice = await p.rest("POST", "/v1/pool/slices", {
      computePercent: 40,
      memoryMib: 100,
      fixed: true,
      name: "held",
      nodeId: "n1",
      deviceId: "opencl-0",
    });
    await p.rest("POST", `/v1/pool/slices/${slice.sliceId}/release`, {});
    await p.open("Accelerator pool");
  });
  after(async () => {
    await p?.end();
    mail?.server.close();
  });

  const tab = (name) => page.getByRole("tab", { name, exact: true }).click();
  const saved = async (click) => {
    const waits = page.waitForEvent("download");
    await click();
    return readFileSync(await (await waits).path(), "utf8");
  };
  const choose = async (label, option) => {
    await page.getByLabel(label, { exact: true }).click();
    await page.locator(".ant-select-item-option").getByText(option, { exact: true }).click();
  };

  test("the log is filtered, an entry is looked at, and it is exported", async (t) => {
    if (missing) return t.skip(missing);
    await tab("Logs");
    const table = page.getByTestId("pool-logs");
    await table.getByText("slice ended").first().waitFor();
    await page.getByRole("searchbox", { name: "Text", exact: true }).fill("it was released");
    await page.keyboard.press("Enter");
    await table.getByText("slice placed").first().waitFor({ state: "detached" });
    await table.getByText("slice ended").first().click();
    await page.getByTestId("log-entry").getByText("n1/opencl-0").waitFor();
    await p.shot("pool-log-entry");
    await page.keyboard.press("Escape");
    await page.getByTestId("log-entry").waitFor({ state: "hidden" });
    const csv = await saved(() => page.getByRole("button", { name: "Export CSV" }).click());
    assert.match(csv, /^time,level,source/);
    assert.match(csv, /slice ended,n1,opencl-0/);
    await page.getByRole("searchbox", { name: "Text", exact: true }).fill("none says this"); // and no Enter
    const none = await saved(() => page.getByRole("button", { name: "Export CSV" }).click());
    assert.equal(none.trim().split("\n").length, 1, `what is exported is not what the fields say: ${none}`);
    await choose("Level", "Error or worse");
    await page.getByText("Nothing in the log matches").waitFor();
  });

  test("both nodes are configured at once, and take it", async (t) => {
    if (missing) return t.skip(missing);
    await tab("Components");
    const table = page.getByTestId("pool-components");
    await table.getByText("Client library").first().waitFor();
    await table.getByRole("checkbox").first().check();
    await page.getByRole("button", { name: "Configure 2 nodes" }).click();
    await p.dialog().getByLabel("Log level", { exact: true }).click();
    await page.locator(".ant-select-item-option").getByText("Debug", { exact: true }).click();
    await p.dialog().getByTestId("save").click();
    await p.at("n1").getByText("1, taken").waitFor();
    await p.at("n2").getByText("1, taken").waitFor();
    await p.shot("pool-components");
  });

  test("of nodes that differ only what is edited changes", async (t) => {
    if (missing) return t.skip(missing);
    await p.rest("POST", "/v1/pool/components/configure", { nodeIds: ["n2"], change: { idleLimitSeconds: 60 } });
    await tab("Components");
    await p.at("n2").getByText("idle limit").waitFor();
    await page.getByRole("button", { name: "Configure 2 nodes" }).click();
    const idle = p.dialog().getByLabel("End any task not used for so many seconds, 0: as asked");
    assert.equal(await idle.getAttribute("placeholder"), "differs");
    assert.equal(await idle.inputValue(), "");
    await p.dialog().getByLabel("End any task after so many seconds, 0: as asked").fill("86400");
    await p.shot("pool-configure");
    await p.dialog().getByTestId("save").click();
    await p.at("n2").getByText("3, taken").waitFor();
    const { nodes } = await p.rest("GET", "/v1/pool/components");
    const level = "LOG_LEVEL_DEBUG";
    assert.deepEqual(
      nodes.map((n) => n.config),
      [
        { logLevel: level, idleLimitSeconds: "0", runLimitSeconds: "86400" },
        { logLevel: level, idleLimitSeconds: "60", runLimitSeconds: "86400" },
      ],
    );
  });

  test("nodes are upgraded, the second when it is told to go on, and back", async (t) => {
    if (missing) return t.skip(missing);
    const other = join(p.dir, "yunhe-next"); // another program that does the same
    copyFileSync(bin, other);
    appendFileSync(other, "\n");
    const env = { YUNHE_SERVER: p.url, YUNHE_KEY: readFileSync(join(p.dir, "data/admin.key"), "utf8").trim() };
    await p.said(p.run(bin, ["pool", "upgrade", "upload", other, "--as", "v-next"], env).child, /(v-next)/);
    await tab("Components");
    const table = page.getByTestId("pool-components");
    await table.getByText("Client library").first().waitFor();
    await table.getByRole("checkbox").first().check();
    await page.getByRole("button", { name: "Upgrade 2 nodes" }).click();
    await p.choose(p.dialog(), "To version", "v-next");
    await p.dialog().getByLabel("How many at once, 0: all").fill("1");
    await p.dialog().getByText("Wait after the first batch until it is told to go on").click();
    await p.dialog().getByTestId("upgrade").click();
    const upgrades = page.getByTestId("pool-upgrades");
    await upgrades.getByText("Waits to go on").waitFor();
    await p.shot("pool-upgrade");
    const sure = async (name) => {
      await upgrades.getByRole("button", { name }).click();
      await page.locator(".ant-popover").getByRole("button", { name }).click();
    };
    await sure("Go on");
    await p.until(
      async () => (await upgrades.getByText("Done", { exact: true }).count()) === 3,
      "both nodes are upgraded",
    );
    await sure("Roll back");
    await p.until(
      async () => (await upgrades.getByText("Rolled back", { exact: true }).count()) === 3,
      "both nodes are as they were",
    );
  });

  test("people are told by mail of what a rule that was edited finds, and the record is looked at", async (t) => {
    if (missing) return t.skip(missing);
    await tab("Alarms");
    await page.getByText("Notification", { exact: true }).click();
    const form = page.getByTestId("notice-settings");
    await form.getByLabel("Notices by mail").click();
    await form.getByLabel("Recipients").fill("ops@example.org");
    await page.keyboard.press("Enter");
    await form.getByLabel("Sender").fill("yunhe@example.org");
    await form.getByLabel("Mail server, HOST:PORT").fill(mail.at);
    await form.getByLabel("Encryption").click();
    await page.locator(".ant-select-item-option").getByText("None", { exact: true }).click();
    await form.getByTestId("save").click();
    await page.getByText("Saved").waitFor();
    await form.getByRole("button", { name: "Send a test mail" }).click();
    await p.until(() => mail.mails.length === 1, "the test mail came");
    await page.getByText("Rules", { exact: true }).click();
    await p.at("computeFull").getByRole("button", { name: "Edit" }).click();
    await p.dialog().getByLabel("Threshold (%)").fill("30");
    await p.dialog().getByTestId("save").click();
    await p.at("computeFull").getByText("30 %").waitFor();
    await p.at("computeFull").getByRole("switch").click();
    await p.shot("pool-rules");
    await p.rest("POST", "/v1/pool/slices", {
      computePercent: 40,
      memoryMib: 100,
      fixed: true,
      name: "held",
      nodeId: "n1",
      deviceId: "opencl-0",
    });
    await page.getByText("Records", { exact: true }).click();
    await page.getByTestId("pool-alarms").getByText("of device n1/opencl-0 is lent").click();
    await page.getByTestId("pool-alarm").getByText("Warning").waitFor();
    await p.shot("pool-alarm");
    await page.keyboard.press("Escape");
    await p.until(() => mail.mails.some((m) => m.includes("opencl-0")), "the mail about it came");
    await p.at("computeFull").waitFor({ state: "detached" });
    await page.getByText("Rules", { exact: true }).click();
    await p.at("computeFull").getByRole("switch").click();
    await page.getByText("Records", { exact: true }).click();
    await page.getByText("No alarm matches").waitFor();
  });

  test("statistics are shown, and reports are written", async (t) => {
    if (missing) return t.skip(missing);
    await p.until(
      async () => (await p.rest("GET", "/v1/pool/statistics")).devices?.some((d) => Number(d.computeLent) > 0),
      "use is counted",
    );
    await tab("Statistics");
    const box = page.getByTestId("pool-statistics");
    await box.getByText("n1/opencl-0").waitFor();
    await p.shot("pool-statistics");
    const report = (name) => page.locator(".ant-segmented").getByText(name, { exact: true }).click();
    await report("Task scheduling");
    await box.getByText("it was released").waitFor();
    const html = await saved(() => page.getByRole("button", { name: "Export HTML" }).click());
    assert.match(html, /Accelerator pool: task scheduling/);
    const pdf = await saved(() => page.getByRole("button", { name: "Export PDF" }).click());
    assert.match(pdf, /^%PDF-1\.7/);
    await report("Operation");
    // As all times of the console, in its reader's zone.
    const begins = box.getByText(/\d\d-\d\d \d\d:00:00$/);
    await begins.first().waitFor();
    assert.equal(await box.getByText(/T\d\d:00:00Z$/).count(), 0);
    await box.getByText("Device time").first().waitFor();
  });

  test("the pages are drawn in both languages", async (t) => {
    if (missing) return t.skip(missing);
    await p.drawn({
      "pool-logs": "/pool?tab=logs",
      "pool-components": "/pool?tab=components",
      "pool-alarms": "/pool?tab=alarms",
      "pool-statistics": "/pool?tab=statistics",
    });
  });
});
