/** An edit, as it is shown before it is sent. */
import type { changesBetween } from "./diff";
import { exactText } from "./exact";

/** What changed, key by key: before and after. */
export function Changes({ of }: { readonly of: ReturnType<typeof changesBetween> }) {
  if (of.length === 0) return <p class="muted">Nothing changes.</p>;
  return (
    <dl class="changes">
      {of.map((one) => (
        <div key={one.path}>
          <dt class="mono">{one.path}</dt>
          <dd>
            {one.before === undefined ? (
              <span class="muted">not there</span>
            ) : (
              <del class="mono">{exactText(one.before)}</del>
            )}
            <span aria-label="becomes"> → </span>
            {one.after === undefined ? (
              <span class="muted">left out</span>
            ) : (
              <ins class="mono">{exactText(one.after)}</ins>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}
