const SHOWN = 4;

/** Which labels differ, as people write them: added, removed, changed. Of many, how many more. */
export function changedLabels(was: Record<string, string>, is: Record<string, string>): string {
  const names = [...new Set([...Object.keys(was), ...Object.keys(is)])].sort();
  const changed = names
    .filter((name) => was[name] !== is[name])
    .map((name) => {
      if (was[name] === undefined) return `+${name}=${is[name]}`;
      return is[name] === undefined ? `-${name}` : `${name}=${was[name]} → ${is[name]}`;
    });
  const more = changed.length - SHOWN;
  return changed.slice(0, SHOWN).join(", ") + (more > 0 ? `, +${more}` : "");
}
