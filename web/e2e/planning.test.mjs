// Availability is planned while a system is edited, and a service is made,
// looked at and deleted.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { root, skip, start } from "./platform.mjs";

describe("planning", { skip, timeout: 900_000 }, () => {
  let p;
  let page;

  before(async () => {
    p = await start("planning", ["--centers", join(root, "examples/centers.yaml")]);
    page = p.page;
  });
  after(() => p?.end());

  const microservices = (n) =>
    page
      .getByTestId("microservices")
      .filter({ hasText: new RegExp(`^${n}$`) })
      .waitFor();

  test("a system's availability follows what is edited", async () => {
    await page.goto(`${p.url}/availability`);
    await p.heading("Availability");
    await microservices(2);
    await page.getByRole("button", { name: "99.999", exact: true }).click();
    await page.getByText("99.999 % is not reached").or(page.getByText("99.999 % is reached")).first().waitFor();
    await page.locator(".ant-segmented-item", { hasText: "One per submodule" }).click();
    await microservices(5);
    await page.getByTestId("add-module").click();
    await microservices(6);
    await page.locator(".ant-segmented-item", { hasText: "By hand" }).click();
    await page.getByRole("combobox", { name: "Microservice of market" }).waitFor();
    await p.shot("availability");
  });

  test("the study is computed anew, and can be edited on", async () => {
    await page.getByRole("tab", { name: "Published study" }).click();
    await page.getByTestId("study").locator("tbody tr.ant-table-row").nth(39).waitFor();
    assert.equal(await page.getByText("better than published").count(), 1);
    await page.locator("canvas").nth(1).waitFor();
    await p.shot("availability-study");
    await page.getByRole("tab", { name: "Plan", exact: true }).click();
    await page.getByTestId("start-from").click();
    await page.getByRole("menuitem", { name: "The published study" }).click();
    await page.getByTestId("compared").getByText("By dependencies").waitFor();
    await page.getByRole("tab", { name: "This platform" }).click();
    await page.getByTestId("measured").getByText("watch", { exact: true }).waitFor();
    await p.shot("availability-measured");
  });

  test("a service is made of a job, shows where requests go, and is deleted", async () => {
    const job = await p.rest("POST", "/v1/jobs", {
      job: {
        name: "web",
        tasks: [{ name: "t", command: "sleep 900", imageId: "host", resourceSpecId: "small", replicaNumber: 1 }],
      },
    });
    await page.goto(`${p.url}/services`);
    await page.getByTestId("new-service").click();
    await p.dialog().getByLabel("Name", { exact: true }).first().fill("shop");
    const jobs = p.dialog().getByRole("combobox", { name: "Jobs" });
    await jobs.fill(job.jobId);
    await jobs.press("Enter");
    await jobs.press("Escape");
    await p.dialog().getByRole("textbox", { name: "ID", exact: true }).fill("gd");
    await p.dialog().getByTestId("save-service").click();
    await page.getByRole("link", { name: "shop" }).click();
    await page.getByText("No traffic has been reported yet").waitFor();
    const id = new URL(page.url()).pathname.split("/").pop();
    await p.rest("POST", `/v1/services/${id}/traffic`, { reports: [{ originId: "gd", requestsPerSecond: 40 }] });
    await page.getByTestId("routes").getByText("40", { exact: true }).first().waitFor();
    await page.getByRole("heading", { name: "Traffic over time" }).waitFor();
    await page.getByRole("img", { name: "Served by center" }).waitFor();
    await p.shot("service");
    await page.getByRole("button", { name: "Delete" }).click();
    await page.locator(".ant-popover").getByRole("button", { name: "Delete" }).click();
    await page.getByText("There is no service yet").waitFor();
  });
});
