// Marks of an axis of bytes.

/** The end of an axis that shows up to max bytes, and the step between its marks: round numbers of a binary unit. */
export function byteScale(max: number): { max: number; step: number } {
  let unit = 1;
  while (max / unit > 1024) unit *= 1024;
  const wanted = max / unit / 4;
  const step = ([1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 200, 256].find((s) => s >= wanted) ?? 256) * unit;
  return { max: Math.ceil(max / step) * step, step };
}
