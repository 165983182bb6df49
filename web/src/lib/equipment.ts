// How network equipment is told to people.
import { EquipmentKind, EquipmentState, PortState } from "../gen/yunhe/adapter/v1/adapter_pb";
import { EquipmentRule_Kind } from "../gen/yunhe/network/v1/equipment_pb";
import type { Tone } from "./states";

const STATES = {
  [EquipmentState.UP]: { name: "up", tone: "good" },
  [EquipmentState.DEGRADED]: { name: "degraded", tone: "warn" },
  [EquipmentState.DOWN]: { name: "down", tone: "bad" },
  [EquipmentState.UNREACHABLE]: { name: "unreachable", tone: "bad" },
  [EquipmentState.DISABLED]: { name: "disabled", tone: "neutral" },
  [EquipmentState.UNSPECIFIED]: { name: "unknown", tone: "neutral" },
} as const satisfies Record<EquipmentState, { name: string; tone: Tone }>;

export const equipmentState = (state: EquipmentState) => STATES[state] ?? STATES[EquipmentState.UNSPECIFIED];

const PORTS = {
  [PortState.UP]: { name: "up", tone: "good" },
  [PortState.DOWN]: { name: "down", tone: "bad" },
  [PortState.DISABLED]: { name: "disabled", tone: "neutral" },
  [PortState.UNSPECIFIED]: { name: "unknown", tone: "neutral" },
} as const satisfies Record<PortState, { name: string; tone: Tone }>;

export const portState = (state: PortState) => PORTS[state] ?? PORTS[PortState.UNSPECIFIED];

const KINDS = {
  [EquipmentKind.SWITCH]: "switch",
  [EquipmentKind.ROUTER]: "router",
  [EquipmentKind.FIREWALL]: "firewall",
  [EquipmentKind.LOAD_BALANCER]: "loadBalancer",
  [EquipmentKind.OTHER]: "other",
  [EquipmentKind.UNSPECIFIED]: "other",
} as const satisfies Record<EquipmentKind, string>;

export const equipmentKind = (kind: EquipmentKind) => KINDS[kind] ?? "other";

const RULES = {
  [EquipmentRule_Kind.EQUIPMENT_DOWN]: { name: "equipmentDown", unit: "seconds" },
  [EquipmentRule_Kind.EQUIPMENT_DEGRADED]: { name: "equipmentDegraded", unit: "seconds" },
  [EquipmentRule_Kind.LINK_DOWN]: { name: "linkDown", unit: "seconds" },
  [EquipmentRule_Kind.LINK_ERRORS]: { name: "linkErrors", unit: "ppm" },
  [EquipmentRule_Kind.LINK_LOSS]: { name: "linkLoss", unit: "ppm" },
  [EquipmentRule_Kind.EQUIPMENT_SILENT]: { name: "equipmentSilent", unit: "seconds" },
  [EquipmentRule_Kind.NETWORK_UNAVAILABLE]: { name: "networkUnavailable", unit: "none" },
  [EquipmentRule_Kind.PATH_LOSS]: { name: "pathLoss", unit: "ppm" },
  [EquipmentRule_Kind.UNSPECIFIED]: { name: "equipmentDown", unit: "none" },
} as const satisfies Record<EquipmentRule_Kind, { name: string; unit: "seconds" | "ppm" | "none" }>;

export const equipmentRule = (kind: EquipmentRule_Kind) => RULES[kind] ?? RULES[EquipmentRule_Kind.UNSPECIFIED];

/** Millionths in percent; "" for none. */
export const percentOf = (ppm: bigint) => (ppm > 0n ? `${Number((Number(ppm) / 1e4).toPrecision(4))}%` : "");

/** Where a port leads to. */
export const leadsTo = (p: { peerEquipment: string; peerPort: string; peerNode: string }) =>
  p.peerNode || [p.peerEquipment, p.peerPort].filter(Boolean).join(":");
