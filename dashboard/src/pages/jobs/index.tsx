/** Jobs: the list with its filters, or one job. */
import { JobList } from "./list";
import { JobView } from "./job";

export function JobsPage({ rest }: { readonly rest: readonly string[] }) {
  const id = rest[0];
  return id === undefined ? <JobList /> : <JobView key={id} id={id} />;
}
