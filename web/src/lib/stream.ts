// Keeps a server stream open: opens it, hands over its messages, and opens it
// again with growing pauses when it breaks.
//
//	connecting ──first header or message──▶ live
//	    ▲                                     │ breaks or ends
//	    └────────── pause (backoff) ◀─────────┘  status "down" meanwhile
//
// Messages may be missed while the stream is down: whoever listens reads the
// present state again when the status becomes "live".

export type StreamStatus = "connecting" | "live" | "down";

export interface StreamOptions<T> {
  /** Opens the stream; opened is to be called once the server has accepted. */
  open: (signal: AbortSignal, opened: () => void) => AsyncIterable<T>;
  onMessage: (message: T) => void;
  onStatus: (status: StreamStatus) => void;
  /** Whether it makes sense to try again after this error (undefined: the stream ended without one). */
  again: (error: unknown) => boolean;
  signal: AbortSignal;
  /** Waits; replaced in tests. */
  pause?: (ms: number, signal: AbortSignal) => Promise<void>;
  /** 0 to 1; replaced in tests. */
  random?: () => number;
}

const FIRST_PAUSE_MS = 500;
const LAST_PAUSE_MS = 30_000;

/** The pause before attempt n (from 0): doubles from half a second to 30 s, less up to half at random. */
export function backoff(attempt: number, random: number): number {
  const full = Math.min(LAST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempt);
  return Math.round(full * (1 - random / 2));
}

/** Runs until the signal fires or again says no. It never rejects. */
export async function keepStreaming<T>(o: StreamOptions<T>): Promise<void> {
  const pause = o.pause ?? waitFor;
  const random = o.random ?? Math.random;
  let failures = 0;
  while (!o.signal.aborted) {
    o.onStatus("connecting");
    let error: unknown;
    try {
      const opened = () => {
        if (o.signal.aborted) return;
        failures = 0;
        o.onStatus("live");
      };
      let live = false;
      for await (const message of o.open(o.signal, () => {
        if (!live) opened();
        live = true;
      })) {
        if (!live) opened();
        live = true;
        o.onMessage(message);
      }
    } catch (e) {
      error = e;
    }
    if (o.signal.aborted) return;
    o.onStatus("down");
    if (!o.again(error)) return;
    await pause(backoff(failures, random()), o.signal);
    failures++;
  }
}

function waitFor(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    }
    signal.addEventListener("abort", done, { once: true });
  });
}
