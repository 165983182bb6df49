// The job list as pages from the server, kept current by the change stream.
import type { InfiniteData } from "@tanstack/react-query";
import type { Job, ListJobsResponse, State } from "../gen/yunhe/jobs/v1/jobs_pb";
import { millis } from "./format";

/** What the list shows. Empty fields do not filter. */
export interface JobFilter {
  states: State[];
  name: string;
  userName: string;
  centerId: string;
  /** Milliseconds since 1970, created within. */
  after?: number;
  before?: number;
}

export const NO_FILTER: JobFilter = { states: [], name: "", userName: "", centerId: "" };

/** Whether a job belongs in the list. The server decides for pages; this decides for single changes. */
export function matches(job: Job, filter: JobFilter): boolean {
  const created = millis(job.createdAt) ?? 0;
  return (
    (filter.states.length === 0 || filter.states.includes(job.state)) &&
    (filter.name === "" || (job.spec?.name ?? "").includes(filter.name)) &&
    (filter.userName === "" || job.userName === filter.userName) &&
    (filter.centerId === "" || job.centerIds.includes(filter.centerId)) &&
    (filter.after === undefined || created >= filter.after) &&
    (filter.before === undefined || created < filter.before)
  );
}

export type JobPages = InfiniteData<ListJobsResponse, string>;

/** New jobs are put in front of the first page until it has this many; then a reload is due. */
const FIRST_PAGE_LIMIT = 200;

/**
 * The pages after some jobs changed: known jobs are replaced if the change is
 * newer (and dropped if they no longer match), unknown ones that match and are
 * newer than the first row are put in front. The pages themselves stay as they are.
 */
export function applyChanges(pages: JobPages, changed: Job[], filter: JobFilter): JobPages {
  const latest = new Map<string, Job>();
  for (const job of changed) {
    const other = latest.get(job.jobId);
    if (!other || other.version < job.version) latest.set(job.jobId, job);
  }
  const known = new Set<string>();
  const next = pages.pages.map((page) => {
    let touched = false;
    const jobs: Job[] = [];
    for (const job of page.jobs) {
      known.add(job.jobId);
      const change = latest.get(job.jobId);
      if (!change || change.version <= job.version) {
        jobs.push(job);
        continue;
      }
      touched = true;
      if (matches(change, filter)) jobs.push(change);
    }
    return touched ? { ...page, jobs } : page;
  });
  const first = next[0];
  if (!first) return pages;
  const fresh = [...latest.values()].filter(
    (job) => !known.has(job.jobId) && matches(job, filter) && isNewer(job, first.jobs[0]),
  );
  if (fresh.length > 0) {
    fresh.sort(newestFirst);
    next[0] = { ...first, jobs: [...fresh, ...first.jobs].slice(0, Math.max(FIRST_PAGE_LIMIT, first.jobs.length)) };
  }
  return { ...pages, pages: next };
}

// Job IDs are ordered by time, so they break ties.
function newestFirst(a: Job, b: Job): number {
  const byTime = (millis(b.createdAt) ?? 0) - (millis(a.createdAt) ?? 0);
  return byTime !== 0 ? byTime : b.jobId < a.jobId ? -1 : 1;
}

function isNewer(job: Job, than: Job | undefined): boolean {
  return !than || newestFirst(job, than) < 0;
}
