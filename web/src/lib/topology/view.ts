// The platform's answers as what is drawn.
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import {
  type Link as ApiLink,
  Level,
  type NetworkView,
  type ViewCenter,
  type ViewValues,
  type ViewVertex,
} from "../../gen/yunhe/topology/v1/topology_pb";
import { millis } from "../format";
import { type Center, type Equipment, emptyNodes, type Graph, type Group, type Link, type Nodes } from "./model";

/** The graph of a view. */
export function fromView(view: NetworkView): Graph {
  const groups: Group[] = [];
  const resources: ViewVertex[] = [];
  for (const v of view.vertices) {
    const level = groupLevel(v.level);
    if (level) groups.push({ ...common(v), level, parent: v.parentId });
    else resources.push(v);
  }
  const centers = view.centers.map(centerOf);
  // Every resource stands in the tile of the group or center it is below.
  const parents = new Map(resources.map((r) => [r.nodeId, r.parentId]));
  const drawn = new Map<string, string>([
    ...groups.map((g): [string, string] => [g.id, g.id]),
    ...centers.map((c): [string, string] => [c.id, c.id]),
  ]);
  const holder = (id: string): string => {
    let at = id;
    for (let i = 0; i < 32 && at !== ""; i++) {
      const found = drawn.get(at) ?? drawn.get(centerOfNode(at, centers));
      if (found) return found;
      at = parents.get(at) ?? "";
    }
    return groups[0]?.id ?? "";
  };
  centers.push(...resourceTiles(resources, holder, centers, groups));
  return {
    revision: view.revision,
    sequence: Number(view.sequence),
    at: millis(view.at) ?? 0,
    historyFrom: firstMilli(view.historyFrom),
    groups,
    centers,
    links: view.links.map((l) => linkOf(l, holder)).filter((l) => l.from !== l.to),
    hidden: { resources: Number(view.moreVertices), links: Number(view.moreLinks) },
  };
}

// Times are asked for in whole milliseconds: the first that is not before history.
function firstMilli(t: Timestamp | undefined): number | undefined {
  const ms = millis(t);
  return ms === undefined || !t ? undefined : ms + (t.nanos % 1_000_000 > 0 ? 1 : 0);
}

function groupLevel(level: Level): Group["level"] | undefined {
  switch (level) {
    case Level.NETWORK:
      return "network";
    case Level.PLATFORM:
      return "platform";
    case Level.REGION:
      return "region";
    default:
      return undefined;
  }
}

function common(v: ViewVertex) {
  return {
    id: v.nodeId,
    name: v.name || v.nodeId,
    health: v.health as number,
    state: v.state as number,
    reason: v.reason,
    ...(v.located ? { longitude: v.longitude, latitude: v.latitude } : {}),
  };
}

const prefix = "center:";

function centerOf(c: ViewCenter): Center {
  const v = c.center;
  if (!v) throw new Error("the platform answered a center without its vertex");
  const equipment = c.layoutTable.map((l) =>
    l.cards.map((e): Equipment => ({ resource: e.resource, vendor: e.vendor, model: e.model, count: Number(e.count) })),
  );
  if (equipment.length === 0) equipment.push([]);
  const layouts = Uint32Array.from({ length: c.names.length }, (_, i) => c.layouts[i] ?? 0);
  return {
    ...common(v),
    centerId: v.nodeId.startsWith(prefix) ? v.nodeId.slice(prefix.length) : v.aiCenterId,
    group: v.parentId,
    since: Number(v.firstSeenUs) / 1000,
    nodes: withCards(c.names, c.health, c.states, layouts, equipment, c.cardHealth),
  };
}

function withCards(
  names: string[],
  health: Uint8Array,
  states: Uint8Array,
  layouts: Uint32Array,
  equipment: Equipment[][],
  cardHealth: Uint8Array,
): Nodes {
  const sizes = equipment.map((list) => list.reduce((sum, e) => sum + e.count, 0));
  const cardStart = new Uint32Array(names.length + 1);
  for (let i = 0; i < names.length; i++) cardStart[i + 1] = (cardStart[i] ?? 0) + (sizes[layouts[i] ?? 0] ?? 0);
  const total = cardStart[names.length] ?? 0;
  let cards = cardHealth;
  if (cards.length !== total) {
    cards = new Uint8Array(total);
    for (let i = 0; i < names.length; i++) cards.fill(health[i] ?? 0, cardStart[i], cardStart[i + 1]);
  }
  return { names, health, states, layouts, equipment, cardStart, cardHealth: cards };
}

