// Which labels differ, as people write them: added, removed, changed.
export function changedLabels(was: Record<string, string>, is: Record<string, string>): string {
  const names = [...new Set([...Object.keys(was), ...Object.keys(is)])].sort();
  return names
    .filter((name) => was[name] !== is[name])
    .map((name) => {
      if (was[name] === undefined) return `+${name}=${is[name]}`;
      return is[name] === undefined ? `-${name}` : `${name}=${was[name]} → ${is[name]}`;
    })
    .join(", ");
}
