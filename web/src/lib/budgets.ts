// Budgets: their words, and their amounts as people type them.
import { type Budget, Budget_Action, Budget_Period } from "../gen/yunhe/budgets/v1/budgets_pb";
import { fenToInput, formatFen, parseYuan } from "./format";

export const PERIODS = [
  { value: Budget_Period.DAY, word: "day" },
  { value: Budget_Period.WEEK, word: "week" },
  { value: Budget_Period.MONTH, word: "month" },
  { value: Budget_Period.YEAR, word: "year" },
  { value: Budget_Period.ONCE, word: "once" },
] as const;

export const ACTIONS = [
  { value: Budget_Action.WARN, word: "warn" },
  { value: Budget_Action.HOLD, word: "hold" },
  { value: Budget_Action.STOP, word: "stop" },
] as const;

const MICROS_PER_FEN = 10_000n;

/** "12.34" yuan as micro-yuan; undefined if it is no amount above nothing. */
export function microsOf(yuan: string): bigint | undefined {
  const fen = parseYuan(yuan);
  return fen === undefined || fen <= 0n ? undefined : fen * MICROS_PER_FEN;
}

/** Micro-yuan as yuan to be typed, with as many decimals as fen have. */
export function yuanOf(micros: bigint): string {
  return fenToInput(micros / MICROS_PER_FEN);
}

/** Micro-yuan to people, rounded down to fen. */
export function moneyOf(micros: bigint): string {
  return formatFen(micros / MICROS_PER_FEN);
}

/** What is spent, percent of the amount. */
export function budgetShare(b: Pick<Budget, "spentMicros" | "amountMicros">): number {
  return b.amountMicros > 0n ? (Number(b.spentMicros) / Number(b.amountMicros)) * 100 : 0;
}
