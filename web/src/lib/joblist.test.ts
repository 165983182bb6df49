import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { type Job, JobSchema, ListJobsResponseSchema, State } from "../gen/yunhe/jobs/v1/jobs_pb";
import { applyChanges, type JobPages, matches, NO_FILTER } from "./joblist";

function job(n: number, version = 1, state = State.RUNNING, name = `job-${n}`): Job {
  return create(JobSchema, {
    jobId: `job_${n.toString().padStart(3, "0")}`,
    spec: { name },
    userName: "ann",
    centerIds: ["c1"],
    state,
    createdAt: timestampFromMs(n * 1000),
    version: BigInt(version),
  });
}

function pages(...lists: Job[][]): JobPages {
  return {
    pages: lists.map((jobs, i) => create(ListJobsResponseSchema, { jobs, nextPageToken: `p${i + 1}` })),
    pageParams: lists.map((_, i) => (i === 0 ? "" : `p${i}`)),
  };
}

const ids = (p: JobPages) => p.pages.map((page) => page.jobs.map((j) => Number(j.jobId.slice(4))));

describe("applyChanges", () => {
  const start = pages([job(9), job(8)], [job(7), job(6)]);

  test("replaces a job by a newer version, wherever it is", () => {
    const next = applyChanges(start, [job(7, 2, State.SUCCEEDED)], NO_FILTER);
    expect(ids(next)).toEqual([
      [9, 8],
      [7, 6],
    ]);
    expect(next.pages[1]?.jobs[0]?.state).toBe(State.SUCCEEDED);
    expect(next.pages[0]).toBe(start.pages[0]);
  });

  test("ignores a change that is not newer", () => {
    const next = applyChanges(start, [job(7, 1, State.FAILED)], NO_FILTER);
    expect(next.pages[1]?.jobs[0]?.state).toBe(State.RUNNING);
  });

  test("takes the newest of several changes of a job", () => {
    const next = applyChanges(start, [job(9, 3, State.FAILED), job(9, 2, State.STOPPING)], NO_FILTER);
    expect(next.pages[0]?.jobs[0]?.state).toBe(State.FAILED);
  });

  test("puts new jobs in front, newest first", () => {
    expect(ids(applyChanges(start, [job(10), job(12), job(11)], NO_FILTER))).toEqual([
      [12, 11, 10, 9, 8],
      [7, 6],
    ]);
  });

  test("leaves out jobs older than the list's first: their page is not known", () => {
    expect(ids(applyChanges(start, [job(5)], NO_FILTER))).toEqual([
      [9, 8],
      [7, 6],
    ]);
  });

  test("drops a job that no longer matches, and adds none that does not", () => {
    const running = { ...NO_FILTER, states: [State.RUNNING] };
    const next = applyChanges(start, [job(8, 2, State.SUCCEEDED), job(10, 1, State.QUEUED)], running);
    expect(ids(next)).toEqual([[9], [7, 6]]);
  });

  test("fills an empty list", () => {
    expect(ids(applyChanges(pages([]), [job(1), job(2)], NO_FILTER))).toEqual([[2, 1]]);
  });

  test("keeps the first page bounded", () => {
    const many = Array.from({ length: 500 }, (_, i) => job(100 + i));
    expect(applyChanges(start, many, NO_FILTER).pages[0]?.jobs).toHaveLength(200);
  });
});

describe("matches", () => {
  test.each([
    [{ name: "job-1" }, true],
    [{ name: "other" }, false],
    [{ userName: "ann" }, true],
    [{ userName: "an" }, false],
    [{ centerId: "c1" }, true],
    [{ centerId: "c2" }, false],
    [{ after: 1000 }, true],
    [{ after: 1001 }, false],
    [{ before: 1001 }, true],
    [{ before: 1000 }, false],
    [{ states: [State.RUNNING, State.FAILED] }, true],
    [{ states: [State.FAILED] }, false],
  ])("%j", (part, want) => expect(matches(job(1), { ...NO_FILTER, ...part })).toBe(want));
});
