/** Boxes that pages are made of. */
import type { ComponentChildren } from "preact";

/** A titled box; `aside` stands at the right of the title. */
export function Panel(props: {
  readonly title: ComponentChildren;
  readonly aside?: ComponentChildren;
  readonly children: ComponentChildren;
  readonly class?: string;
}) {
  return (
    <section class={`panel ${props.class ?? ""}`}>
      <header>
        <h2>{props.title}</h2>
        {props.aside}
      </header>
      <div class="panel-body">{props.children}</div>
    </section>
  );
}

/** One number with its name; a link where `href` is given. */
export function Stat(props: {
  readonly name: string;
  readonly value: ComponentChildren;
  readonly note?: ComponentChildren;
  readonly tone?: string;
  readonly href?: string;
}) {
  const inside = (
    <>
      <span class="stat-name">{props.name}</span>
      <span class="stat-value num">{props.value}</span>
      {props.note !== undefined && <span class="stat-note muted">{props.note}</span>}
    </>
  );
  const style = `stat ${props.tone ? `tone-${props.tone}` : ""}`;
  return props.href ? (
    <a class={style} href={props.href}>
      {inside}
    </a>
  ) : (
    <div class={style}>{inside}</div>
  );
}

/** Names and values in two columns; pairs whose value is null, undefined or "" are left out. */
export function Facts({ of }: { readonly of: readonly (readonly [name: string, value: ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {of.map(([name, value]) =>
        value === null || value === undefined || value === "" ? null : (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ),
      )}
    </dl>
  );
}

/** The head of a page: its title, what is filtered by, and actions. */
export function PageHead(props: {
  readonly title: ComponentChildren;
  readonly note?: ComponentChildren;
  readonly children?: ComponentChildren;
}) {
  return (
    <div class="page-head">
      <div class="page-title">
        <h1>{props.title}</h1>
        {props.note !== undefined && <span class="muted">{props.note}</span>}
      </div>
      {props.children && <div class="page-actions">{props.children}</div>}
    </div>
  );
}
