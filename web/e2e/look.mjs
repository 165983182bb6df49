// Uses the accelerator pool's page as a person does: each line of its input names a tab and what the row of that
// key should show, or which of its buttons is pressed; it answers "seen", or what was there instead. e2e/pool runs it.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";
import { BROWSER, networkChanged, watcher } from "./browser.mjs";

const url = process.env.YUNHE_URL;
const browser = await chromium.launch(BROWSER);
const context = await browser.newContext({
  locale: "en-US",
  viewport: { width: 1700, height: 1000 },
  reducedMotion: "reduce",
});
context.setDefaultTimeout(Number(process.env.PATIENCE_MS ?? 30_000));
const seen = watcher(url);
seen.watch(context);
const page = await context.newPage();

/** Loads the console, and says whether it came before the network changed: the nodes' interfaces are made meanwhile. */
function loaded() {
  const lost = new Promise((done) => page.on("console", (m) => networkChanged(m.text()) && done(false)));
  const shown = page
    .goto(`${url}/#key=${encodeURIComponent(process.env.YUNHE_KEY)}`)
    .then(() => page.getByRole("heading", { level: 1 }).waitFor())
    .then(() => true)
    .catch((error) => {
      if (!networkChanged(String(error))) throw error;
      return false;
    });
  return Promise.race([shown, lost]);
}
while (!(await loaded())) await page.goto("about:blank");

for await (const line of createInterface({ input: process.stdin })) {
  const { tab, want, press, choose } = JSON.parse(line);
  const [key, ...texts] = want;
  let answer = "seen";
  try {
    await page.goto(`${url}/pool?tab=${tab}`);
    const row = page.locator(
      `.ant-table-tbody tr[data-row-key="${key}"], .ant-table-tbody tr[data-row-key^="${key}/"]`,
    );
    for (const text of texts)
      await row
        .getByText(text, { exact: !/\d/.test(text) })
        .first()
        .waitFor();
    // Done is what was pressed when the platform has answered.
    const done = press && page.waitForResponse((r) => /PoolService\/(Set|Move)/.test(r.url()));
    if (press) await row.getByRole("button", { name: press, exact: true }).first().click();
    if (choose) {
      await page.getByRole("dialog").getByRole("combobox").click();
      await page.getByTitle(choose, { exact: true }).click();
      await page.getByTestId("migrate").click();
    }
    await done;
    // A platform that is upgraded ends what it was answering; the page asks again.
    const problems = seen.problems.filter((p) => !/net::ERR_(INCOMPLETE_CHUNKED_ENCODING|CONNECTION|EMPTY)/.test(p));
    if (problems.length) answer = problems.join("; ");
  } catch (error) {
    answer = String(error);
  }
  console.log(answer.replaceAll("\n", " "));
}
await browser.close();
