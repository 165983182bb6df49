// History that runs: the view of the beginning, then every change at its time.
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { useCallback, useEffect, useRef, useState } from "react";
import { call } from "../../api";
import type { Graph } from "../../lib/topology/model";
import { Replay, stepTo } from "../../lib/topology/replay";
import { fromView } from "../../lib/topology/view";
import { useClients } from "../../session";

/** At speed 1 the whole period takes this long. */
const PERIOD_S = 24;
/** The graph is renewed this often. */
const STEP_MS = 100;

export interface Playback {
  state: "idle" | "loading" | "playing";
  /** The network at the moment shown; undefined unless something plays. */
  graph: Graph | undefined;
  at: number;
  error: unknown;
  play: (from: number, to: number, speed: number) => void;
  pause: () => void;
  setSpeed: (speed: number) => void;
}

/** Plays history; onEnd is told where it ended or was stopped. */
export function usePlayback(onEnd: (at: number) => void): Playback {
  const { topology } = useClients();
  const [shown, setShown] = useState<{ state: Playback["state"]; graph?: Graph; at: number; error?: unknown }>({
    state: "idle",
    at: 0,
  });
  const running = useRef<{ stop: AbortController; speed: number; at: number }>(null);
  const ended = useRef(onEnd);
  ended.current = onEnd;

  const finish = useCallback((error?: unknown) => {
    const run = running.current;
    if (!run) return;
    run.stop.abort();
    running.current = null;
    setShown({ state: "idle", at: run.at, error });
    ended.current(run.at);
  }, []);

  const play = useCallback(
    (from: number, to: number, speed: number) => {
      running.current?.stop.abort();
      const stop = new AbortController();
      const run = { stop, speed, at: from };
      running.current = run;
      setShown({ state: "loading", at: from });
      const fail = (error: unknown) => {
        if (!stop.signal.aborted) finish(error);
      };
      const begin = async () => {
        const view = await topology.getNetworkView({ at: timestampFromMs(from) }, call(stop.signal));
        const replay = new Replay(fromView(view), from);
        // Changes are read ahead of what is shown, page by page.
        void (async () => {
          let pageToken = "";
          do {
            const page = await topology.listTopologyChanges(
              { from: timestampFromMs(from), to: timestampFromMs(to), pageSize: 1000, pageToken },
              call(stop.signal),
            );
            replay.add(page.changes);
            pageToken = page.nextPageToken;
          } while (pageToken && !stop.signal.aborted);
          replay.complete = true;
        })().catch(fail);
        const span = to - from;
        let last = performance.now();
        const tick = () => {
          if (stop.signal.aborted) return;
          const now = performance.now();
          // A tab that was hidden goes on where it was.
          const step = (span / PERIOD_S / 1000) * run.speed * Math.min(500, now - last);
          last = now;
          replay.advance(Math.min(to, stepTo(replay.at, step, replay.nextChange(), span)), to);
          run.at = replay.at;
          setShown({ state: "playing", graph: replay.graph, at: replay.at });
          if (replay.at >= to) finish();
          else timer = setTimeout(tick, STEP_MS);
        };
        let timer = setTimeout(tick, STEP_MS);
        stop.signal.addEventListener("abort", () => clearTimeout(timer));
      };
      begin().catch(fail);
    },
    [topology, finish],
  );
  useEffect(() => () => running.current?.stop.abort(), []);
  const setSpeed = useCallback((speed: number) => {
    if (running.current) running.current.speed = speed;
  }, []);
  const pause = useCallback(() => finish(), [finish]);
  return { state: shown.state, graph: shown.graph, at: shown.at, error: shown.error, play, pause, setSpeed };
}
