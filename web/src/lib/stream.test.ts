import { describe, expect, test } from "vitest";
import { backoff, keepStreaming, type StreamStatus } from "./stream";

async function* yields<T>(items: T[], error?: Error): AsyncIterable<T> {
  yield* items;
  if (error) throw error;
}

interface Run {
  messages: number[];
  statuses: StreamStatus[];
  pauses: number[];
}

// Runs one stream after another; ends when they are used up or again says no.
async function run(streams: AsyncIterable<number>[], again = (_: unknown) => true): Promise<Run> {
  const end = new AbortController();
  const result: Run = { messages: [], statuses: [], pauses: [] };
  await keepStreaming<number>({
    signal: end.signal,
    random: () => 0,
    open: () => streams.shift() ?? yields([]),
    onMessage: (m) => result.messages.push(m),
    onStatus: (s) => result.statuses.push(s),
    again,
    pause: async (ms) => {
      result.pauses.push(ms);
      if (streams.length === 0) end.abort();
    },
  });
  return result;
}

describe("keepStreaming", () => {
  test("opens again after a break and goes on", async () => {
    const got = await run([yields([1, 2], new Error("broken")), yields([3])]);
    expect(got.messages).toEqual([1, 2, 3]);
    expect(got.statuses).toEqual(["connecting", "live", "down", "connecting", "live", "down"]);
  });

  test("waits longer each time it fails, and starts over after a success", async () => {
    const fail = () => yields<number>([], new Error("refused"));
    const got = await run([fail(), fail(), fail(), yields([1], new Error("broken")), fail()]);
    expect(got.pauses).toEqual([500, 1000, 2000, 500, 1000]);
  });

  test("stops when there is no point in trying again", async () => {
    const got = await run([yields([], new Error("denied")), yields([1])], () => false);
    expect(got.messages).toEqual([]);
    expect(got.pauses).toEqual([]);
  });

  test("is live once the server has accepted, before any message", async () => {
    const statuses: StreamStatus[] = [];
    await keepStreaming<number>({
      signal: new AbortController().signal,
      open: (_, opened) => {
        opened();
        return yields([]);
      },
      onMessage: () => undefined,
      onStatus: (s) => statuses.push(s),
      again: () => false,
    });
    expect(statuses).toEqual(["connecting", "live", "down"]);
  });
});

test("pauses double up to 30 s and spread by half", () => {
  expect([0, 1, 2, 10, 1000].map((n) => backoff(n, 0))).toEqual([500, 1000, 2000, 30_000, 30_000]);
  expect(backoff(2, 1)).toBe(1000);
});
