/** Data of the server in a component: loaded, kept while it is loaded anew, and refreshed when there is news. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type ApiProblem, isAborted, problemOf } from "../api/client";
import { pulse } from "./live";

export interface Resource<T> {
  /** What was loaded last; null until then. It stays while a refresh fails. */
  readonly data: T | null;
  readonly problem: ApiProblem | null;
  readonly isLoading: boolean;
  /** The data is that of the key before: a list under another filter. */
  readonly isOld?: boolean;
  readonly reload: () => Promise<void>;
}

interface Held<T> {
  readonly key: string;
  /** What `data` was loaded for: another key than `key` while that of a filter before is still shown. */
  readonly dataKey: string;
  readonly data: T | null;
  readonly problem: ApiProblem | null;
  readonly isLoading: boolean;
}

/** Refreshes closer together than this are put together. */
const REST_MS = 2_000;

/**
 * `key` names what is loaded: another key is another thing, and starts empty, unless `isKept`, which shows the old until
 * the new is there (lists under a filter). `isLive: false` loads once.
 */
export function useResource<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  options: { readonly isLive?: boolean; readonly isKept?: boolean } = {},
): Resource<T> {
  const { isLive = true, isKept = false } = options;
  const [held, setHeld] = useState<Held<T>>({ key, dataKey: key, data: null, problem: null, isLoading: true });
  const loading = useRef(load);
  loading.current = load;
  const running = useRef<AbortController | null>(null);

  const reload = useCallback(async () => {
    running.current?.abort();
    const own = new AbortController();
    running.current = own;
    setHeld((old) => {
      if (old.key === key) return { ...old, isLoading: true };
      return { key, dataKey: old.dataKey, data: isKept ? old.data : null, problem: null, isLoading: true };
    });
    try {
      const data = await loading.current(own.signal);
      if (!own.signal.aborted) setHeld({ key, dataKey: key, data, problem: null, isLoading: false });
    } catch (error) {
      if (own.signal.aborted || isAborted(error)) return;
      const problem = problemOf(error);
      setHeld((old) => ({ key, dataKey: key, data: old.dataKey === key ? old.data : null, problem, isLoading: false }));
    } finally {
      if (running.current === own) running.current = null;
    }
  }, [key, isKept]);

  useEffect(() => {
    void reload();
    return () => running.current?.abort();
  }, [reload]);

  useEffect(() => {
    if (!isLive) return;
    let last = performance.now();
    let waiting: ReturnType<typeof setTimeout> | undefined;
    const refresh = () => {
      waiting = undefined;
      // A slow answer is waited for, not asked for again.
      if (running.current !== null) waiting = setTimeout(refresh, REST_MS);
      else {
        last = performance.now();
        void reload();
      }
    };
    const seen = pulse.peek();
    const end = pulse.subscribe((value) => {
      if (value === seen || waiting !== undefined) return;
      waiting = setTimeout(refresh, Math.max(0, last + REST_MS - performance.now()));
    });
    return () => {
      end();
      clearTimeout(waiting);
    };
  }, [reload, isLive]);

  // In the render that changed the key the effect has not run yet: what is held belongs to the old one.
  const now = held.key === key ? held : { data: isKept ? held.data : null, problem: null, isLoading: true, dataKey: held.dataKey };
  return { data: now.data, problem: now.problem, isLoading: now.isLoading, isOld: now.data !== null && now.dataKey !== key, reload };
}
