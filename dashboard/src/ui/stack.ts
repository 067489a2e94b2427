/** Stacking: each series stands on those before it. */

/** Running sums over the series; a null counts as nothing. */
export function stacked(series: readonly (readonly (number | null)[])[]): number[][] {
  const sums: number[][] = [];
  for (const values of series) {
    const below = sums.at(-1);
    sums.push(values.map((value, at) => (value ?? 0) + (below?.[at] ?? 0)));
  }
  return sums;
}
