/** Numbers, lengths of time and instants in words for people. */

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** 48211 -> "48,211". */
export function count(value: number): string {
  return COUNT.format(value);
}

/** 48211 -> "48.2K"; for places with little room. */
export function shortCount(value: number): string {
  return Math.abs(value) < 10_000 ? COUNT.format(value) : SHORT.format(value);
}

/** "1 job", "2 jobs". */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** 0.962 -> "96.2 %"; 100 % is all and 0 % is none, never nearly so. */
export function percent(share: number): string {
  if (share <= 0 || share >= 1) return share <= 0 ? "0 %" : "100 %";
  const tenths = Math.min(99.9, Math.max(0.1, Math.round(share * 1000) / 10));
  return `${tenths} %`;
}

const SIZES = ["B", "kB", "MB", "GB", "TB"] as const;

/** 48211000 -> "48.2 MB". */
export function bytes(value: number): string {
  let left = value;
  let at = 0;
  while (left >= 999.95 && at < SIZES.length - 1) {
    left /= 1000;
    at += 1;
  }
  return `${at === 0 ? count(left) : Number(left.toFixed(1))} ${SIZES[at]}`;
}

/** A rate a second with as many digits as it needs. */
export function rate(perSecond: number): string {
  return `${perSecond >= 100 ? count(perSecond) : perSecond.toFixed(perSecond >= 10 || perSecond === 0 ? 0 : 1)}/s`;
}

const UNITS: readonly (readonly [string, number])[] = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
];

/** 0.0823 -> "82 ms", 75 -> "1 min 15 s", 90061 -> "1 d 1 h". */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return "< 1 ms";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  let left = Math.round(seconds);
  const parts: string[] = [];
  for (const [name, size] of UNITS) {
    const many = Math.floor(left / size);
    left -= many * size;
    if (many > 0) parts.push(`${many} ${name}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** Steps of a scale of time, in seconds: those that read well in their unit. */
export const TIME_STEPS: readonly number[] = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200,
  14_400, 43_200, 86_400, 172_800, 604_800, 2_592_000,
];

/** A length at a scale, in one unit: 90 -> "1.5 min". */
export function scaleDuration(seconds: number): string {
  if (seconds < 60) return duration(seconds);
  const [name, size] = UNITS.find(([, unit]) => seconds >= unit) ?? ["s", 1];
  return `${Number((seconds / size).toFixed(1))} ${name}`;
}

/** One unit only: for "3 min ago". */
export function roughly(seconds: number): string {
  const size = Math.abs(seconds);
  for (const [name, unit] of UNITS) {
    if (size >= unit || unit === 1) return `${Math.floor(size / unit)} ${name}`;
  }
  return "0 s";
}

/** An instant beside now: "3 min ago", "in 20 s", "now". */
export function relative(at: number, now: number): string {
  const ago = now - at;
  if (Math.abs(ago) < 1) return "now";
  return ago > 0 ? `${roughly(ago)} ago` : `in ${roughly(-ago)}`;
}

/** An instant in full, in the reader's own zone. */
export function fullTime(at: number): string {
  return new Date(at * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
}

/** Time of day, with milliseconds where asked. */
export function clockTime(at: number, hasMillis = false): string {
  const text = new Date(at * 1000).toLocaleTimeString("en-GB");
  return hasMillis ? `${text}.${String(Math.floor((at % 1) * 1000)).padStart(3, "0")}` : text;
}

/** "dead_letter" -> "dead letter". */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}

/** "dead_letter" -> "Dead letter". */
export function heading(name: string): string {
  const text = words(name);
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The end of an id: where UUIDv7s made in the same instant differ. */
export function shortId(id: string): string {
  return id.length > 12 ? `…${id.slice(-10)}` : id;
}

/** Any JSON value as indented text. */
export function json(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? "null";
}
