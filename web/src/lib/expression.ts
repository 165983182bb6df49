// Where something is wrong in an expression, shown below the line it is on.

export interface Mark {
  line: number;
  column: number;
  message: string;
  /** The line, and a pointer to the column below it. */
  text: string;
  pointer: string;
}

// Wide characters take two columns in a fixed-width font.
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/;

/** Problems with the text they are about. Columns count characters from 1; a problem without a line is of the whole. */
export function marksOf(
  expression: string,
  problems: readonly { line: number; column: number; message: string }[],
): Mark[] {
  const lines = expression.split("\n");
  return problems.map(({ line, column, message }) => {
    const text = lines[line - 1] ?? "";
    const before = [...text].slice(0, Math.max(0, column - 1));
    const indent = before.map((c) => (c === "\t" ? "\t" : WIDE.test(c) ? "  " : " ")).join("");
    return { line, column, message, text, pointer: text === "" ? "" : `${indent}^` };
  });
}

/** What a caret at position stands after: the beginning of a name, for completion. */
export function wordBefore(text: string, position: number): string {
  return /[A-Za-z_][A-Za-z0-9_.]*$/.exec(text.slice(0, position))?.[0] ?? "";
}
