// What the topology view draws: the network at one moment. Groups (the
// network, platforms, clouds, regions) hold centers, centers hold nodes, nodes
// hold cards. Nodes and cards are columns, because there are many of them.
// Registered resources are shown like nodes, in a tile of what they belong to.

/** How something is, by the platform's numbers. */
export const Health = { none: 0, healthy: 1, busy: 2, warning: 3, down: 4, unknown: 5, isolated: 6 } as const;
export const HEALTHS = ["none", "healthy", "busy", "warning", "down", "unknown", "isolated"] as const;
export type HealthName = (typeof HEALTHS)[number];

/** The worst first: what a viewer should look at. */
export const TROUBLE_FIRST: readonly number[] = [
  Health.down,
  Health.warning,
  Health.unknown,
  Health.isolated,
  Health.busy,
  Health.none,
  Health.healthy,
];

export function healthName(health: number): HealthName {
  return HEALTHS[health] ?? "none";
}

/** How many are in each health, by number. */
export type Counts = number[];

export function noCounts(): Counts {
  return HEALTHS.map(() => 0);
}

/** What states are called, by the platform's numbers. */
export const STATES = ["none", "ready", "notReady", "unknown", "isolated", "registered", "retired"] as const;
export type StateName = (typeof STATES)[number];

export function stateName(state: number): StateName {
  return STATES[state] ?? "none";
}

export type Level = "network" | "platform" | "region" | "center" | "node" | "card";

/** A group: the network, a platform, a cloud or a region. */
export interface Group {
  id: string;
  level: "network" | "platform" | "region";
  name: string;
  /** ID of the group it is in; "" for the top one. */
  parent: string;
  health: number;
  state: number;
  longitude?: number;
  latitude?: number;
}

/** Equal cards of a node. */
export interface Equipment {
  resource: string;
  vendor: string;
  model: string;
  count: number;
}

/** The nodes of a center, by column. Card j of node i is at cardStart[i] + j. */
export interface Nodes {
  names: string[];
  health: Uint8Array;
  states: Uint8Array;
  /** Which entry of equipment each has; the first is of none. */
  layouts: Uint32Array;
  equipment: Equipment[][];
  /** One more than there are nodes. */
  cardStart: Uint32Array;
  cardHealth: Uint8Array;
  /** Of resources: their own IDs. */
  ids?: string[];
}

export interface Center {
  /** Of the vertex. */
  id: string;
  /** The computing center's own ID; "" for a tile of resources. */
  centerId: string;
  name: string;
  /** ID of the group it is in. */
  group: string;
  health: number;
  state: number;
  reason: string;
  /** Milliseconds since 1970 at which it was first seen; orders places. */
  since: number;
  longitude?: number;
  latitude?: number;
  nodes: Nodes;
  /** It is not there at this time; its place is kept free. */
  absent?: boolean;
}

/** A connection of two things that are drawn: centers or groups. */
export interface Link {
  id: string;
  name: string;
  from: string;
  to: string;
  kind: number;
  health: number;
  /** Seconds; undefined: neither measured nor declared. */
  latency?: number;
  /** The latency was measured, not declared. */
  measured: boolean;
  /** Bits per second. */
  bandwidth?: number;
}

export interface Graph {
  /** Names what was answered; "" for what was made of it since. */
  revision: string;
  /** Counts the changes of the structure. */
  sequence: number;
  /** Milliseconds since 1970. */
  at: number;
  historyFrom?: number;
  groups: Group[];
  centers: Center[];
  links: Link[];
  /** Groups links end at at some time: there is room for them. */
  hubs?: readonly string[];
  /** Resources and links the platform left out of its answer. */
  hidden: { resources: number; links: number };
}

export const EMPTY_GRAPH: Graph = {
  revision: "",
  sequence: 0,
  at: 0,
  groups: [],
  centers: [],
  links: [],
  hidden: { resources: 0, links: 0 },
};

export function emptyNodes(): Nodes {
  return {
    names: [],
    health: new Uint8Array(0),
    states: new Uint8Array(0),
    layouts: new Uint32Array(0),
    equipment: [[]],
    cardStart: new Uint32Array(1),
    cardHealth: new Uint8Array(0),
  };
}

/** One thing that can be looked at: a vertex by where it stands in the graph. */
export interface Target {
  level: Level;
  /** Index of the center, or of the group for the levels above. */
  index: number;
  /** Index of the node in its center. */
  node?: number;
  card?: number;
}

export function sameTarget(a: Target | undefined, b: Target | undefined): boolean {
  return (
    a === b || (!!a && !!b && a.level === b.level && a.index === b.index && a.node === b.node && a.card === b.card)
  );
}

export function cardCount(nodes: Nodes, node: number): number {
  return (nodes.cardStart[node + 1] ?? 0) - (nodes.cardStart[node] ?? 0);
}

