/** What is shown instead of data: nothing yet, nothing at all, or what went wrong. */
import type { ComponentChildren } from "preact";
import { type ApiProblem } from "../api/client";
import type { Resource } from "../frame/resource";
import { Button } from "./Button";
import { Icon, type IconName } from "./Icon";

/** Grey lines in the shape of what will come. */
export function Skeleton({ lines = 5, isTall = false }: { readonly lines?: number; readonly isTall?: boolean }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, at) => (
        <i key={at} class={isTall ? "tall" : ""} />
      ))}
    </div>
  );
}

/** Nothing to show, and why that is well or what to do. */
export function Empty(props: { readonly title: string; readonly icon?: IconName; readonly children?: ComponentChildren }) {
  return (
    <div class="empty">
      <span class="empty-icon">
        <Icon name={props.icon ?? "check"} size={22} />
      </span>
      <h3>{props.title}</h3>
      {props.children && <div class="muted">{props.children}</div>}
    </div>
  );
}

function advice(problem: ApiProblem): string {
  if (problem.status === 0) return "Is the server running, and can this machine reach it?";
  if (problem.status === 403) return "Your role does not allow this.";
  if (problem.status === 429) return "Too many requests: wait a moment.";
  if (problem.status === 503) return "Jobs are safe: workers go on as soon as the store is back.";
  return "";
}

/** A problem of the server in words, with a button that asks again. */
export function ErrorBox({ problem, onRetry }: { readonly problem: ApiProblem; readonly onRetry?: () => void }) {
  return (
    <div class="error-box" role="alert">
      <Icon name="warning" />
      <div>
        <strong>
          {problem.title}
          {problem.status > 0 && <span class="muted"> · {problem.status}</span>}
        </strong>
        {problem.detail && problem.detail !== problem.title && <p>{problem.detail}</p>}
        {problem.errors.length > 0 && (
          <ul>
            {problem.errors.map((each) => (
              <li key={`${each.where} ${each.message}`}>
                <code>{each.where}</code> {each.message}
              </li>
            ))}
          </ul>
        )}
        {advice(problem) && <p class="muted">{advice(problem)}</p>}
      </div>
      {onRetry && (
        <Button isSmall icon="retry" onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}

/** Shows a resource: skeleton, error, or the data with an error above it when a refresh failed. */
export function Loaded<T>(props: {
  readonly of: Resource<T>;
  readonly children: (data: T) => ComponentChildren;
  readonly skeleton?: ComponentChildren;
}) {
  const { data, problem, reload } = props.of;
  if (data === null && problem === null) return <>{props.skeleton ?? <Skeleton />}</>;
  return (
    <>
      {problem && <ErrorBox problem={problem} onRetry={() => void reload()} />}
      {data !== null && (
        <div class={`loaded ${props.of.isOld ? "old" : ""}`} aria-busy={props.of.isOld === true}>
          {props.children(data)}
        </div>
      )}
    </>
  );
}
