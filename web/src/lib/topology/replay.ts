// History as it happened: changes applied to the view of the time before, and
// the differences of two times marked on the later one.
import {
  type Link as ApiLink,
  ChangeKind,
  Level,
  type TopologyChange,
  type VertexRecord,
} from "../../gen/yunhe/topology/v1/topology_pb";
import { millis } from "../format";
import { type Center, type Equipment, emptyNodes, type Graph, type Group, type Link, type Nodes } from "./model";
import { Mark, type Marks } from "./scene";

interface Row {
  name: string;
  id: string;
  health: number;
  state: number;
  equipment: Equipment[];
  /** Of each card; fewer than there are cards: those left are as the node. */
  cards: number[];
}

/** The graph after changes, which are in the order in which they happened. What they do not touch is shared. */
export function applyChanges(graph: Graph, changes: readonly TopologyChange[]): Graph {
  if (changes.length === 0) return graph;
  const last = changes[changes.length - 1];
  const work = new Work(graph);
  for (const c of changes) {
    if (c.linkId) work.link(c.linkId, c.linkAfter);
    else work.vertex(c.nodeId, c.after, c.before, millis(c.at) ?? 0);
  }
  return work.done(millis(last?.at) ?? graph.at);
}

class Work {
  private readonly groups: Map<string, Group>;
  private readonly centers: Map<string, Center>;
  private readonly links: Map<string, Link>;
  private readonly rows = new Map<string, Map<string, Row>>();

  constructor(private readonly graph: Graph) {
    this.groups = new Map(graph.groups.map((g) => [g.id, g]));
    this.centers = new Map(graph.centers.map((c) => [c.id, c]));
    this.links = new Map(graph.links.map((l) => [l.id, l]));
  }

  vertex(id: string, after: VertexRecord | undefined, before: VertexRecord | undefined, at: number): void {
    switch ((after ?? before)?.level) {
      case Level.NETWORK:
      case Level.PLATFORM:
      case Level.REGION:
        this.group(id, after);
        break;
      case Level.CENTER:
        this.center(id, after, at);
        break;
      case Level.NODE:
        this.row(`center:${(after ?? before)?.aiCenterId}`, id, after);
        break;
      case Level.RESOURCE:
        if (before && before.parentId !== after?.parentId) this.row(this.tileFor(before.parentId, at), id, undefined);
        if (after) this.row(this.tileFor(after.parentId, at), id, after);
        break;
    }
  }

  private group(id: string, r: VertexRecord | undefined): void {
    const old = this.groups.get(id);
    if (!r) {
      this.groups.delete(id);
      return;
    }
    const level = r.level === Level.NETWORK ? "network" : r.level === Level.PLATFORM ? "platform" : "region";
    this.groups.set(id, {
      ...old,
      id,
      level,
      name: r.name || id,
      parent: r.parentId,
      health: r.health,
      state: r.state,
      ...place(r),
    });
  }

  private center(id: string, r: VertexRecord | undefined, at: number): void {
    if (!r) {
      this.centers.delete(id);
      this.rows.delete(id);
      return;
    }
    const old = this.centers.get(id);
    this.centers.set(id, {
      id,
      centerId: r.aiCenterId || id.replace(/^center:/, ""),
      name: r.name || id,
      group: r.parentId,
      health: r.health,
      state: r.state,
      reason: r.reason,
      since: old?.since ?? at,
      nodes: old?.nodes ?? emptyNodes(),
      ...place(r),
    });
  }

  // The tile resources below something stand in; made if there is none yet.
  private tileFor(parent: string, at: number): string {
    const holder = this.centers.has(parent) || this.groups.has(parent) ? parent : (this.graph.groups[0]?.id ?? "");
    const id = `${holder}#resources`;
    if (!this.centers.has(id)) {
      const center = this.centers.get(holder);
      this.centers.set(id, {
        id,
        centerId: "",
        name: center?.name ?? "",
        group: center?.group ?? holder,
        health: 0,
        state: 0,
        reason: "",
        since: center ? center.since + 0.5 : at,
        longitude: center?.longitude,
        latitude: center?.latitude,
        nodes: { ...emptyNodes(), ids: [] },
      });
    }
    return id;
  }

