/** A typed fetch: paths, parameters, bodies and answers are checked against the server's OpenAPI. */
import type { paths } from "./schema.gen";
import type { FieldProblem } from "./types";
import { addressOf, type Query } from "./address";

type Method = "get" | "post" | "delete";

/** The paths that know a method. */
export type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never;
}[keyof paths];

type Operation<P extends keyof paths, M extends Method> = Extract<paths[P][M & keyof paths[P]], { responses: unknown }>;

type JsonOf<R> = R extends { content: { "application/json": infer A } } ? A : undefined;

/** What a path answers when all went well. */
export type AnswerOf<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { responses: infer R }
    ? { [S in keyof R & (200 | 201 | 202 | 204)]: JsonOf<R[S]> }[keyof R & (200 | 201 | 202 | 204)]
    : never;

type PathParameters<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { parameters: { path: infer A } } ? { path: A } : { path?: undefined };
type QueryParameters<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { parameters: { query?: infer A } }
    ? { query?: { [K in keyof A]?: A[K] | undefined } | undefined }
    : { query?: undefined };
type BodyParameter<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { requestBody: { content: { "application/json": infer A } } }
    ? { body: A }
    : Operation<P, M> extends { requestBody?: { content: { "application/json": infer A } } }
      ? { body?: A }
      : { body?: undefined };

/** What a call to a path is given. */
export type CallOf<P extends keyof paths, M extends Method> = PathParameters<P, M> &
  QueryParameters<P, M> &
  BodyParameter<P, M> & { signal?: AbortSignal | undefined };

type Rest<C> = Record<never, never> extends C ? [call?: C] : [call: C];

/** The server said no, or could not be reached (status 0). */
export class ApiProblem extends Error {
  override readonly name = "ApiProblem";

  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly errors: readonly FieldProblem[] = [],
    readonly retryAfterS: number | null = null,
  ) {
    super(detail || title);
  }
}

/** Called with every problem; the session listens for 401. */
export const problemListeners = new Set<(problem: ApiProblem) => void>();

/** Turns whatever was thrown into a problem that can be shown. */
export function problemOf(error: unknown): ApiProblem {
  if (error instanceof ApiProblem) return error;
  return new ApiProblem(0, "Something went wrong on this page", error instanceof Error ? error.message : String(error));
}

/** True when a call was given up by its own caller, which nobody needs to hear about. */
export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

async function refusalOf(response: Response): Promise<ApiProblem> {
  const retryAfter = Number(response.headers.get("retry-after") ?? Number.NaN);
  const told: unknown = await response.json().catch(() => null);
  const problem = (typeof told === "object" && told !== null ? told : {}) as Record<string, unknown>;
  return new ApiProblem(
    response.status,
    typeof problem["title"] === "string" ? problem["title"] : `The server answered ${response.status}`,
    typeof problem["detail"] === "string" ? problem["detail"] : "",
    Array.isArray(problem["errors"]) ? (problem["errors"] as FieldProblem[]) : [],
    Number.isFinite(retryAfter) ? retryAfter : null,
  );
}

async function send<T>(
  method: Method,
  path: string,
  call: UntypedCall,
  read: (response: Response) => Promise<T>,
): Promise<T | undefined> {
  const headers: Record<string, string> = { accept: "application/json" };
  const body = call.text ?? (call.body === undefined ? null : JSON.stringify(call.body));
  if (body !== null) headers["content-type"] = "application/json";
  try {
    const response = await fetch(addressOf(path, call.path, call.query), {
      method: method.toUpperCase(),
      headers,
      credentials: "same-origin",
      cache: "no-store",
      body,
      signal: call.signal ?? null,
    });
    if (!response.ok) throw await refusalOf(response);
    return response.status === 204 ? undefined : await read(response);
  } catch (error) {
    if (isAborted(error)) throw error;
    const problem =
      error instanceof ApiProblem ? error : new ApiProblem(0, "The server cannot be reached", "");
    for (const listener of problemListeners) listener(problem);
    throw problem;
  }
}

interface UntypedCall {
  path?: Record<string, string | number> | undefined;
  query?: Query | undefined;
  body?: unknown;
  /** The body as JSON text already. */
  text?: string | undefined;
  signal?: AbortSignal | undefined;
}

function caller<M extends Method>(method: M) {
  return <P extends PathOf<M>>(path: P, ...rest: Rest<CallOf<P, M>>): Promise<AnswerOf<P, M>> =>
    send(method, path, (rest[0] ?? {}) as UntypedCall, (response) => response.json()) as Promise<AnswerOf<P, M>>;
}

type TextCall = Omit<UntypedCall, "body">;

/** The same with texts instead of values, where no number may change on the way: JavaScript has none of 19 digits. */
export const apiText = {
  get: (path: PathOf<"get">, call: TextCall = {}) => textOf("get", path, call),
  post: (path: PathOf<"post">, call: TextCall = {}) => textOf("post", path, call),
};

async function textOf(method: Method, path: string, call: TextCall): Promise<string> {
  return (await send(method, path, call, (response) => response.text())) ?? "";
}

/** `api.get("/jobs/{id}", { path: { id } })`; rejects with ApiProblem. */
export const api = { get: caller("get"), post: caller("post"), delete: caller("delete") };
