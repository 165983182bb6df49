// Graphs for tests.
import { type Center, type Graph, Health } from "./model";

/** A center with so many nodes of so many cards. */
export function center(id: string, nodes: number, cards = 8, more: Partial<Center> = {}): Center {
  const names = Array.from({ length: nodes }, (_, i) => `n${i.toString().padStart(5, "0")}`);
  const cardStart = Uint32Array.from({ length: nodes + 1 }, (_, i) => i * cards);
  return {
    id: `center:${id}`,
    centerId: id,
    name: id,
    group: "region:r",
    health: Health.healthy,
    state: 1,
    reason: "",
    since: 0,
    nodes: {
      names,
      health: new Uint8Array(nodes).fill(Health.healthy),
      states: new Uint8Array(nodes).fill(1),
      layouts: new Uint32Array(nodes).fill(1),
      equipment: [[], [{ resource: "gpu", vendor: "NVIDIA", model: "H800", count: cards }]],
      cardStart,
      cardHealth: new Uint8Array(nodes * cards).fill(Health.healthy),
    },
    ...more,
  };
}

/** A network of one region with these centers, each linked to the whole. */
export function network(centers: Center[]): Graph {
  return {
    revision: "1",
    sequence: 1,
    at: 1_000,
    groups: [
      { id: "network", level: "network", name: "network", parent: "", health: Health.healthy, state: 0 },
      { id: "region:r", level: "region", name: "r", parent: "network", health: Health.healthy, state: 0 },
    ],
    centers,
    links: centers.map((c) => ({
      id: `path:${c.centerId}`,
      name: "",
      from: c.id,
      to: "network",
      kind: 7,
      health: Health.healthy,
      latency: 0.01,
      measured: true,
    })),
    hidden: { resources: 0, links: 0 },
  };
}

/** So many centers of so many nodes, spread over a map. */
export function many(centers: number, nodes: number): Graph {
  return network(
    Array.from({ length: centers }, (_, i) =>
      center(`c${i.toString().padStart(4, "0")}`, nodes, 8, {
        since: i,
        longitude: 100 + ((i * 37) % 23),
        latitude: 22 + ((i * 53) % 19),
      }),
    ),
  );
}
