// The browser the tests run in, and what they hold against it.

export const BROWSER = {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
};

/** Says whether that tells of a network interface made or removed meanwhile, for which the browser gives up what it was loading. */
export const networkChanged = (text) => text.includes("net::ERR_NETWORK_CHANGED");

/** Collects errors in the browser and requests that leave the platform's origin. */
export function watcher(url) {
  const seen = {
    problems: [],
    // Set while a refusal is asked for: the browser reports the refused request as an error.
    expectRefusal: false,
    watch(context) {
      const origin = new URL(url).origin;
      context.on("request", (request) => {
        const target = new URL(request.url());
        if (!["data:", "blob:"].includes(target.protocol) && target.origin !== origin) {
          seen.problems.push(`request to another origin: ${request.url()}`);
        }
      });
      context.on("console", (message) => {
        if (message.type() !== "error") return;
        if (seen.expectRefusal && /status of 4\d\d/.test(message.text())) return;
        // Another test on the machine makes or removes a network interface: the page asks again.
        if (networkChanged(message.text())) return;
        seen.problems.push(`console: ${message.text()} (${message.location().url})`);
      });
      context.on("weberror", (error) => seen.problems.push(`page: ${error.error().stack}`));
    },
  };
  return seen;
}
