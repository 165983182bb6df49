// Alarms as a tree: what follows from another stands below it.
import { type Alarm, AlarmKind, AlarmState, Severity } from "../gen/yunhe/alarms/v1/alarms_pb";

export interface AlarmNode {
  alarm: Alarm;
  children?: AlarmNode[];
}

/** Worst first, then newest. */
function before(a: AlarmNode, b: AlarmNode): number {
  return b.alarm.severity - a.alarm.severity || (a.alarm.alarmId < b.alarm.alarmId ? 1 : -1);
}

/** One whose parent is not in the list is a root. */
export function alarmTree(alarms: readonly Alarm[]): AlarmNode[] {
  const nodes = new Map(alarms.map((alarm): [string, AlarmNode] => [alarm.alarmId, { alarm }]));
  const roots: AlarmNode[] = [];
  for (const node of nodes.values()) {
    const parent = nodes.get(node.alarm.parentId);
    if (!parent || parent === node) roots.push(node);
    else {
      parent.children ??= [];
      parent.children.push(node);
    }
  }
  for (const node of nodes.values()) node.children?.sort(before);
  return roots.sort(before);
}

export function severityName(severity: Severity): "warning" | "major" | "critical" {
  switch (severity) {
    case Severity.CRITICAL:
      return "critical";
    case Severity.MAJOR:
      return "major";
    default:
      return "warning";
  }
}

export function alarmStateName(state: AlarmState): "active" | "acknowledged" | "cleared" {
  switch (state) {
    case AlarmState.ACKNOWLEDGED:
      return "acknowledged";
    case AlarmState.CLEARED:
      return "cleared";
    default:
      return "active";
  }
}

const KINDS = {
  [AlarmKind.CENTER_DOWN]: "centerDown",
  [AlarmKind.GATEWAY_SILENT]: "gatewaySilent",
  [AlarmKind.INSTANCE_TROUBLE]: "instanceTrouble",
  [AlarmKind.NODE_NOT_READY]: "nodeNotReady",
  [AlarmKind.NODE_NOT_SET]: "nodeNotSet",
  [AlarmKind.JOB_UNPLACED]: "jobUnplaced",
  [AlarmKind.PLACEMENT_REFUSED]: "placementRefused",
  [AlarmKind.JOB_AT_RISK]: "jobAtRisk",
  [AlarmKind.ALLOCATION_NOT_GRANTED]: "allocationNotGranted",
  [AlarmKind.RECLAIM]: "reclaim",
  [AlarmKind.BUDGET]: "budget",
  [AlarmKind.POOL_NODE_OFFLINE]: "poolNodeOffline",
  [AlarmKind.POOL_DEVICE_GONE]: "poolDeviceGone",
  [AlarmKind.POOL_COMPUTE_FULL]: "poolComputeFull",
  [AlarmKind.POOL_MEMORY_FULL]: "poolMemoryFull",
  [AlarmKind.POOL_TASK_MEMORY_FULL]: "poolTaskMemoryFull",
  [AlarmKind.POOL_QUEUE_LONG]: "poolQueueLong",
  [AlarmKind.POOL_WAIT_LONG]: "poolWaitLong",
  [AlarmKind.POOL_REFUSED_OFTEN]: "poolRefusedOften",
  [AlarmKind.POOL_NOT_CONFIGURED]: "poolNotConfigured",
  [AlarmKind.POOL_DEVICE_HOT]: "poolDeviceHot",
  [AlarmKind.POOL_POWER_HIGH]: "poolPowerHigh",
  [AlarmKind.EQUIPMENT_DOWN]: "equipmentDown",
  [AlarmKind.EQUIPMENT_DEGRADED]: "equipmentDegraded",
  [AlarmKind.LINK_DOWN]: "linkDown",
  [AlarmKind.LINK_ERRORS]: "linkErrors",
  [AlarmKind.LINK_LOSS]: "linkLoss",
  [AlarmKind.EQUIPMENT_SILENT]: "equipmentSilent",
  [AlarmKind.NETWORK_UNAVAILABLE]: "networkUnavailable",
  [AlarmKind.PATH_LOSS]: "pathLoss",
  [AlarmKind.UNSPECIFIED]: "other",
} as const;

export function alarmKindName(kind: AlarmKind): (typeof KINDS)[keyof typeof KINDS] {
  return KINDS[kind] ?? "other";
}

/** Where to look: the job, the equipment, or the center. "" if nowhere. */
export function alarmPath(a: Alarm): string {
  if (a.jobId) return `/jobs/${encodeURIComponent(a.jobId)}`;
  if (a.equipment) return "/network?tab=equipment";
  if (a.kind >= AlarmKind.POOL_NODE_OFFLINE && a.kind <= AlarmKind.POOL_POWER_HIGH) return "/pool?tab=alarms";
  if (a.aiCenterId) return `/centers/${encodeURIComponent(a.aiCenterId)}`;
  return "";
}
