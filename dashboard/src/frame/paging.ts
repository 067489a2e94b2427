/** Keyset pages: a search through text may answer with few rows, or none, and a cursor to go on from. */

export interface Rows<T> {
  readonly items: readonly T[];
  /** Where the next page begins; "" at the end. */
  readonly cursor: string;
}

/** Follows short pages until there are `want` rows, nothing more to find, or `rounds` have been asked for. */
export async function follow<T>(
  load: (cursor: string, limit: number) => Promise<Rows<T>>,
  cursor: string,
  want: number,
  rounds = 12,
): Promise<Rows<T>> {
  const items: T[] = [];
  let at = cursor;
  for (let round = 0; round < rounds; round += 1) {
    const page = await load(at, want - items.length);
    items.push(...page.items);
    const isStuck = page.cursor === at;
    at = page.cursor;
    if (at === "" || isStuck || items.length >= want) break;
  }
  return { items, cursor: at };
}
