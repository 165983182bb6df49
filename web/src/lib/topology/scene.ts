// What is drawn, with what can be worked out before a frame: the color of
// every node and card. Colors of a center are worked out when it first comes
// into view.
import type { Layout } from "./layout";
import { type Counts, countNodes, type Graph, type Target } from "./model";
import { type Palette, STEPS, stepOf } from "./palette";
import type { Values } from "./view";

export const Mark = { none: 0, added: 1, changed: 2, removed: 3 } as const;

/** What is different between two times, by index as in the graph. */
export interface Marks {
  centers: Uint8Array;
  nodes: Uint8Array[];
}

/** Colors of a center by column, as numbers of the palette's health or scale. */
export interface Paint {
  own: number;
  nodes: Uint8Array;
  cards: Uint8Array;
  counts: Counts;
  /** How many nodes have each color. */
  shares: number[];
}

/** What the drawing says in words. */
export interface Words {
  nodes: (count: number) => string;
  resources: string;
  network: string;
  latency: (seconds: number) => string;
  value: (value: number) => string;
}

export class Scene {
  private readonly paints: (Paint | undefined)[] = [];
  private readonly linksOf = new Map<string, number[]>();
  private readonly groupIndex: Map<string, number>;
  private readonly centerIndex: Map<string, number>;

  constructor(
    readonly graph: Graph,
    readonly layout: Layout,
    readonly palette: Palette,
    readonly words: Words,
    readonly values?: Values,
    readonly marks?: Marks,
    readonly selected?: Target,
    /** Only what is in this health stands out. */
    readonly only?: number,
  ) {
    this.groupIndex = new Map(graph.groups.map((g, i) => [g.id, i]));
    this.centerIndex = new Map(graph.centers.map((c, i) => [c.id, i]));
    graph.links.forEach((l, i) => {
      for (const end of [l.from, l.to]) {
        const list = this.linksOf.get(end);
        if (list) list.push(i);
        else this.linksOf.set(end, [i]);
      }
    });
  }

  /** Colors cells are drawn in: of the scale if something is measured, of health otherwise. */
  get colors(): readonly string[] {
    return this.values ? this.palette.scale : this.palette.health;
  }

  paint(index: number): Paint {
    const made = this.paints[index];
    if (made) return made;
    const center = this.graph.centers[index];
    if (!center) throw new Error(`there is no center ${index}`);
    const { nodes } = center;
    const paint: Paint = {
      own: center.health,
      nodes: nodes.health,
      cards: nodes.cardHealth,
      counts: countNodes(nodes),
      shares: [],
    };
    if (this.values) {
      const { low, high } = this.values;
      const of = this.values.centers[index];
      const steps = (list: ArrayLike<number>, count: number) => {
        const found = new Uint8Array(count).fill(STEPS);
        for (let i = 0; i < Math.min(count, list.length); i++) found[i] = stepOf(list[i] as number, low, high);
        return found;
      };
      paint.own = stepOf(of?.value ?? NaN, low, high);
      paint.nodes = steps(of?.nodes ?? [], nodes.names.length);
      paint.cards = of?.cards.length
        ? steps(of.cards, nodes.cardHealth.length)
        : likeNodes(paint.nodes, nodes.cardStart);
    }
    const shares = this.colors.map(() => 0);
    for (const color of paint.nodes) shares[color] = (shares[color] ?? 0) + 1;
    paint.shares = shares;
    this.paints[index] = paint;
    return paint;
  }

  /** Links that end at something, by index. */
  links(id: string): readonly number[] {
    return this.linksOf.get(id) ?? [];
  }

  groupOf(id: string): number | undefined {
    return this.groupIndex.get(id);
  }

  centerOf(id: string): number | undefined {
    return this.centerIndex.get(id);
  }

  /** How much of a color is seen. */
  alphaOf(color: number): number {
    return this.only === undefined || this.values || color === this.only ? 1 : 0.16;
  }
}

function likeNodes(nodes: Uint8Array, cardStart: Uint32Array): Uint8Array {
  const cards = new Uint8Array(cardStart[nodes.length] ?? 0);
  for (let i = 0; i < nodes.length; i++) cards.fill(nodes[i] as number, cardStart[i], cardStart[i + 1]);
  return cards;
}
