// What pages read from the platform, each with its key and how often it is
// read again. Keys start with the thing's name, so that a change can mark all
// that show it as stale.
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useRef } from "react";
import { allPages, call } from "./api";
import { useFeed, useJobChanges } from "./feed";
import type { Replica } from "./gen/yunhe/jobs/v1/jobs_pb";
import type { Center, Spec } from "./gen/yunhe/registry/v1/registry_pb";
import { applyChanges, type JobFilter, type JobPages } from "./lib/joblist";
import type { NodeFilter } from "./lib/nodes";
import { useClients, useSession } from "./session";

const PAGE = 1000;
/** Live use of centers is read this often. */
const LIVE_MS = 5_000;
/** Things that seldom change. */
const SLOW_MS = 60_000;

export function useCenters() {
  const { registry } = useClients();
  return useQuery({
    queryKey: ["centers"],
    queryFn: ({ signal }) =>
      allPages(
        (pageToken) => registry.listCenters({ pageSize: PAGE, pageToken }, call(signal)),
        (p) => p.centers,
      ),
    refetchInterval: LIVE_MS,
  });
}

export function useCenter(id: string) {
  const { registry } = useClients();
  return useQuery({
    queryKey: ["centers", id],
    queryFn: ({ signal }) => registry.getCenter({ aiCenterId: id }, call(signal)),
    refetchInterval: LIVE_MS,
  });
}

/** How many alarms are open and nobody looks after them. */
export function useActiveAlarms() {
  const { alarms } = useClients();
  const { can } = useSession();
  return useQuery({
    queryKey: ["alarms", "active"],
    queryFn: async ({ signal }) => Number((await alarms.listAlarms({ pageSize: 1 }, call(signal))).active),
    enabled: can("monitor.read"),
    refetchInterval: LIVE_MS,
  });
}

/** How a node is to be; undefined while nobody asked for anything. */
export function useNodeControl(centerId: string, node: string) {
  const { control } = useClients();
  return useQuery({
    queryKey: ["node-controls", centerId, node],
    queryFn: async ({ signal }) => {
      const all = await allPages(
        (pageToken) => control.listNodeControls({ aiCenterId: centerId, pageSize: PAGE, pageToken }, call(signal)),
        (p) => p.controls,
      );
      return all.find((c) => c.node === node) ?? null;
    },
    refetchInterval: LIVE_MS,
  });
}

/** Names of centers by ID. */
export function useCenterNames(): (id: string) => string {
  const { data } = useCenters();
  return useMemo(() => {
    const names = new Map((data ?? []).map((c: Center) => [c.aiCenterId, c.name]));
    return (id) => names.get(id) || id;
  }, [data]);
}

export function useGateways() {
  const { adapters } = useClients();
  const { can } = useSession();
  return useQuery({
    queryKey: ["gateways"],
    queryFn: async ({ signal }) => (await adapters.listGateways({}, call(signal))).gateways,
    enabled: can("adapters.read"),
    refetchInterval: 10_000,
  });
}

/** The plug-ins there are, without schemas and instances. */
export function usePlugins() {
  const { adapters } = useClients();
  const { can } = useSession();
  return useQuery({
    queryKey: ["plugins"],
    queryFn: async ({ signal }) => (await adapters.listPlugins({}, call(signal))).plugins,
    enabled: can("adapters.read"),
    refetchInterval: LIVE_MS,
  });
}

/** One plug-in with its schema and instances, read again this often; "" reads none. */
export function usePlugin(name: string, everyMs = LIVE_MS) {
  const { adapters } = useClients();
  const { can } = useSession();
  return useQuery({
    queryKey: ["plugins", name],
    queryFn: ({ signal }) => adapters.getPlugin({ name }, call(signal)),
    enabled: name !== "" && can("adapters.read"),
    refetchInterval: everyMs,
  });
}

/** One page of nodes, by center and name; "" is the first page's token. */
export function useNodes(filter: NodeFilter, pageSize: number, pageToken: string) {
  const { registry } = useClients();
  return useQuery({
    queryKey: ["nodes", filter, pageSize, pageToken],
    queryFn: ({ signal }) =>
      registry.listNodes(
        {
          pageSize,
          pageToken,
          aiCenterId: filter.centerId,
          state: filter.state,
          acceleratorModel: filter.model,
          labels: filter.labels,
        },
        call(signal),
      ),
    refetchInterval: LIVE_MS,
    placeholderData: keepPreviousData,
  });
}

