// Sets of policy weights: comparing them and naming the presets.

/** Whether two sets give every policy the same weight; a policy not named weighs 0. */
export function sameWeights(a: Record<string, number>, b: Record<string, number>): boolean {
  const ids = new Set([...Object.keys(a), ...Object.keys(b)]);
  for (const id of ids) if ((a[id] ?? 0) !== (b[id] ?? 0)) return false;
  return true;
}

/** The weights that are not zero. */
export function withoutZeros(weights: Record<string, number>): Record<string, number> {
  return Object.fromEntries(Object.entries(weights).filter(([, w]) => w > 0));
}
