// Looks at the accelerator pool's page as a person does: each line of its input names a tab and what the row of
// that key should show; it answers "seen", or what was there instead. e2e/pool runs it.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";
import { BROWSER, watcher } from "./browser.mjs";

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
await page.goto(`${url}/#key=${encodeURIComponent(process.env.YUNHE_KEY)}`);
await page.getByRole("heading", { level: 1 }).waitFor();

for await (const line of createInterface({ input: process.stdin })) {
  const { tab, want } = JSON.parse(line);
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
    if (seen.problems.length) answer = seen.problems.join("; ");
  } catch (error) {
    answer = String(error);
  }
  console.log(answer.replaceAll("\n", " "));
}
await browser.close();
