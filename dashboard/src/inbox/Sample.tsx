/** A few of the letters that a replay would send, as they would run. */
import { format } from "../ui";
import { Changes } from "./Changes";
import { changesBetween } from "./diff";
import { type Exact, exactText } from "./exact";
import { messageOf, partsOf } from "./message";
import { elementsIn, ringOf } from "./ring";
import { pageOf } from "./page";
import type { preview, Sampled } from "./replaying";

/** What people care about: of a message, what was sent; of a ring's letter, the elements. */
function shownOf(job: Sampled["job"], values: Exact): Exact {
  if (ringOf(job)) return elementsIn(values);
  return messageOf(job) === null ? values : partsOf(values);
}

export function Sample({ of, isEdited }: { readonly of: Awaited<ReturnType<typeof preview>>; readonly isEdited: boolean }) {
  return (
    <section class="sample" aria-label="A sample">
      <h3>How {of.sample.length === of.total ? "they" : `the newest ${of.sample.length}`} would run</h3>
      <ul>
        {of.sample.map(({ job, before, after, misfit }) => (
          <li key={job.id}>
            <span class="row">
              <span class="tag">{pageOf(job)?.url ?? job.task}</span>
              {job.tenant && <span class="tag">{job.tenant}</span>}
              <span class="mono muted" title={job.id}>
                {format.shortId(job.id)}
              </span>
            </span>
            {misfit && (
              <small class="error-text" role="alert">
                Would not fit the task: {misfit}
              </small>
            )}
            {isEdited ? (
              <Changes of={changesBetween(shownOf(job, before), shownOf(job, after))} />
            ) : (
              <code class="sample-arguments">{exactText(shownOf(job, after))}</code>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