/** The scheme of indicators never changes while a server runs. */
export function useIndicators() {
  const { measurement } = useClients();
  return useQuery({
    queryKey: ["indicators"],
    queryFn: async ({ signal }) => (await measurement.listIndicators({}, call(signal))).indicators,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function useSpecs() {
  const { registry } = useClients();
  return useQuery({
    queryKey: ["specs"],
    queryFn: ({ signal }) =>
      allPages(
        (pageToken) => registry.listSpecs({ pageSize: PAGE, pageToken }, call(signal)),
        (p): Spec[] => p.specs,
      ),
    refetchInterval: SLOW_MS,
  });
}

export function useImages() {
  const { registry } = useClients();
  return useQuery({
    queryKey: ["images"],
    queryFn: ({ signal }) =>
      allPages(
        (pageToken) => registry.listImages({ pageSize: PAGE, pageToken }, call(signal)),
        (p) => p.images,
      ),
    refetchInterval: SLOW_MS,
  });
}

export function useJobStats() {
  const { jobs } = useClients();
  return useQuery({
    queryKey: ["job-stats"],
    queryFn: ({ signal }) => jobs.getJobStats({}, call(signal)),
    refetchInterval: 3_000,
  });
}

export function useSchedulingStats() {
  const { scheduler } = useClients();
  const { can } = useSession();
  return useQuery({
    queryKey: ["scheduling-stats"],
    queryFn: ({ signal }) => scheduler.getSchedulingStats({}, call(signal)),
    enabled: can("scheduler.read"),
    refetchInterval: 3_000,
  });
}

const JOBS_PAGE = 50;

/** The job list, newest first, kept current by the change stream or by polling. */
export function useJobs(filter: JobFilter, pageSize = JOBS_PAGE) {
  const { jobs } = useClients();
  const { pollInterval } = useFeed();
  const client = useQueryClient();
  const queryKey = ["jobs", filter, pageSize];
  useJobChanges((changed) => {
    client.setQueryData<JobPages>(queryKey, (pages) => (pages ? applyChanges(pages, changed, filter) : pages));
  });
  return useInfiniteQuery({
    queryKey,
    queryFn: ({ pageParam, signal }) =>
      jobs.listJobs(
        {
          pageSize,
          pageToken: pageParam,
          states: filter.states,
          name: filter.name,
          userName: filter.userName,
          aiCenterId: filter.centerId,
          createdAfter: filter.after === undefined ? undefined : timestampFromMs(filter.after),
          createdBefore: filter.before === undefined ? undefined : timestampFromMs(filter.before),
        },
        call(signal),
      ),
    initialPageParam: "",
    getNextPageParam: (last) => last.nextPageToken || undefined,
    refetchInterval: pollInterval,
    placeholderData: keepPreviousData,
  });
}

// A job with thousands of replicas changes often; its detail is read again at most this often.
const REREAD_MS = 700;

/** One job with its replicas, read again when the change stream names it. */
export function useJob(id: string) {
  const { jobs } = useClients();
  const { pollInterval } = useFeed();
  const client = useQueryClient();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useJobChanges((changed) => {
    if (timer.current !== undefined || !changed.some((job) => job.jobId === id)) return;
    timer.current = setTimeout(() => {
      timer.current = undefined;
      for (const key of [
        ["job", id],
        ["job-cost", id],
        ["job-explain", id],
      ]) {
        void client.invalidateQueries({ queryKey: key });
      }
    }, REREAD_MS);
  });
  return useQuery({
    queryKey: ["job", id],
    queryFn: ({ signal }) => jobs.getJob({ jobId: id }, call(signal)),
    refetchInterval: pollInterval,
  });
}

export function useJobCost(id: string) {
  const { metering } = useClients();
  const { can } = useSession();
  return useQuery({
    queryKey: ["job-cost", id],
    queryFn: ({ signal }) => metering.getJobCost({ jobId: id }, call(signal)),
    enabled: can("metering.read"),
  });
}

/** The runs of a replica up to its latest, at most 1,000. */
export function useRuns(jobId: string, { taskIndex, replicaIndex, attempt }: Replica) {
  const { jobs } = useClients();
  return useQuery({
    queryKey: ["job-runs", jobId, taskIndex, replicaIndex, attempt],
    queryFn: async ({ signal }) =>
      (await jobs.listRuns({ jobId, taskIndex, replicaIndex, pageSize: 1000 }, call(signal))).runs,
  });
}

/** What the runs of a job use now; the platform lists the busiest 200. */
export function useRunFigures(jobId: string) {
  const { monitor } = useClients();
  return useQuery({
    queryKey: ["run-figures", jobId],
    queryFn: ({ signal }) => monitor.listRunFigures({ jobId, limit: 200 }, call(signal)),
    refetchInterval: LIVE_MS,
  });
}

export function useExplain(id: string) {
  const { scheduler } = useClients();
  return useQuery({
    queryKey: ["job-explain", id],
    queryFn: ({ signal }) => scheduler.explainJob({ jobId: id }, call(signal)),
    // What still waits is explained as things stand now.
    refetchInterval: (query) =>
      query.state.data?.waits.length || query.state.data?.decisions.some((d) => d.attempt === 0) ? LIVE_MS : false,
  });
}

export function usePolicies() {
  const { scheduler } = useClients();
  const { can } = useSession();
  return useQuery({
    queryKey: ["policies"],
    queryFn: ({ signal }) => scheduler.listPolicies({}, call(signal)),
    enabled: can("scheduler.read"),
    staleTime: SLOW_MS,
  });
}

export function usePolicySet() {
  const { scheduler } = useClients();
  const { can } = useSession();
  return useQuery({
    queryKey: ["policy-set"],
    queryFn: ({ signal }) => scheduler.getPolicySet({}, call(signal)),
    enabled: can("scheduler.read"),
  });
}

/** A PromQL expression over the last seconds, read again as points come in. */
export function useRange(query: string, windowSeconds: number) {
  const { monitor } = useClients();
  const { can } = useSession();
  return useQuery({
    queryKey: ["range", query, windowSeconds],
    queryFn: async ({ signal }) => {
      const end = Date.now();
      const step = Math.max(1, Math.round(windowSeconds / 240));
      const answer = await monitor.queryRange(
        {
          query,
          start: timestampFromMs(end - windowSeconds * 1000),
          end: timestampFromMs(end),
          stepSeconds: BigInt(step),
        },
        call(signal),
      );
      return { series: answer.series, start: end - windowSeconds * 1000, end };
    },
    enabled: can("monitor.read"),
    refetchInterval: Math.max(LIVE_MS, windowSeconds * 4),
    placeholderData: keepPreviousData,
  });
}

export interface UsageFilter {
  jobId: string;
  centerId: string;
  userName: string;
  after?: number;
  before?: number;
}

export function useUsage(filter: UsageFilter) {
  const { metering } = useClients();
  return useInfiniteQuery({
    queryKey: ["usage", filter],
    queryFn: ({ pageParam, signal }) =>
      metering.listUsage(
        {
          pageSize: 100,
          pageToken: pageParam,
          jobId: filter.jobId,
          aiCenterId: filter.centerId,
          userName: filter.userName,
          endedAfter: filter.after === undefined ? undefined : timestampFromMs(filter.after),
          endedBefore: filter.before === undefined ? undefined : timestampFromMs(filter.before),
        },
        call(signal),
      ),
    initialPageParam: "",
    getNextPageParam: (last) => last.nextPageToken || undefined,
    placeholderData: keepPreviousData,
  });
}

export function useTenants() {
  const { identity } = useClients();
  const { can } = useSession();
  return useQuery({
    queryKey: ["tenants"],
    queryFn: ({ signal }) =>
      allPages(
        (pageToken) => identity.listTenants({ pageSize: PAGE, pageToken }, call(signal)),
        (p) => p.tenants,
      ),
    enabled: can("identity.read"),
  });
}

export function useUsers() {
  const { identity } = useClients();
  const { can } = useSession();
  return useQuery({
    queryKey: ["users"],
    queryFn: ({ signal }) =>
      allPages(
        (pageToken) => identity.listUsers({ pageSize: PAGE, pageToken }, call(signal)),
        (p) => p.users,
      ),
    enabled: can("identity.read"),
  });
}

export function useKeys() {
  const { identity } = useClients();
  return useQuery({
    queryKey: ["keys"],
    queryFn: ({ signal }) =>
      allPages(
        (pageToken) => identity.listKeys({ pageSize: PAGE, pageToken }, call(signal)),
        (p) => p.keys,
      ),
  });
}

export interface AuditFilter {
  userId: string;
  method: string;
}

export function useAudit(filter: AuditFilter) {
  const { identity } = useClients();
  return useInfiniteQuery({
    queryKey: ["audit", filter],
    queryFn: ({ pageParam, signal }) =>
      identity.listAuditEvents(
        { pageSize: 100, pageToken: pageParam, userId: filter.userId, method: filter.method },
        call(signal),
      ),
    initialPageParam: "",
    getNextPageParam: (last) => last.nextPageToken || undefined,
    placeholderData: keepPreviousData,
  });
}
