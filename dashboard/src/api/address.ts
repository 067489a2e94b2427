/** Where a path of the API is, relative to where this page was served: it may be mounted under any prefix. */

export type Query = Record<string, string | number | boolean | readonly (string | number)[] | null | undefined>;

/** Fills in `{parameters}` and the query; what is null, undefined or "" is left out. */
export function addressOf(path: string, parameters: Record<string, string | number> = {}, query: Query = {}): string {
  const filled = path.replace(/\{(\w+)(?::\w+)?\}/g, (_, name: string) => {
    const value = parameters[name];
    if (value === undefined || value === "") throw new Error(`${path} needs ${name}`);
    return encodeURIComponent(String(value));
  });
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? (value as readonly (string | number)[]) : [value]) {
      if (each !== null && each !== undefined && each !== "") asked.append(name, String(each));
    }
  }
  const text = asked.toString();
  return `.${filled}${text ? `?${text}` : ""}`;
}
