// Reservations and maintenance in a real browser: room is promised, refused
// where there is none, used by a job and given back; a center is taken out of
// use and put back.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { root, skip, start } from "./platform.mjs";

const HOUR_MS = 3_600_000;

describe("calendar", { skip, timeout: 900_000 }, () => {
  let p;
  let page;
  let reservation;

  before(async () => {
    p = await start("calendar", ["--centers", join(root, "examples/centers.yaml")]);
    page = p.page;
    await p.until(async () => (await p.rest("GET", "/v1/nodes")).nodes.length === 3, "three nodes are reported");
  });
  after(() => p?.end());

  // Types a moment, as the console writes it, into a field with a calendar.
  const at = async (label, ms) => {
    const d = new Date(ms);
    const two = (n) => n.toString().padStart(2, "0");
    const text = `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
    const field = p.dialog().getByLabel(label, { exact: true });
    await field.fill(text);
    await page.locator(".ant-picker-dropdown:not(.ant-picker-dropdown-hidden) .ant-picker-ok button").click();
  };
  const state = (row, text) => row.locator(".yh-state", { hasText: new RegExp(`^${text}$`) }).waitFor();

  test("room is promised for later, and the list says so", async () => {
    await page.goto(`${p.url}/allocations?tab=reservations`);
    await page.getByText("There is no reservation yet").waitFor();
    await page.getByTestId("new-reservation").click();
    await p.named();
    await p.dialog().getByLabel("Name", { exact: true }).fill("exam week");
    await p.choose(p.dialog(), "Specification", "small");
    await at("From", Date.now() + 24 * HOUR_MS);
    await at("Until", Date.now() + 26 * HOUR_MS);
    await p.dialog().getByLabel("Comes again", { exact: true }).fill("FREQ=SOMETIMES");
    p.seen.expectRefusal = true; // the browser may tell of it later
    await p.dialog().getByTestId("reserve-send").click();
    await p
      .dialog()
      .getByText(/FREQ|SOMETIMES/)
      .first()
      .waitFor();
    await p.shot("reservation-refused");
    await p.dialog().getByLabel("Comes again", { exact: true }).fill("FREQ=DAILY;COUNT=2");
    await p.dialog().getByTestId("reserve-send").click();
    const detail = p.dialog().filter({ hasText: "FREQ=DAILY;COUNT=2" });
    await detail
      .locator(".yh-state", { hasText: /^Planned$/ })
      .first()
      .waitFor();
    assert.equal(await detail.locator(".ant-table-tbody tr.ant-table-row").count(), 2, "both times are listed");
    await p.shot("reservation");
    await p.close();
    reservation = (await p.rest("GET", "/v1/reservations")).reservations[0].reservationId;
    await state(p.at(reservation), "Planned");
  });

  test("it is given back", async () => {
    await p.at(reservation).getByRole("button").first().click();
    await p.dialog().getByRole("button", { name: "Give back" }).click();
    await page.locator(".ant-modal-confirm").getByRole("button", { name: "Give back" }).click();
    await p
      .dialog()
      .locator(".yh-state", { hasText: /^Canceled$/ })
      .first()
      .waitFor();
    await p.close();
    await state(p.at(reservation), "Canceled");
  });

  test("a center is taken out of use, says so, and comes back", async () => {
    await page.getByRole("tab", { name: "Maintenance" }).click();
    await page.getByText("No maintenance is planned").waitFor();
    await page.getByTestId("new-maintenance").click();
    await p.named();
    await p.choose(p.dialog(), "Center", "Beijing");
    await p.dialog().getByLabel("Reason", { exact: true }).fill("new power supply");
    await at("Until", Date.now() + HOUR_MS);
    await p.shot("maintenance-new");
    await p.dialog().getByTestId("maintenance-send").click();
    await p.dialog().waitFor({ state: "detached" });
    await state(p.row("new power supply"), "Under way");
    await p.shot("maintenance");
    await page.goto(`${p.url}/centers/beijing`);
    await page.getByTestId("center-maintenance").filter({ hasText: "new power supply" }).waitFor();
    await page.goto(`${p.url}/allocations?tab=maintenance`);
    await p.row("new power supply").getByRole("button", { name: "End now" }).click();
    await page.locator(".ant-modal-confirm").getByRole("button", { name: "End now" }).click();
    await p.row("new power supply").waitFor({ state: "detached" });
    await page.getByRole("checkbox", { name: /what is over/ }).check();
    await state(p.row("new power supply"), "Canceled");
  });

  test("every page is drawn in both languages, wide and narrow", async () => {
    await p.drawn({
      reservations: "/allocations?tab=reservations",
      maintenance: "/allocations?tab=maintenance",
    });
  });

  test("nothing went wrong in the browser", () => assert.deepEqual(p.seen.problems, []));
});
