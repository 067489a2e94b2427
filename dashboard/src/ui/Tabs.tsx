/** Tabs with the arrow keys, as ARIA has them. */
import type { ComponentChildren } from "preact";
import { useId, useRef } from "preact/hooks";

export interface Tab {
  readonly id: string;
  readonly title: ComponentChildren;
  readonly body: () => ComponentChildren;
}

export function Tabs(props: {
  readonly label: string;
  readonly tabs: readonly Tab[];
  readonly chosen: string;
  readonly onChoose: (id: string) => void;
}) {
  const base = useId();
  const list = useRef<HTMLDivElement>(null);
  const at = Math.max(
    0,
    props.tabs.findIndex((tab) => tab.id === props.chosen),
  );
  const chosen = props.tabs[at];
  if (chosen === undefined) return null;
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    const next = step && props.tabs[(at + step + props.tabs.length) % props.tabs.length];
    if (!next) return;
    event.preventDefault();
    props.onChoose(next.id);
    list.current?.querySelector<HTMLElement>(`[data-tab="${CSS.escape(next.id)}"]`)?.focus();
  };
  return (
    <div class="tabs">
      <div role="tablist" aria-label={props.label} ref={list} onKeyDown={onKeyDown}>
        {props.tabs.map((tab) => (
          <button
            key={tab.id}
            type="button"
            role="tab"
            id={`${base}-${tab.id}`}
            data-tab={tab.id}
            aria-selected={tab === chosen}
            aria-controls={`${base}-panel`}
            tabIndex={tab === chosen ? 0 : -1}
            onClick={() => props.onChoose(tab.id)}
          >
            {tab.title}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${base}-panel`} aria-labelledby={`${base}-${chosen.id}`}>
        {chosen.body()}
      </div>
    </div>
  );
}