  private row(centerId: string, id: string, r: VertexRecord | undefined): void {
    let rows = this.rows.get(centerId);
    if (!rows) {
      rows = rowsOf(this.centers.get(centerId)?.nodes ?? emptyNodes(), centerId);
      this.rows.set(centerId, rows);
    }
    if (!r) {
      rows.delete(id);
      return;
    }
    rows.set(id, {
      id,
      name: r.name || id,
      health: r.health,
      state: r.state,
      equipment: r.equipment.map((e) => ({
        resource: e.resource,
        vendor: e.vendor,
        model: e.model,
        count: Number(e.count),
      })),
      // Cards are as their node until the platform says more of them.
      cards: [],
    });
  }

  link(id: string, l: ApiLink | undefined): void {
    if (!l) {
      this.links.delete(id);
      return;
    }
    this.links.set(id, {
      ...this.links.get(id),
      id,
      name: l.name || id,
      from: l.fromId,
      to: l.toId,
      kind: l.kind,
      health: l.health,
      latency: l.latencyUs > 0n ? Number(l.latencyUs) / 1e6 : undefined,
      measured: false,
      bandwidth: l.bandwidthBitsPerSecond > 0n ? Number(l.bandwidthBitsPerSecond) : undefined,
    });
  }

  done(at: number): Graph {
    for (const [id, rows] of this.rows) {
      const center = this.centers.get(id);
      if (!center) continue;
      if (rows.size === 0 && !center.centerId) this.centers.delete(id);
      else this.centers.set(id, { ...center, nodes: columnsOf([...rows.values()], center.nodes.ids !== undefined) });
    }
    return {
      ...this.graph,
      revision: "",
      sequence: -1,
      at,
      groups: [...this.groups.values()],
      centers: [...this.centers.values()],
      links: [...this.links.values()],
    };
  }
}

function place(r: VertexRecord): { longitude?: number; latitude?: number } {
  return r.located ? { longitude: r.longitude, latitude: r.latitude } : {};
}

function rowsOf(nodes: Nodes, centerId: string): Map<string, Row> {
  const rows = new Map<string, Row>();
  const prefix = `node:${centerId.replace(/^center:/, "")}:`;
  nodes.names.forEach((name, i) => {
    const id = nodes.ids?.[i] ?? prefix + name;
    rows.set(id, {
      id,
      name,
      health: nodes.health[i] ?? 0,
      state: nodes.states[i] ?? 0,
      equipment: nodes.equipment[nodes.layouts[i] ?? 0] ?? [],
      cards: [...nodes.cardHealth.subarray(nodes.cardStart[i], nodes.cardStart[i + 1])],
    });
  });
  return rows;
}

function columnsOf(rows: Row[], resources: boolean): Nodes {
  rows.sort((a, b) => {
    const [x, y] = resources ? [a.id, b.id] : [a.name, b.name];
    return x < y ? -1 : x > y ? 1 : 0;
  });
  const equipment: Equipment[][] = [[]];
  const known = new Map<string, number>([["[]", 0]]);
  const layouts = new Uint32Array(rows.length);
  const cardStart = new Uint32Array(rows.length + 1);
  rows.forEach((r, i) => {
    const key = JSON.stringify(r.equipment);
    let at = known.get(key);
    if (at === undefined) {
      at = equipment.push(r.equipment) - 1;
      known.set(key, at);
    }
    layouts[i] = at;
    cardStart[i + 1] = (cardStart[i] ?? 0) + r.equipment.reduce((sum, e) => sum + e.count, 0);
  });
  const cardHealth = new Uint8Array(cardStart[rows.length] ?? 0);
  rows.forEach((r, i) => {
    cardHealth.fill(r.health, cardStart[i], cardStart[i + 1]);
    r.cards.forEach((h, j) => {
      const card = (cardStart[i] ?? 0) + j;
      if (card < (cardStart[i + 1] ?? 0)) cardHealth[card] = h;
    });
  });
  return {
    names: rows.map((r) => r.name),
    health: Uint8Array.from(rows, (r) => r.health),
    states: Uint8Array.from(rows, (r) => r.state),
    layouts,
    equipment,
    cardStart,
    cardHealth,
    ...(resources ? { ids: rows.map((r) => r.id) } : {}),
  };
}

/**
 * The later graph with what is gone since put back as removed, and marks of
 * what is different. Changes are those of a diff: one for each vertex.
 */
