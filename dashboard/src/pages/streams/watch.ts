/** What the page knows of streams: the newest of events and answers, and how lag and rate have been since it was opened. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api } from "../../api/client";
import type { Stream } from "../../api/types";
import { streams } from "../../frame/live";
import { type Resource, useResource } from "../../frame/resource";
import { nowAt } from "../../ui/Time";
import { type History, withLook } from "./history";

export const history = signal<History>(new Map());

/** Events tell of changes; a line also needs to know that nothing has changed. */
const LOOK_MS = 5_000;

function look(found: readonly Stream[]): void {
  if (found.length > 0) history.value = withLook(history.value, found, nowAt());
}

/** Writes lag and rate down while somebody is signed in, whatever page is open; returns what ends it. */
export function startWatching(): () => void {
  const end = streams.subscribe((found) => look(found ?? []));
  const timer = setInterval(() => {
    if (!document.hidden) look(streams.peek() ?? []);
  }, LOOK_MS);
  return () => {
    end();
    clearInterval(timer);
    history.value = new Map();
  };
}

/** Every stream: as the last event had it, or as it is asked for while no events come. */
export function useStreams(): Resource<readonly Stream[]> {
  const told = streams.value;
  const asked = useResource("streams", async (signal) => (await api.get("/streams", { signal })).items, {
    isLive: told === null,
  });
  useEffect(() => {
    if (streams.peek() === null && asked.data !== null) look(asked.data);
  }, [asked.data]);
  return told === null ? asked : { ...asked, data: told, problem: null };
}
