// The topology of the platform in memory: centers with nodes and cards, of
// which some fail and come back, with six hours of history.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  type Binding,
  BindingSchema,
  ChangeKind,
  Health,
  Level,
  LinkKind,
  LinkSource,
  NetworkViewSchema,
  NodeType,
  type TopologyChange,
  TopologyChangeSchema,
  type TopologyService,
  VertexSchema,
  VertexState,
  type ViewCenterSchema,
} from "../gen/yunhe/topology/v1/topology_pb";
import { millis } from "../lib/format";

const HISTORY_MS = 6 * 3_600_000;
const begin = Date.now();

interface Node {
  center: number;
  name: string;
  from: number;
  to: number;
}
interface CenterRow {
  id: string;
  name: string;
  region: string;
  longitude: number;
  latitude: number;
  nodes: Node[];
}
interface Event {
  at: number;
  node: Node;
  state: VertexState;
  before: VertexState;
  reason: string;
}

// A generator of numbers that are the same each time.
function numbers(seed: number): () => number {
  let s = seed;
  return () => {
    s = (Math.imul(s ^ (s >>> 15), 1 | s) + 0x6d2b79f5) | 0;
    const t = Math.imul(s ^ (s >>> 7), 61 | s) ^ s;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

type Row = [id: string, name: string, region: string, lon: number, lat: number, ...rest: unknown[]];

/** A network of about so many nodes at the given centers, and others near them. */
export class TopologyFixture {
  private readonly centers: CenterRow[] = [];
  private readonly events: Event[] = [];

  constructor(rows: readonly Row[], wanted: number) {
    const next = numbers(7);
    const total = Math.max(rows.length, Math.round(Math.sqrt(wanted)));
    const weights: number[] = [];
    for (let i = 0; i < total; i++) {
      const row = rows[i % rows.length] as Row;
      const first = i < rows.length;
      this.centers.push({
        id: first ? row[0] : `${row[0].replace(/-\d+$/, "")}-${Math.floor(i / rows.length) + 1}`,
        name: first ? row[1] : `${row[1]} ${Math.floor(i / rows.length) + 1}`,
        region: row[2],
        longitude: row[3] + (first ? 0 : (next() - 0.5) * 4),
        latitude: row[4] + (first ? 0 : (next() - 0.5) * 4),
        nodes: [],
      });
      weights.push(0.15 + next() ** 3 * 4);
    }
    const sum = weights.reduce((a, b) => a + b, 0);
    this.centers.forEach((c, i) => {
      const count = Math.max(1, Math.round(((weights[i] ?? 0) / sum) * wanted));
      for (let n = 0; n < count; n++) {
        const joined = next() < 0.02 ? begin - next() * HISTORY_MS : 0;
        c.nodes.push({
          center: i,
          name: `node-${n.toString().padStart(5, "0")}`,
          from: joined,
          to: next() < 0.01 ? begin - next() * HISTORY_MS : Number.POSITIVE_INFINITY,
        });
      }
    });
    const all = this.centers.flatMap((c) => c.nodes);
    const reasons = ["kubelet stopped posting status", "GPU 3 fell off the bus (Xid 79)", "disk pressure"];
    for (let i = 0; i < Math.max(40, wanted / 25); i++) {
      const node = all[Math.floor(next() * all.length)];
      if (!node) continue;
      const at = begin - next() ** 2 * HISTORY_MS;
      const state = next() < 0.7 ? VertexState.NOT_READY : next() < 0.5 ? VertexState.ISOLATED : VertexState.UNKNOWN;
      const reason = reasons[Math.floor(next() * reasons.length)] ?? "";
      this.events.push({ at, node, state, before: VertexState.READY, reason });
      const back = at + next() * 2_400_000;
      if (back < begin) {
        this.events.push({ at: back, node, state: VertexState.READY, before: state, reason: "" });
      }
    }
    this.events.sort((a, b) => a.at - b.at);
  }

  private states(at: number): Map<Node, Event> {
    const states = new Map<Node, Event>();
    for (const e of this.events) if (e.at <= at) states.set(e.node, e);
    return states;
  }

  private view(at: number) {
    const states = this.states(at);
    const regions = [...new Set(this.centers.map((c) => c.region))].sort();
    let worst = 0;
    const centers = this.centers.map((c, i): MessageInitShape<typeof ViewCenterSchema> => {
      const nodes = c.nodes.filter((n) => n.from <= at && n.to > at);
      const health = Uint8Array.from(nodes, (n, j) => healthFor(states.get(n)?.state, (i * 31 + j * 17) % 13 < 5));
      const bad = health.some((h) => h === Health.DOWN || h === Health.UNKNOWN);
      worst = Math.max(worst, bad ? 1 : 0);
      return {
        center: {
          nodeId: `center:${c.id}`,
          parentId: `region:${c.region}`,
          name: c.name,
          level: Level.CENTER,
          kind: "center",
          nodeType: NodeType.COMPUTE,
          state: VertexState.READY,
          health: i === 5 ? Health.DOWN : bad ? Health.WARNING : Health.HEALTHY,
          worst: bad ? Health.DOWN : Health.HEALTHY,
          located: true,
          longitude: c.longitude,
          latitude: c.latitude,
          aiCenterId: c.id,
          firstSeenUs: BigInt(1_700_000_000_000_000 + i),
        },
        names: nodes.map((n) => n.name),
        health,
        states: Uint8Array.from(nodes, (n) => states.get(n)?.state ?? VertexState.READY),
        layouts: nodes.map((_, j) => (j % 40 === 39 ? 0 : 1)),
        layoutTable: [
          { cards: [] },
          {
            cards: [
              i % 3 === 1
                ? { resource: "npu", vendor: "Huawei", model: "Ascend 910B", count: 8n }
                : { resource: "gpu", vendor: "NVIDIA", model: "H800", count: 8n },
            ],
          },
        ],
      };
    });
    return create(NetworkViewSchema, {
      sequence: 1n,
      revision: String(at),
      at: timestampFromMs(at),
      historyFrom: timestampFromMs(begin - HISTORY_MS),
      vertices: [
        { nodeId: "network", name: "network", level: Level.NETWORK, kind: "network", health: Health.WARNING },
        ...regions.map((r) => ({
          nodeId: `region:${r}`,
          parentId: "network",
          name: r,
          level: Level.REGION,
          kind: "region",
          health: Health.HEALTHY,
        })),
        ...["Core switch", "Parallel file system", "Firewall"].map((name, i) => ({
          nodeId: `res-${i}`,
          parentId: `center:${this.centers[0]?.id}`,
          name,
          level: Level.RESOURCE,
          nodeType: (NodeType.NETWORK + i) as NodeType,
          kind: ["network", "storage", "security"][i] ?? "",
          health: Health.HEALTHY,
          state: VertexState.READY,
        })),
      ],
      centers,
      links: this.links(),
    });
  }

  private links() {
    return this.centers.flatMap((c, i) => {
      const latency = 0.002 + (((i * 37) % 23) / 23) * 0.045;
      const path = {
        linkId: `path:${c.id}`,
        fromId: `center:${c.id}`,
        toId: "network",
        kind: LinkKind.PATH,
        source: LinkSource.MEASURED,
        health: i === 5 ? Health.DOWN : latency > 0.042 ? Health.WARNING : Health.HEALTHY,
        figures: [{ bindingId: "path-latency", title: "Latency", unit: "seconds", value: latency }],
      };
      if (i === 0 || i > 7) return [path];
      return [
        path,
        {
          linkId: `line-${i}`,
          name: `Line ${i}`,
          fromId: `center:${this.centers[i - 1]?.id}`,
          toId: `center:${c.id}`,
          kind: i % 2 ? LinkKind.LEASED_LINE : LinkKind.INTERNET,
          source: LinkSource.DECLARED,
          health: Health.HEALTHY,
          bandwidthBitsPerSecond: BigInt(i) * 50_000_000_000n,
          latencyUs: 9_000n,
        },
      ];
    });
  }

  private changes(from: number, to: number): TopologyChange[] {
    const found: TopologyChange[] = [];
    const record = (n: Node, state: VertexState, reason: string) => ({
      parentId: `center:${this.centers[n.center]?.id}`,
      name: n.name,
      kind: "node",
      nodeType: NodeType.COMPUTE,
      level: Level.NODE,
      state,
      health: healthFor(state, false),
      reason,
      aiCenterId: this.centers[n.center]?.id ?? "",
      equipment: [{ resource: "gpu", vendor: "NVIDIA", model: "H800", count: 8n }],
    });
    const add = (
      at: number,
      n: Node,
      kind: ChangeKind,
      before?: [VertexState, string],
      after?: [VertexState, string],
    ) => {
      if (at <= from || at > to) return;
      found.push(
        create(TopologyChangeSchema, {
          sequence: BigInt(Math.round(at)),
          at: timestampFromMs(at),
          kind,
          nodeId: `node:${this.centers[n.center]?.id}:${n.name}`,
          before: before && record(n, ...before),
          after: after && record(n, ...after),
          fields: before && after ? ["state"] : [],
        }),
      );
    };
    for (const e of this.events) {
      if (e.at < e.node.from || e.at > e.node.to) continue;
      add(e.at, e.node, ChangeKind.CHANGED, [e.before, ""], [e.state, e.reason]);
    }
    for (const n of this.centers.flatMap((c) => c.nodes)) {
      if (n.from > 0) add(n.from, n, ChangeKind.ADDED, undefined, [VertexState.READY, ""]);
      if (n.to < begin) add(n.to, n, ChangeKind.REMOVED, [VertexState.READY, ""]);
    }
    return found.sort((a, b) => Number(a.sequence - b.sequence));
  }

  routes(): Partial<ServiceImpl<typeof TopologyService>> {
    const time = (t: Parameters<typeof millis>[0]) => millis(t) ?? Date.now();
    return {
      getNetworkView: ({ at, knownRevision }) => {
        if (!at && knownRevision) return create(NetworkViewSchema, { unchanged: true, revision: knownRevision });
        return this.view(time(at));
      },
      getViewValues: ({ bindingId, at }) => ({
        binding: BINDINGS.find((b) => b.bindingId === bindingId),
        sequence: 1n,
        centers: this.centers.map((c, i) => {
          const nodes = c.nodes.filter((n) => n.from <= time(at) && n.to > time(at));
          const value = (j: number) =>
            Math.min(1, Math.abs(Math.sin(i * 3.1 + j * 0.37) * 0.6 + Math.sin(j * 1.7) * 0.4));
          return {
            aiCenterId: c.id,
            value: 0.2 + ((i * 29) % 70) / 100,
            nodes: nodes.map((_, j) => value(j)),
            cards: nodes.flatMap((_, j) =>
              j % 40 === 39 ? [] : Array.from({ length: 8 }, (_, k) => value(j + k * 0.3)),
            ),
          };
        }),
      }),
      listBindings: () => ({ bindings: BINDINGS }),
      getVertex: ({ nodeId, at }) => {
        const node = this.centers
          .flatMap((c) => c.nodes)
          .find((n) => nodeId === `node:${this.centers[n.center]?.id}:${n.name}`);
        const event = node && this.states(time(at)).get(node);
        return create(VertexSchema, {
          nodeId,
          name: node?.name ?? this.centers.find((c) => nodeId === `center:${c.id}`)?.name ?? nodeId,
          state: event?.state ?? VertexState.READY,
          reason: event?.reason ?? "",
          health: healthFor(event?.state, false),
          worst: healthFor(event?.state, false),
          since: timestampFromMs(event?.at ?? begin - HISTORY_MS),
          firstSeen: timestampFromMs(begin - 9 * HISTORY_MS),
          capacity: { cpu: "128", memory: "1Ti", gpu: "8" },
          performanceBinding: {
            figures: [
              {
                bindingId: "cpu",
                title: "CPU busy",
                titleZh: "CPU 利用率",
                unit: "ratio",
                value: 0.63,
                health: Health.HEALTHY,
              },
              { bindingId: "mem", title: "Memory in use", unit: "bytes", value: 4.1e11 },
            ],
          },
          connections: this.links().filter((l) => l.fromId === nodeId || l.toId === nodeId),
        });
      },
      listTopologyChanges: ({ nodeId, from, to, newestFirst, pageSize }) => {
        const changes = this.changes(millis(from) ?? 0, time(to)).filter((c) => !nodeId || c.nodeId === nodeId);
        if (newestFirst) changes.reverse();
        return { changes: changes.slice(0, pageSize || 100_000) };
      },
      getChangeDensity: ({ from, to, buckets }) => {
        const [a, b] = [millis(from) ?? begin - HISTORY_MS, time(to)];
        const bars = [ChangeKind.ADDED, ChangeKind.CHANGED, ChangeKind.REMOVED].map(() =>
          new Array<bigint>(buckets).fill(0n),
        );
        for (const c of this.changes(a, b)) {
          const i = Math.min(buckets - 1, Math.floor((((millis(c.at) ?? 0) - a) / (b - a)) * buckets));
          const list = bars[c.kind - 1];
          if (list) list[i] = (list[i] ?? 0n) + 1n;
        }
        return { from, to, added: bars[0] ?? [], changed: bars[1] ?? [], removed: bars[2] ?? [] };
      },
      diffTopology: ({ from, to }) => {
        const last = new Map<string, TopologyChange>();
        for (const c of this.changes(time(from), time(to))) last.set(c.nodeId, c);
        const changes = [...last.values()];
        const count = (kind: ChangeKind) => BigInt(changes.filter((c) => c.kind === kind).length);
        return {
          changes,
          added: count(ChangeKind.ADDED),
          changed: count(ChangeKind.CHANGED),
          removed: count(ChangeKind.REMOVED),
        };
      },
    };
  }
}

const BINDINGS: Binding[] = [
  {
    bindingId: "node-cpu",
    title: "CPU busy",
    titleZh: "CPU 利用率",
    level: Level.NODE,
    unit: "ratio",
    low: 0,
    high: 1,
  },
  {
    bindingId: "card-busy",
    title: "Accelerator busy",
    titleZh: "加速卡利用率",
    level: Level.CARD,
    unit: "ratio",
    low: 0,
    high: 1,
  },
].map((b) => create(BindingSchema, b));

function healthFor(state: VertexState | undefined, busy: boolean): Health {
  switch (state) {
    case VertexState.NOT_READY:
      return Health.DOWN;
    case VertexState.ISOLATED:
      return Health.ISOLATED;
    case VertexState.UNKNOWN:
      return Health.UNKNOWN;
    default:
      return busy ? Health.BUSY : Health.HEALTHY;
  }
}