// The center vertex a node's or card's ID is of, "" if it is of none.
function centerOfNode(id: string, centers: readonly Center[]): string {
  const match = /^(?:node:([^:]+):|card:([^/]+)\/)/.exec(id);
  const centerId = match?.[1] ?? match?.[2];
  return centerId ? (centers.find((c) => c.centerId === centerId)?.id ?? "") : "";
}

function resourceTiles(
  resources: readonly ViewVertex[],
  holder: (id: string) => string,
  centers: readonly Center[],
  groups: readonly Group[],
): Center[] {
  const byHolder = new Map<string, ViewVertex[]>();
  for (const r of resources) {
    const at = holder(r.parentId);
    const list = byHolder.get(at);
    if (list) list.push(r);
    else byHolder.set(at, [r]);
  }
  return [...byHolder].map(([id, list]): Center => {
    const center = centers.find((c) => c.id === id);
    const group = center?.group ?? groups.find((g) => g.id === id)?.id ?? "";
    list.sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1));
    const worst = Math.max(0, ...list.map((r) => (r.health === 6 ? 0 : (r.health as number))));
    return {
      id: `${id}#resources`,
      centerId: "",
      name: center?.name ?? "",
      group,
      health: worst,
      state: 0,
      reason: "",
      since: center ? center.since + 0.5 : Infinity,
      longitude: center?.longitude,
      latitude: center?.latitude,
      nodes: {
        ...emptyNodes(),
        names: list.map((r) => r.name || r.nodeId),
        ids: list.map((r) => r.nodeId),
        health: Uint8Array.from(list, (r) => r.health),
        states: Uint8Array.from(list, (r) => r.state),
        layouts: new Uint32Array(list.length),
        cardStart: new Uint32Array(list.length + 1),
      },
    };
  });
}

function linkOf(l: ApiLink, holder: (id: string) => string): Link {
  const latency = l.figures.find((f) => /latency/.test(f.bindingId))?.value;
  return {
    id: l.linkId,
    name: l.name || l.linkId,
    from: holder(l.fromId),
    to: holder(l.toId),
    kind: l.kind,
    health: l.health,
    latency: latency ?? (l.latencyUs > 0n ? Number(l.latencyUs) / 1e6 : undefined),
    measured: latency !== undefined,
    bandwidth: l.bandwidthBitsPerSecond > 0n ? Number(l.bandwidthBitsPerSecond) : undefined,
  };
}

/** Values of one binding in the order of a graph; NaN: not measured. */
export interface Values {
  sequence: number;
  low: number;
  high: number;
  lowIsBad: boolean;
  unit: string;
  centers: { value: number; nodes: ArrayLike<number>; cards: ArrayLike<number> }[];
  /** Of groups, resources and links, by ID. */
  others: Map<string, number>;
}

/** The values of an answer, fitted to the graph; undefined if they are of another structure. */
export function fromValues(answer: ViewValues, graph: Graph): Values | undefined {
  if (Number(answer.sequence) !== graph.sequence) return undefined;
  const byCenter = new Map(answer.centers.map((c) => [c.aiCenterId, c]));
  const b = answer.binding;
  return {
    sequence: graph.sequence,
    low: b?.low ?? 0,
    high: b && b.high !== b.low ? b.high : (b?.low ?? 0) + 1,
    lowIsBad: b?.lowIsBad ?? false,
    unit: b?.unit ?? "",
    centers: graph.centers.map((c) => {
      const found = c.centerId ? byCenter.get(c.centerId) : undefined;
      return { value: found?.value ?? NaN, nodes: found?.nodes ?? [], cards: found?.cards ?? [] };
    }),
    others: new Map([
      ...answer.vertices.map((v): [string, number] => [v.nodeId, v.value]),
      ...answer.links.map((v): [string, number] => [v.linkId, v.value]),
    ]),
  };
}
