/** Instants and countdowns that keep themselves current, by the store's clock. */
import { signal } from "@preact/signals";
import { clockOffsetS } from "../frame/live";
import { duration, fullTime, relative } from "./format";

const machineNow = signal(Date.now() / 1000);
setInterval(() => {
  if (!document.hidden) machineNow.value = Date.now() / 1000;
}, 1_000);
document.addEventListener("visibilitychange", () => {
  machineNow.value = Date.now() / 1000;
});

/** The store's time, anew every second. */
export function nowAt(): number {
  return machineNow.value + clockOffsetS.value;
}

/** "3 min ago", with the full time as its title. */
export function Time({ at, none = "–" }: { readonly at: number | null | undefined; readonly none?: string }) {
  if (at === null || at === undefined) return <span class="muted">{none}</span>;
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={fullTime(at)}>
      {relative(at, nowAt())}
    </time>
  );
}

/** Counts down to an instant: "42 s"; `over` is shown once it has passed. */
export function Countdown({ to, over = "now" }: { readonly to: number; readonly over?: string }) {
  const left = to - nowAt();
  return (
    <time dateTime={new Date(to * 1000).toISOString()} title={fullTime(to)} class="num">
      {left <= 0 ? over : left < 60 ? `${Math.ceil(left)} s` : duration(left)}
    </time>
  );
}
