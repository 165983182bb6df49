// What the topology view reads from the platform.
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { call } from "../../api";
import type { TopologyChange } from "../../gen/yunhe/topology/v1/topology_pb";
import type { Graph } from "../../lib/topology/model";
import { fromValues, fromView } from "../../lib/topology/view";
import { useClients } from "../../session";

/** An unchanged view is answered with a few bytes, so it is asked for often. */
const LIVE_MS = 2_500;
const VALUES_MS = 5_000;
const SLOW_MS = 15_000;

const stamp = (ms: number | undefined) => (ms === undefined ? undefined : timestampFromMs(ms));

/** The network now, or as of a time, in milliseconds since 1970. */
export function useGraph(at: number | undefined, enabled = true) {
  const { topology } = useClients();
  const client = useQueryClient();
  const queryKey = ["topology", "view", at ?? "now"];
  return useQuery({
    queryKey,
    queryFn: async ({ signal }): Promise<Graph> => {
      const known = at === undefined ? client.getQueryData<Graph>(queryKey) : undefined;
      const view = await topology.getNetworkView({ at: stamp(at), knownRevision: known?.revision ?? "" }, call(signal));
      return view.unchanged && known ? known : fromView(view);
    },
    enabled,
    refetchInterval: at === undefined ? LIVE_MS : false,
    staleTime: at === undefined ? 0 : Number.POSITIVE_INFINITY,
    gcTime: at === undefined ? 300_000 : 20_000,
    placeholderData: at === undefined ? undefined : keepPreviousData,
    // Columns of bytes are not compared field by field.
    structuralSharing: false,
  });
}

export function useBindings() {
  const { topology } = useClients();
  return useQuery({
    queryKey: ["topology", "bindings"],
    queryFn: async ({ signal }) => (await topology.listBindings({}, call(signal))).bindings,
    staleTime: 60_000,
  });
}

/** What one binding measures all over the graph; "" measures nothing. */
export function useValues(bindingId: string, graph: Graph | undefined, at: number | undefined) {
  const { topology } = useClients();
  const answer = useQuery({
    queryKey: ["topology", "values", bindingId, graph?.sequence, at ?? "now"],
    queryFn: ({ signal }) => topology.getViewValues({ bindingId, at: stamp(at) }, call(signal)),
    enabled: bindingId !== "" && graph !== undefined && graph.sequence >= 0,
    refetchInterval: at === undefined ? VALUES_MS : false,
    placeholderData: (before) => (before?.binding?.bindingId === bindingId ? before : undefined),
    structuralSharing: false,
  });
  return { ...answer, values: answer.data && graph ? fromValues(answer.data, graph) : undefined };
}

export function useVertex(nodeId: string, at: number | undefined) {
  const { topology } = useClients();
  return useQuery({
    queryKey: ["topology", "vertex", nodeId, at ?? "now"],
    queryFn: ({ signal }) => topology.getVertex({ nodeId, at: stamp(at) }, call(signal)),
    enabled: nodeId !== "",
    refetchInterval: at === undefined ? VALUES_MS : false,
  });
}

/** The last changes of a vertex, up to a time. */
export function useVertexHistory(nodeId: string, at: number | undefined) {
  const { topology } = useClients();
  return useQuery({
    queryKey: ["topology", "history", nodeId, at ?? "now"],
    queryFn: ({ signal }) =>
      topology.listTopologyChanges({ nodeId, to: stamp(at), newestFirst: true, pageSize: 20 }, call(signal)),
    enabled: nodeId !== "",
    refetchInterval: at === undefined ? SLOW_MS : false,
  });
}

/** How much changed in each part of a time. */
export function useDensity(from: number | undefined, to: number, buckets: number) {
  const { topology } = useClients();
  return useQuery({
    queryKey: ["topology", "density", from ?? "all", to, buckets],
    queryFn: ({ signal }) => topology.getChangeDensity({ from: stamp(from), to: stamp(to), buckets }, call(signal)),
    placeholderData: keepPreviousData,
  });
}

/** No more differences than this are read: what is not marked is counted. */
const DIFF_PAGES = 10;

export interface Difference {
  changes: TopologyChange[];
  added: number;
  changed: number;
  removed: number;
  complete: boolean;
}

export function useDifference(from: number | undefined, to: number | undefined) {
  const { topology } = useClients();
  return useQuery({
    queryKey: ["topology", "diff", from, to],
    enabled: from !== undefined && to !== undefined,
    queryFn: async ({ signal }): Promise<Difference> => {
      const found: Difference = { changes: [], added: 0, changed: 0, removed: 0, complete: true };
      let pageToken = "";
      for (let page = 0; page < DIFF_PAGES; page++) {
        const answer = await topology.diffTopology(
          { from: stamp(from), to: stamp(to), pageSize: 1000, pageToken },
          call(signal),
        );
        found.changes.push(...answer.changes);
        found.added = Number(answer.added);
        found.changed = Number(answer.changed);
        found.removed = Number(answer.removed);
        pageToken = answer.nextPageToken;
        if (!pageToken) break;
      }
      found.complete = pageToken === "";
      return found;
    },
    staleTime: 60_000,
    structuralSharing: false,
    placeholderData: keepPreviousData,
  });
}
