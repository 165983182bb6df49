// Registry, tags, allocations and operations in a real browser.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { root, skip, start } from "./platform.mjs";

describe("registry, tags and allocations", { skip, timeout: 900_000 }, () => {
  let p;
  let page;

  before(async () => {
    p = await start("registry", ["--centers", join(root, "examples/centers.yaml")]);
    page = p.page;
    await p.until(async () => (await p.rest("GET", "/v1/nodes")).nodes.length === 3, "three nodes are reported");
  });
  after(() => p?.end());

  const nodeOfWuhu = () => page.locator('.ant-table-tbody tr[data-row-key^="node:wuhu:"]');
  const rows = () => page.locator(".ant-table-tbody tr.ant-table-row");

  test("what joined is listed, and filtered by the platform", async () => {
    await p.open("Registry");
    await p.heading("Registry");
    await p.at("center:wuhu").waitFor();
    await nodeOfWuhu().waitFor();
    await p.choose(page.getByRole("search"), "Type", "Compute node");
    await page.waitForURL(/type=node/);
    await p.row("Computing center").first().waitFor({ state: "detached" });
    await p.row("Compute node").first().waitFor();
    await page.getByRole("button", { name: "Clear filters" }).click();
    await p.at("center:wuhu").waitFor();
    await p.shot("registry");
  });

  test("a wrong resource is refused at the field, a right one is registered", async () => {
    await page.getByRole("button", { name: "Register", exact: true }).click();
    const form = p.dialog();
    await form.getByTestId("save-resource").waitFor();
    await p.choose(form, "Type", "Network resource");
    await form.getByLabel("ID", { exact: true }).fill("net 1");
    await form.getByLabel("Region", { exact: true }).fill("guizhou");
    await form.getByLabel("Service provider", { exact: true }).fill("Example Telecom");
    await p.choose(form, /Network type/, "leased_line");
    await form.getByLabel(/^Specification/).fill("10G");
    await p.named();
    p.seen.expectRefusal = true;
    await form.getByTestId("save-resource").click();
    await form
      .locator(".ant-form-item-explain-error", { hasText: /net 1|letters|ID/i })
      .first()
      .waitFor();
    p.seen.expectRefusal = false;
    await form.getByLabel("ID", { exact: true }).fill("net-1");
    await form.getByTestId("save-resource").click();
    await p.heading("net-1");
    await page.getByTestId("attributes").getByText("leased_line").waitFor();
    await p.shot("resource");
  });

  test("it is changed, moved and deleted", async () => {
    await page.getByRole("button", { name: "Change", exact: true }).click();
    await p.dialog().getByLabel("Name", { exact: true }).fill("Line to the south");
    await p.dialog().getByTestId("save-resource").click();
    await p.heading("Line to the south");
    await page.getByRole("button", { name: "Move", exact: true }).click();
    await p.dialog().getByLabel("Part of").fill("center:nowhere");
    p.seen.expectRefusal = true;
    await p.dialog().getByTestId("move-send").click();
    await p.dialog().locator(".ant-form-item-explain-error, .ant-alert-error").first().waitFor();
    p.seen.expectRefusal = false;
    await p.dialog().getByLabel("Part of").fill("center:wuhu");
    await p.dialog().getByTestId("move-send").click();
    await page.getByRole("link", { name: "center:wuhu" }).first().waitFor();
    await p.dialog().waitFor({ state: "detached" });
    await page.getByTestId("delete-resource").click();
    // The page may ask once more for what is gone by then.
    p.seen.expectRefusal = true;
    await p.dialog().getByRole("button", { name: "Delete", exact: true }).click();
    await p.heading("Registry");
    await nodeOfWuhu().waitFor();
    p.seen.expectRefusal = false;
    await p.row("net-1").waitFor({ state: "detached" });
  });

  const take = (name, text) =>
    p
      .dialog()
      .locator('input[type="file"]')
      .setInputFiles({ name, mimeType: "text/plain", buffer: Buffer.from(text) });

  test("a file with mistakes is refused by line, before anything is written", async () => {
    await page.getByTestId("import").click();
    await take(
      "cards.csv",
      "resource_id,type,attributes.supply_mode,attributes.chip_type,attributes.chip_arch,attributes.chip_model,attributes.count\n" +
        "gpu-1,compute,bare_metal,GPU,Hopper,H800,8\ngpu-2,compute,sold,GPU,Hopper,H800,8\ngpu-3,compute,bare_metal,GPU,Hopper,H800,many\n",
    );
    const problems = p.dialog().getByTestId("import-problems");
    await problems.getByRole("row", { name: /4.*gpu-3.*want a number/i }).waitFor();
    await problems.getByRole("row", { name: /3.*gpu-2.*supply_mode/ }).waitFor();
    assert.equal(await p.dialog().getByTestId("import-run").count(), 0, "nothing can be written");
    await p.shot("import-refused");
  });

  test("a right file is checked and imported, exported and imported again", async () => {
    const file = Array.from(
      { length: 60 },
      (_, i) =>
        `- resource_id: gpu-${i}\n  type: compute\n  parent_id: cloud-1\n  attributes: {supply_mode: bare_metal, chip_type: GPU, chip_arch: Hopper, chip_model: H800}\n`,
    ).join("");
    // The parent stands behind its children.
    await take(
      "network.yaml",
      `${file}- resource_id: cloud-1\n  type: cloud\n  service_provider: Example\n  attributes: {cloud_platform_type: public}\n`,
    );
    await p.dialog().getByTestId("import-sum").filter({ hasText: "Would be created: 61" }).waitFor();
    await p.dialog().getByTestId("import-run").click();
    await p
      .dialog()
      .getByTestId("import-sum")
      .filter({ hasText: /^Created: 61/ })
      .waitFor();
    await p.shot("imported");
    await p.close();
    await page.goto(`${p.url}/resources?parent=cloud-1`);
    await rows().nth(49).waitFor();
    await page.getByTestId("page-range").filter({ hasText: "1–50" }).waitFor();
    await page.getByRole("button", { name: "Next page" }).click();
    await page.getByTestId("page-range").filter({ hasText: "51–60" }).waitFor();
    await page.waitForFunction(() => document.querySelectorAll(".ant-table-tbody tr.ant-table-row").length === 10);
    await page.getByRole("button", { name: "Previous page" }).click();
    await rows().nth(49).waitFor();
    await page.goto(`${p.url}/resources`);
    await page.getByTestId("export").click();
    for (const format of ["YAML", "CSV"]) {
      await p.dialog().getByText(format, { exact: true }).click();
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        p.dialog().getByTestId("export-run").click(),
      ]);
      await p.dialog().getByTestId("exported").filter({ hasText: "61 resources" }).waitFor();
      const text = readFileSync(await download.path(), "utf8");
      await p.close();
      await page.getByTestId("import").click();
      await take(download.suggestedFilename(), text);
      await p.dialog().getByTestId("import-sum").filter({ hasText: "unchanged: 61, not written: 0" }).waitFor();
      await p.close();
      if (format === "YAML") await page.getByTestId("export").click();
    }
  });

  test("an identifier is issued, verified and revoked", async () => {
    await page.goto(`${p.url}/resources/gpu-1`);
    await page.getByTestId("issue").click();
    const form = p.dialog();
    await form.getByLabel("City (GB/T 2260)").fill("52");
    await form.getByLabel("Industry (GB/T 4754)").fill("I65");
    await form.getByLabel("Social credit code").fill("91350100M000100Y43");
    await p.choose(form, "Resource type", "IC");
    await form.getByLabel("Data center").fill("GZ01");
    await p.choose(form, "Service type", "BM");
    await form.getByLabel("Chip number").fill("SN0001");
    await form.getByLabel("Availability zone").fill("gz-1");
    p.seen.expectRefusal = true;
    await form.getByTestId("issue-send").click();
    await form.locator(".ant-form-item-explain-error", { hasText: /52/ }).waitFor();
    p.seen.expectRefusal = false;
    await form.getByLabel("City (GB/T 2260)").fill("520100");
    await form.getByTestId("issue-send").click();
    const panel = page.locator(".yh-panel", { hasText: "Compute identifier" });
    await panel.locator(".yh-state", { hasText: "Valid" }).waitFor();
    await panel.getByRole("button", { name: "Verify" }).click();
    await panel.getByText("this platform issued it").waitFor();
    await p.shot("identifier");
    await panel.getByRole("button", { name: "Revoke" }).click();
    await p.dialog().getByLabel("Reason").fill("wrong city");
    await p.dialog().getByTestId("revoke-send").click();
    await panel.locator(".yh-state", { hasText: "Revoked" }).waitFor();
  });

  test("a tag is defined, set on an object, blocked and taken back", async () => {
    await p.open("Tags");
    await p.heading("Tags");
    await page.getByRole("button", { name: "Define a tag" }).click();
    await p.dialog().getByLabel("Key", { exact: true }).fill("Rack");
    await p.dialog().getByTestId("save-tag").click();
    await p.dialog().locator(".ant-form-item-explain-error").first().waitFor();
    await p.dialog().getByLabel("Key", { exact: true }).fill("rack");
    await p.dialog().getByLabel("Title (English)").fill("Rack");
    await p.choose(p.dialog(), "Group", "Business");
    await p.named();
    await p.dialog().getByTestId("save-tag").click();
    await p.row("rack").waitFor();
    await page.getByRole("tab", { name: "Objects" }).click();
    await p.at("center:wuhu").getByRole("button").click();
    const drawer = p.dialog();
    await drawer.getByTestId("object-tags").waitFor();
    await p.choose(drawer, "Tag", "(rack)");
    await drawer.getByRole("combobox", { name: "Value" }).fill("7");
    await drawer.getByRole("textbox", { name: "Reason" }).fill("moved in");
    await drawer.getByTestId("set-tag").click();
    const mine = drawer.getByTestId("object-tags").locator("tr.ant-table-row", { hasText: "rack" });
    await mine.getByText("7", { exact: true }).waitFor();
    await mine.getByText(/Set by/).waitFor();
    await p.shot("object-tags");
    await mine.getByRole("button", { name: "Block" }).click();
    await mine.getByText("No value").waitFor();
    await mine.getByRole("button", { name: "Take back" }).click();
    await mine.waitFor({ state: "detached" });
    await p.close();
  });

  test("an expression is checked while it is typed, and finds objects", async () => {
    const where = page.getByRole("textbox", { name: "Only those for which this is true" });
    await where.fill("region == 5");
    await page.getByTestId("expression-problem").filter({ hasText: "Line 1, column 8" }).waitFor();
    await where.fill('region == "anhui"');
    await page.getByTestId("expression-good").waitFor();
    await page.getByTestId("find").click();
    await p.at("center:guian").waitFor({ state: "detached" });
    await p.at("center:wuhu").waitFor();
  });

  test("tags of all that match are changed at once, after a look at it", async () => {
    await page.getByTestId("batch").click();
    const changes = p.dialog().getByRole("combobox", { name: "Changes" });
    await changes.fill("rack=9");
    await changes.press("Enter");
    await p.dialog().getByTestId("batch-check").click();
    await p.dialog().getByTestId("batch-result").filter({ hasText: "1 values of 1 objects would change" }).waitFor();
    await p.dialog().getByTestId("batch-run").click();
    await p.dialog().getByTestId("batch-result").filter({ hasText: "objects changed" }).waitFor();
    await p.shot("batch");
    await p.close();
    await p.at("center:wuhu").getByText("rack=9").waitFor();
  });

  test("a rule is written with a look at what it would meet, and sets its tag", async () => {
    await page.getByRole("tab", { name: "Rules" }).click();
    await page.getByTestId("new-rule").click();
    const form = p.dialog();
    await form.getByLabel("ID", { exact: true }).fill("south");
    await p.choose(form, "Sets the tag", "(purpose)");
    let checked = 0; // by the field, and before objects are looked for
    page.on("response", (r) => {
      if (r.url().endsWith("/CheckExpression") && r.request().postDataBuffer()?.includes("regionn")) checked++;
    });
    await form.getByRole("textbox", { name: "When" }).fill('region == "guizhou" || regionn == "x"');
    await form.getByTestId("expression-problem").filter({ hasText: "regionn" }).waitFor();
    await p.until(() => checked === 2, "the preview has checked the condition");
    await form.getByRole("textbox", { name: "When" }).fill('region == "guizhou"');
    await form.getByTestId("rule-preview").filter({ hasText: "1 object: Gui'an green center" }).waitFor();
    await form.getByLabel("Value", { exact: true }).fill("backup");
    await p.named();
    await p.shot("rule");
    await form.getByTestId("save-rule").click();
    await p.row("south").locator("td").nth(4).filter({ hasText: /^1$/ }).waitFor();
    await page.getByRole("tab", { name: "History" }).click();
    await p.row("center:guian").filter({ hasText: "Rule south" }).first().waitFor();
    await p.row("center:wuhu").filter({ hasText: "rack" }).first().waitFor();
    await p.shot("tag-history");
  });

  test("resources are applied for, changed and given back, step by step", async () => {
    // The cross of the amount that is there; the keyboard holds Backspace back for a moment.
    const tagOf = (within) => within.locator(".ant-form-item .anticon-close").first();
    await p.open("Allocations");
    await p.heading("Allocations");
    await page.getByTestId("apply-allocation").click();
    const form = p.dialog();
    await form.getByLabel("Name", { exact: true }).fill("night batch");
    await form.getByRole("radio", { name: "Amounts" }).check();
    const amounts = form.getByRole("combobox", { name: "Amounts" });
    await amounts.fill("cpu=many");
    await amounts.press("Enter");
    await form.getByTestId("apply-send").click();
    await form.locator(".ant-form-item-explain-error", { hasText: "name=quantity" }).waitFor();
    await tagOf(form).click(); // "cpu=many" goes
    await amounts.fill("cpu=1");
    await amounts.press("Enter");
    await p.choose(form, "Center", "Wuhu");
    await p.named();
    await form.getByTestId("apply-send").click();
    const detail = p.dialog().filter({ hasText: "alc_" });
    await detail.getByTestId("allocation-state").filter({ hasText: "Granted" }).waitFor();
    await p.shot("allocation");
    await detail.getByTestId("adjust").click();
    const adjust = p.dialog().filter({ hasText: "Change night batch" });
    await tagOf(adjust).click();
    await adjust.getByRole("combobox", { name: "Amounts" }).fill("cpu=500m");
    await adjust.getByRole("combobox", { name: "Amounts" }).press("Enter");
    await adjust.getByTestId("adjust-send").click();
    await adjust.waitFor({ state: "detached" });
    await detail.getByTestId("allocation-use").filter({ hasText: "0.5" }).waitFor();
    await detail.getByTestId("release").click();
    await page.getByTestId("release-send").click();
    await p.dialog().filter({ hasText: "Release night batch?" }).waitFor({ state: "detached" });
    await detail.getByTestId("allocation-state").filter({ hasText: "Released" }).waitFor();
    await detail.getByTestId("operations").getByText("Release", { exact: true }).first().waitFor();
    await p.close();
    await p.row("night batch").filter({ hasText: "Released" }).waitFor();
  });

  test("a node is isolated, listed, restored, and its operations are told with their steps", async () => {
    const [node] = (await p.rest("GET", "/v1/nodes?ai_center_id=wuhu")).nodes;
    await p.rest("POST", "/v1/centers/wuhu/isolate", { node: node.name, reason: "new fans" });
    await page.goto(`${p.url}/allocations?tab=nodes`);
    const mine = p.row(node.name).filter({ hasText: "new fans" });
    await mine.locator(".yh-state", { hasText: "It is" }).waitFor();
    await p.shot("node-controls");
    await mine.getByRole("button", { name: "Restore" }).click();
    await p.dialog().getByTestId("node-control-confirm").click();
    await mine.waitFor({ state: "detached" });
    await page.getByRole("tab", { name: "Operations" }).click();
    await p.row("Restore").first().getByRole("button").click();
    await p.dialog().getByTestId("operation-state").filter({ hasText: "Succeeded" }).waitFor();
    await p.dialog().getByTestId("operation-steps").locator("time").first().waitFor();
    await p.shot("operation");
    await p.close();
    await page.getByRole("tab", { name: "By region" }).click();
    await page.getByRole("region", { name: "anhui" }).getByText("Wuhu hub").waitFor();
  });

  test("who may only read changes nothing", async () => {
    await p.rest("POST", "/v1/users", { userId: "reader", tenantId: "default", name: "reader", role: "ROLE_AUDITOR" });
    const { secret } = await p.rest("POST", "/v1/keys", { userId: "reader" });
    const theirs = await p.signedIn(secret);
    for (const [path, seen] of [
      ["/resources", "cloud-1"],
      ["/resources/gpu-1", "H800"],
      ["/tags", "rack"],
      ["/tags?tab=rules", "south"],
      ["/allocations", "night batch"],
    ]) {
      await theirs.goto(p.url + path);
      await theirs.getByText(seen).first().waitFor();
      const names = /^(Register|Import|Define a tag|New rule|Apply|Change|Move|Delete|Issue|Set)$/;
      assert.equal(await theirs.getByRole("main").getByRole("button", { name: names }).count(), 0, path);
    }
    await theirs.context().close();
  });

  test("every page is drawn in both languages, wide and narrow", async () => {
    await p.drawn({
      registry: "/resources",
      resource: "/resources/gpu-1",
      joined: "/resources/center%3Awuhu",
      tags: "/tags",
      objects: "/tags?tab=objects&kind=node",
      rules: "/tags?tab=rules",
      history: "/tags?tab=history",
      allocations: "/allocations",
      regions: "/allocations?tab=regions",
      controls: "/allocations?tab=nodes",
      operations: "/allocations?tab=operations",
    });
  });

  test("nothing went wrong in the browser", () => assert.deepEqual(p.seen.problems, []));
});
