// Names of what the access of resources is described with, as keys of texts.
import type { Compliance, Health, ResourceKind, Severity, SourceType } from "../gen/yunhe/access/v1/access_pb";

const STATUS = ["all", "compliant", "nonCompliant", "unknown"] as const;
const HEALTH = ["none", "healthy", "degraded", "unreachable", "outOfUse", "unknown"] as const;
const KINDS = ["all", "center", "node", "registered"] as const;
const SEVERITIES = ["none", "advice", "major", "critical"] as const;
const SOURCES = [
  "none",
  "publicCloud",
  "dedicatedCloud",
  "edgeCloud",
  "hybridCloud",
  "machine",
  "containerCluster",
  "batchCluster",
  "other",
] as const;

// A newer platform may send a number that this console does not know.
export const statusKey = (n: Compliance) => `access.status.${STATUS[n] ?? "unknown"}` as const;
export const healthKey = (n: Health) => `access.healths.${HEALTH[n] ?? "unknown"}` as const;
export const kindKey = (n: ResourceKind) => `access.kinds.${KINDS[n] ?? "all"}` as const;
export const severityKey = (n: Severity) => `access.severities.${SEVERITIES[n] ?? "none"}` as const;
export const sourceKey = (n: SourceType) => `access.sources.${SOURCES[n] ?? "other"}` as const;
