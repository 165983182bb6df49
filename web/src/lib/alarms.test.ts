import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { AlarmKind, AlarmSchema, Severity } from "../gen/yunhe/alarms/v1/alarms_pb";
import { type AlarmNode, alarmKindName, alarmPath, alarmTree } from "./alarms";

const alarm = (alarmId: string, parentId: string, severity: Severity, rest = {}) =>
  create(AlarmSchema, { alarmId, parentId, severity, ...rest });

const shape = (nodes: AlarmNode[]): string =>
  nodes.map((n) => n.alarm.alarmId + (n.children ? `(${shape(n.children)})` : "")).join(" ");

test("what follows from another stands below it, the worst first", () => {
  const list = [
    alarm("job", "center", Severity.MAJOR),
    alarm("lost", "cleared-long-ago", Severity.WARNING),
    alarm("node", "center", Severity.CRITICAL),
    alarm("center", "", Severity.CRITICAL),
    alarm("deep", "job", Severity.WARNING),
    alarm("itself", "itself", Severity.MAJOR),
  ];
  expect(shape(alarmTree(list))).toBe("center(node job(deep)) itself lost");
});

test("an alarm leads to what it is about", () => {
  expect(alarmPath(alarm("a", "", Severity.MAJOR, { aiCenterId: "c 1" }))).toBe("/centers/c%201");
  expect(alarmPath(alarm("a", "", Severity.MAJOR, { aiCenterId: "c1", jobId: "job_1" }))).toBe("/jobs/job_1");
  expect(alarmPath(alarm("a", "", Severity.MAJOR, { aiCenterId: "c1", equipment: "leaf-1" }))).toBe(
    "/network?tab=equipment",
  );
  expect(alarmPath(alarm("a", "", Severity.MAJOR, { kind: AlarmKind.POOL_QUEUE_LONG }))).toBe("/pool?tab=alarms");
  expect(alarmPath(alarm("a", "", Severity.MAJOR, { kind: AlarmKind.PATH_LOSS, aiCenterId: "c1" }))).toBe(
    "/centers/c1",
  );
  expect(alarmPath(alarm("a", "", Severity.MAJOR))).toBe("");
});

test("every kind has a name of its own", () => {
  const kinds = Object.values(AlarmKind).filter((k): k is AlarmKind => typeof k === "number");
  expect(new Set(kinds.map(alarmKindName)).size).toBe(kinds.length);
});
