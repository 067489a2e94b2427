/** Keyboard: components register keys while they are shown; the newest registration of a key wins. */
import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

/** A key ("j", "/", "Enter") or two in a row ("g i"), and what it does in words for the help. */
export interface Binding {
  readonly keys: string;
  readonly does: string;
  readonly run: (event: KeyboardEvent) => void;
}

type Registration = { current: readonly Binding[] };

const registered = signal<readonly Registration[]>([]);
const SEQUENCE_MS = 1200;
let pending = "";
let pendingSince = 0;

/** Keys that work right now, without those hidden by a newer one. */
export function activeBindings(): readonly Binding[] {
  const seen = new Map<string, Binding>();
  for (const { current } of registered.value) for (const binding of current) seen.set(binding.keys, binding);
  return [...seen.values()];
}

/** Which binding a key press means, and which first key is now waited upon. */
export function match(
  bindings: readonly Binding[],
  key: string,
  waiting: string,
): { binding: Binding | undefined; waiting: string } {
  const whole = waiting ? `${waiting} ${key}` : key;
  const binding = bindings.findLast((each) => each.keys === whole);
  if (binding) return { binding, waiting: "" };
  if (waiting) return match(bindings, key, "");
  return { binding: undefined, waiting: bindings.some((each) => each.keys.startsWith(`${key} `)) ? key : "" };
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

function isOwnKey(target: EventTarget | null, key: string): boolean {
  if (key !== "Enter" && key !== " ") return false;
  return target instanceof HTMLElement && target.closest("a, button, summary, [role=tab]") !== null;
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (isTyping(event.target) || isOwnKey(event.target, event.key) || document.querySelector("dialog[open]")) return;
  const waiting = event.timeStamp - pendingSince < SEQUENCE_MS ? pending : "";
  const bindings = registered.value.flatMap((each) => each.current);
  const found = match(bindings, event.key, waiting);
  pending = found.waiting;
  pendingSince = event.timeStamp;
  if (!found.binding) return;
  event.preventDefault();
  found.binding.run(event);
}

/** Keys that work while the component is shown. */
export function useKeys(bindings: readonly Binding[]): void {
  const own = useRef(bindings);
  own.current = bindings;
  // Before the paint: whoever sees a list may press its keys at once.
  useLayoutEffect(() => {
    registered.value = [...registered.value, own];
    return () => {
      registered.value = registered.value.filter((each) => each !== own);
    };
  }, []);
}

/** Starts listening; called once. */
export function startKeys(): void {
  document.addEventListener("keydown", onKey);
}