export interface Card {
  resource: string;
  /** Counts from 0 for each resource of the node. */
  index: number;
  vendor: string;
  model: string;
}

/** Which card the n-th of a node is. */
export function cardOf(nodes: Nodes, node: number, n: number): Card | undefined {
  const counted = new Map<string, number>();
  let left = n;
  for (const e of nodes.equipment[nodes.layouts[node] ?? 0] ?? []) {
    const before = counted.get(e.resource) ?? 0;
    if (left < e.count) return { resource: e.resource, index: before + left, vendor: e.vendor, model: e.model };
    left -= e.count;
    counted.set(e.resource, before + e.count);
  }
  return undefined;
}

/** The ID of a vertex, as the platform names it. */
export function vertexId(target: Target, graph: Graph): string {
  if (target.level !== "center" && target.level !== "node" && target.level !== "card") {
    return graph.groups[target.index]?.id ?? "";
  }
  const center = graph.centers[target.index];
  if (!center) return "";
  if (target.node === undefined) return center.id;
  const name = center.nodes.names[target.node] ?? "";
  if (center.nodes.ids) return center.nodes.ids[target.node] ?? "";
  if (target.card === undefined) return `node:${center.centerId}:${name}`;
  const card = cardOf(center.nodes, target.node, target.card);
  return card ? `card:${center.centerId}/${name}/${card.resource}/${card.index}` : "";
}

/** Where the vertex of an ID stands; undefined if it is not in the graph. */
export function targetOf(id: string, graph: Graph): Target | undefined {
  const group = graph.groups.findIndex((g) => g.id === id);
  if (group >= 0) return { level: graph.groups[group]?.level ?? "region", index: group };
  const center = graph.centers.findIndex((c) => c.id === id);
  if (center >= 0) return { level: "center", index: center };
  if (id.startsWith("node:")) {
    for (const [index, c] of graph.centers.entries()) {
      if (!c.centerId || !id.startsWith(`node:${c.centerId}:`)) continue;
      const node = nodeIndex(c.nodes, id.slice(c.centerId.length + 6));
      if (node >= 0) return { level: "node", index, node };
    }
    return undefined;
  }
  if (id.startsWith("card:")) {
    for (const [index, c] of graph.centers.entries()) {
      if (!c.centerId || !id.startsWith(`card:${c.centerId}/`)) continue;
      const [name = "", resource, at] = id.slice(c.centerId.length + 6).split("/");
      const node = nodeIndex(c.nodes, name);
      for (let card = 0; node >= 0 && card < cardCount(c.nodes, node); card++) {
        const found = cardOf(c.nodes, node, card);
        if (found?.resource === resource && found?.index === Number(at)) return { level: "card", index, node, card };
      }
    }
    return undefined;
  }
  for (const [index, c] of graph.centers.entries()) {
    const node = c.nodes.ids?.indexOf(id) ?? -1;
    if (node >= 0) return { level: "node", index, node };
  }
  return undefined;
}

/** The node of a name; names are sorted by code unit unless they are of resources. */
export function nodeIndex(nodes: Nodes, name: string): number {
  return nodes.names.indexOf(name);
}

export function healthOf(target: Target, graph: Graph): number {
  if (target.level !== "center" && target.level !== "node" && target.level !== "card") {
    return graph.groups[target.index]?.health ?? 0;
  }
  const center = graph.centers[target.index];
  if (!center) return 0;
  if (target.node === undefined) return center.health;
  if (target.card === undefined) return center.nodes.health[target.node] ?? 0;
  return center.nodes.cardHealth[(center.nodes.cardStart[target.node] ?? 0) + target.card] ?? 0;
}

/** The name of a vertex for people; the network has none. */
export function nameOf(target: Target, graph: Graph): string {
  if (target.level !== "center" && target.level !== "node" && target.level !== "card") {
    return graph.groups[target.index]?.name ?? "";
  }
  const center = graph.centers[target.index];
  if (target.node === undefined) return center?.name ?? "";
  if (target.card === undefined) return center?.nodes.names[target.node] ?? "";
  const card = center && cardOf(center.nodes, target.node, target.card);
  return card ? `${card.resource}/${card.index}` : "";
}

/** Nodes of a center by health. */
export function countNodes(nodes: Nodes): Counts {
  const counts = noCounts();
  for (const h of nodes.health) counts[h] = (counts[h] ?? 0) + 1;
  return counts;
}

/** Nodes of all centers by health; those of resources are not counted. */
export function countAll(graph: Graph): { nodes: Counts; centers: number; cards: number } {
  const nodes = noCounts();
  let centers = 0;
  let cards = 0;
  for (const c of graph.centers) {
    if (!c.centerId || c.absent) continue;
    centers++;
    cards += c.nodes.cardHealth.length;
    for (const h of c.nodes.health) nodes[h] = (nodes[h] ?? 0) + 1;
  }
  return { nodes, centers, cards };
}
