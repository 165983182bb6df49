// Which cell of its center's grid a node has. A node keeps its cell while the
// page is open, also if it leaves and comes back: playing history back and
// forth moves nothing. At first cells go by name.

export interface Grid {
  columns: number;
  rows: number;
}

/** Cells are this much wider than high. */
export const CELL_ASPECT = 1.35;

/** The grid for so many nodes, with some room, so that a few more do not change it. */
export function gridFor(count: number): Grid {
  if (count <= 1) return { columns: 1, rows: 1 };
  let room = 2;
  while (room < count) room = Math.ceil(room * 1.125);
  // A grid is about 4:3 with its wider cells: fewer columns than rows times that.
  const columns = Math.max(1, Math.ceil(Math.sqrt(room / 1.02)));
  return { columns, rows: Math.ceil(room / columns) };
}

/** The cells of one center. */
export class Slots {
  private readonly cells = new Map<string, number>();
  private used: (string | undefined)[] = [];
  grid: Grid = { columns: 1, rows: 1 };

  /** The cell of each name, in their order. */
  assign(names: readonly string[]): Uint32Array {
    const here = new Set(names);
    const fresh = names.filter((n) => !this.cells.has(n)).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
    if (this.cells.size + fresh.length > this.grid.columns * this.grid.rows) {
      // Only when the grid is full are cells of nodes that are gone given up.
      const kept = [...this.cells].filter(([n]) => here.has(n)).sort((a, b) => a[1] - b[1]);
      const gone = this.cells.size - kept.length;
      if (gone > 0) for (const [n, at] of [...this.cells]) if (!here.has(n)) this.release(n, at);
      if (kept.length + fresh.length > this.grid.columns * this.grid.rows) this.grow(names);
    }
    let next = 0;
    for (const name of fresh) {
      if (this.cells.has(name)) continue;
      while (this.used[next] !== undefined) next++;
      this.used[next] = name;
      this.cells.set(name, next);
    }
    return Uint32Array.from(names, (n) => this.cells.get(n) ?? 0);
  }

  private release(name: string, at: number): void {
    this.cells.delete(name);
    this.used[at] = undefined;
  }

  // A larger grid has other rows: all go by name again.
  private grow(names: readonly string[]): void {
    this.grid = gridFor(names.length);
    this.cells.clear();
    this.used = [...names].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
    this.used.forEach((n, i) => {
      if (n !== undefined) this.cells.set(n, i);
    });
  }
}
