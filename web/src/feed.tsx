// One change stream of jobs for the whole console. Pages listen to it; when it
// is not live they poll instead. A hidden tab gives its stream back, because
// browsers allow only six connections to one server.
import { createContext, type ReactNode, use, useEffect, useEffectEvent, useMemo, useRef, useState } from "react";
import type { Job } from "./gen/yunhe/jobs/v1/jobs_pb";
import { isUnauthenticated } from "./lib/errors";
import { keepStreaming, type StreamStatus } from "./lib/stream";
import { useSession } from "./session";

type Listener = (jobs: Job[]) => void;

interface Feed {
  status: StreamStatus;
  /** Milliseconds between polls that make up for what the stream does not bring. */
  pollInterval: number;
  listen: (listener: Listener) => () => void;
}

const FeedContext = createContext<Feed | undefined>(undefined);

// Changes are handed over together, at most this often.
const BATCH_MS = 200;
// A tab hidden for this long gives its stream back.
const HIDDEN_MS = 20_000;
const POLL_LIVE_MS = 30_000;
const POLL_DOWN_MS = 4_000;

export function FeedProvider({ children }: { children: ReactNode }) {
  const { clients, expire, can } = useSession();
  const [status, setStatus] = useState<StreamStatus>("connecting");
  const visible = useVisible();
  const listeners = useRef(new Set<Listener>());
  const allowed = can("jobs.read");

  useEffect(() => {
    if (!visible || !allowed) return;
    const end = new AbortController();
    let waiting: Job[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      const jobs = waiting;
      waiting = [];
      timer = undefined;
      for (const listener of listeners.current) listener(jobs);
    };
    void keepStreaming({
      signal: end.signal,
      onStatus: setStatus,
      open: (signal, opened) => clients.jobs.watchJobs({}, { signal, onHeader: opened }),
      onMessage: ({ job }) => {
        if (!job) return;
        waiting.push(job);
        timer ??= setTimeout(flush, BATCH_MS);
      },
      again: (error) => {
        if (!isUnauthenticated(error)) return true;
        expire();
        return false;
      },
    });
    return () => {
      end.abort();
      clearTimeout(timer);
      setStatus("connecting");
    };
  }, [clients, expire, visible, allowed]);

  const feed = useMemo<Feed>(
    () => ({
      status,
      pollInterval: status === "live" ? POLL_LIVE_MS : POLL_DOWN_MS,
      listen: (listener) => {
        listeners.current.add(listener);
        return () => listeners.current.delete(listener);
      },
    }),
    [status],
  );
  return <FeedContext value={feed}>{children}</FeedContext>;
}

export function useFeed(): Feed {
  const feed = use(FeedContext);
  if (!feed) throw new Error("useFeed outside FeedProvider");
  return feed;
}

/** Calls the listener with jobs that changed. */
export function useJobChanges(listener: Listener): void {
  const { listen } = useFeed();
  const current = useEffectEvent(listener);
  useEffect(() => listen((jobs) => current(jobs)), [listen]);
}

function useVisible(): boolean {
  const [visible, setVisible] = useState(document.visibilityState === "visible");
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const update = () => {
      clearTimeout(timer);
      if (document.visibilityState === "visible") setVisible(true);
      else timer = setTimeout(() => setVisible(false), HIDDEN_MS);
    };
    document.addEventListener("visibilitychange", update);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", update);
    };
  }, []);
  return visible;
}
