// Resource specifications as people read them.
import type { Spec } from "../gen/yunhe/registry/v1/registry_pb";
import { formatBytes, formatFen, parseQuantity } from "./format";

const ORDER = ["cpu", "memory", "gpu", "npu", "mlu", "storage"];
const BYTES = new Set(["memory", "storage", "gpu_memory"]);

/** {"cpu":"2","memory":"4Gi"} is "2 CPU · 4 GiB". */
export function quantityText(quantity: Record<string, string>): string {
  return Object.entries(quantity)
    .sort(([a], [b]) => rank(a) - rank(b) || (a < b ? -1 : 1))
    .map(([name, amount]) => {
      const value = parseQuantity(amount);
      if (value === undefined) return `${amount} ${name}`;
      if (BYTES.has(name)) return name === "memory" ? formatBytes(value) : `${formatBytes(value)} ${name}`;
      return `${value} ${name.length <= 3 ? name.toUpperCase() : name}`;
    })
    .join(" · ");
}

function rank(name: string): number {
  const at = ORDER.indexOf(name);
  return at < 0 ? ORDER.length : at;
}

/** The lowest and highest price per hour at the centers that offer it: "¥0.50–¥0.80", or its list price. */
export function priceRange(spec: Spec): string {
  const prices = spec.offers.map((o) => o.price).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  const low = prices[0];
  const high = prices.at(-1);
  if (low === undefined || high === undefined) return formatFen(spec.price);
  return low === high ? formatFen(low) : `${formatFen(low)}–${formatFen(high)}`;
}
