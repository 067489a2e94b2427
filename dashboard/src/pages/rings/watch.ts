/** What the page knows of rings: the newest of events and answers. */
import { api } from "../../api/client";
import type { Ring } from "../../api/types";
import { rings } from "../../frame/live";
import { type Resource, useResource } from "../../frame/resource";

/** Every ring: as the last event had it, or as it is asked for while no events come. */
export function useRings(): Resource<readonly Ring[]> {
  const told = rings.value;
  const asked = useResource("rings", async (signal) => (await api.get("/rings", { signal })).items, {
    isLive: told === null,
  });
  return told === null ? asked : { ...asked, data: told, problem: null };
}