export function markChanges(later: Graph, changes: readonly TopologyChange[]): { graph: Graph; marks: Marks } {
  const gone = changes.filter((c) => c.kind === ChangeKind.REMOVED && c.before && !c.linkId);
  const back = gone.map(
    (c): TopologyChange => ({
      ...c,
      kind: ChangeKind.ADDED,
      after: c.before && { ...c.before, health: 0 },
      before: undefined,
    }),
  );
  // Parents before children.
  back.sort((a, b) => (a.after?.level ?? 0) - (b.after?.level ?? 0) || (a.nodeId < b.nodeId ? -1 : 1));
  const merged = back.length ? { ...applyChanges(later, back), at: later.at } : later;
  const kinds = new Map(changes.filter((c) => !c.linkId).map((c) => [c.nodeId, markOf(c.kind)]));
  const marks: Marks = {
    centers: Uint8Array.from(merged.centers, (c) => kinds.get(c.id) ?? Mark.none),
    nodes: merged.centers.map((c) =>
      Uint8Array.from(
        c.nodes.names,
        (name, i) => kinds.get(c.nodes.ids?.[i] ?? `node:${c.centerId}:${name}`) ?? Mark.none,
      ),
    ),
  };
  return { graph: merged, marks };
}

/**
 * The graph of another time with the places of the present one: what is there
 * now and was not then keeps its place free, so that playing history shuffles
 * nothing.
 */
export function withPlaces(graph: Graph, present: Graph): Graph {
  if (graph === present) return graph;
  const now = new Map(present.centers.map((c) => [c.id, c]));
  const groups = new Set(graph.groups.map((g) => g.id));
  const there = new Set(graph.centers.map((c) => c.id));
  return {
    ...graph,
    groups: [...graph.groups, ...present.groups.filter((g) => !groups.has(g.id)).map((g) => ({ ...g, health: 0 }))],
    centers: [
      ...graph.centers.map((c) => ({ ...c, since: now.get(c.id)?.since ?? c.since })),
      ...present.centers
        .filter((c) => !there.has(c.id))
        .map((c) => ({ ...c, health: 0, state: 0, reason: "", nodes: emptyNodes(), absent: true })),
    ],
    hubs: present.links.flatMap((l) => [l.from, l.to]),
  };
}

export function markOf(kind: ChangeKind): number {
  switch (kind) {
    case ChangeKind.ADDED:
      return Mark.added;
    case ChangeKind.CHANGED:
      return Mark.changed;
    case ChangeKind.REMOVED:
      return Mark.removed;
    default:
      return Mark.none;
  }
}

/** Where a replay is: the graph at a time, and the changes that come after. */
export class Replay {
  private next = 0;
  private readonly changes: TopologyChange[] = [];
  /** Every change up to the end is known. */
  complete = false;

  constructor(
    private current: Graph,
    /** Milliseconds since 1970. */
    public at: number,
  ) {}

  get graph(): Graph {
    return this.current;
  }

  add(changes: readonly TopologyChange[]): void {
    this.changes.push(...changes);
  }

  /** The time of the next change that is not shown yet; undefined: none is known. */
  nextChange(): number | undefined {
    return millis(this.changes[this.next]?.at);
  }

  /** Up to where the changes are known. */
  knownTo(end: number): number {
    if (this.complete) return end;
    // More changes of the last one's time may follow.
    return (millis(this.changes[this.changes.length - 1]?.at) ?? this.at) - 1;
  }

  /** Goes on to a time, no further than is known. */
  advance(to: number, end: number): void {
    const stop = Math.min(to, Math.max(this.at, this.knownTo(end)));
    const from = this.next;
    while (this.next < this.changes.length && (millis(this.changes[this.next]?.at) ?? 0) <= stop) this.next++;
    if (this.next > from) this.current = applyChanges(this.current, this.changes.slice(from, this.next));
    this.at = stop;
  }
}

/** What waits between two changes, in milliseconds of history, is skipped if it is longer than this share of the whole. */
export const QUIET_SHARE = 0.03;

/** Where a replay is after a step: quiet times are passed over. */
export function stepTo(at: number, step: number, next: number | undefined, span: number): number {
  if (next !== undefined && next - at > QUIET_SHARE * span) return Math.max(at + step, next - (QUIET_SHARE * span) / 4);
  return at + step;
}
