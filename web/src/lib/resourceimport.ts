// Imports resources in batches, each whole or not at all, as `yunhe resource
// import` does: a batch with a mistake is not written, the others are, and
// every mistake is told. The order of resources does not matter: what waits for
// its parent is written once that is there.
import { ApplyOutcome, type ApplyResourcesResponse } from "../gen/yunhe/registry/v1/resource_pb";
import { type Item, lineOf, type ResourceInit } from "./resourcefile";

/** A mistake in the platform's words. */
export interface Refusal {
  line: number;
  resourceId: string;
  field: string;
  problem: string;
}

export interface Progress {
  total: number;
  created: number;
  updated: number;
  unchanged: number;
  /** Not written, because they or others of their batch are wrong. */
  refused: number;
  refusals: Refusal[];
}

export type Apply = (resources: ResourceInit[], dryRun: boolean) => Promise<ApplyResourcesResponse>;

const BATCH = 500;

/** Imports items, or with dryRun says what would happen. Items with problems count as refused. */
export async function importItems(
  items: readonly Item[],
  apply: Apply,
  dryRun: boolean,
  tell: (p: Progress) => void,
  signal: AbortSignal,
): Promise<Progress> {
  const p: Progress = { total: items.length, created: 0, updated: 0, unchanged: 0, refused: 0, refusals: [] };
  // IDs of the file that are right, in a dry run: it writes no parents.
  const seen = new Set<string>();

  const refuse = (item: Item, field: string, problem: string) =>
    p.refusals.push({ line: lineOf(item, field), resourceId: item.resource.resourceId, field, problem });

  // What each that is held waits for.
  const needs = new Map<Item, string>();

  // Answers those whose parents are missing.
  const write = async (batch: readonly Item[]): Promise<Item[]> => {
    signal.throwIfAborted();
    const good = batch.filter((i) => i.problems.length === 0);
    let wrong = batch.length - good.length;
    if (good.length === 0) {
      p.refused += batch.length;
      return [];
    }
    const { results } = await apply(
      good.map((i) => ({ ...i.resource, version: 0n })),
      dryRun || wrong > 0,
    );
    const missing: Item[] = [];
    results.forEach((r, k) => {
      const item = good[k];
      if (!item) return;
      if (r.parentMissing) {
        const platform = r.violations[0]?.field === "platform_id";
        needs.set(item, (platform ? item.resource.platformId : item.resource.parentId) ?? "");
        missing.push(item);
      } else if (r.outcome === ApplyOutcome.REFUSED) {
        wrong++;
        for (const v of r.violations) refuse(item, v.field, v.problem);
      }
    });
    if (wrong > 0) p.refused += batch.length;
    else if (missing.length > 0) {
      const rest = good.filter((i) => !missing.includes(i));
      if (rest.length > 0) await write(rest);
    } else
      results.forEach((r, k) => {
        if (dryRun) seen.add(good[k]?.resource.resourceId ?? "");
        if (r.outcome === ApplyOutcome.CREATED) p.created++;
        else if (r.outcome === ApplyOutcome.UPDATED) p.updated++;
        else p.unchanged++;
      });
    tell({ ...p });
    return wrong > 0 ? [] : missing;
  };

  let held = await each(items, write);
  while (held.length > 0) {
    const before = held.length;
    if (dryRun) {
      const ready = held.filter((i) => seen.has(needs.get(i) ?? ""));
      held = held.filter((i) => !ready.includes(i));
      for (const i of ready) seen.add(i.resource.resourceId);
      p.created += ready.length;
    } else held = await each(held, write);
    if (held.length === before) break;
  }
  // Their parents are nowhere: the platform says so of each.
  await each(held, async (batch) => {
    signal.throwIfAborted();
    const { results } = await apply(
      batch.map((i) => ({ ...i.resource, version: 0n })),
      true,
    );
    results.forEach((r, k) => {
      const item = batch[k];
      if (item) for (const v of r.violations) refuse(item, v.field, v.problem);
    });
    p.refused += batch.length;
    return [];
  });
  p.refusals.sort((a, b) => a.line - b.line);
  tell({ ...p });
  return p;
}

async function each(items: readonly Item[], write: (batch: readonly Item[]) => Promise<Item[]>): Promise<Item[]> {
  const held: Item[] = [];
  for (let i = 0; i < items.length; i += BATCH) held.push(...(await write(items.slice(i, i + BATCH))));
  return held;
}
