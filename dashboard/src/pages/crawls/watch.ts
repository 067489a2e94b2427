/** What the page knows of crawls: the newest of events and answers. */
import { api } from "../../api/client";
import type { Crawl, CrawlDetail } from "../../api/types";
import { crawls } from "../../frame/live";
import { type Resource, useResource } from "../../frame/resource";

/** Every crawl: as the last event had it, or as it is asked for while no events come. */
export function useCrawls(): Resource<readonly Crawl[]> {
  const told = crawls.value;
  const asked = useResource("crawls", async (signal) => (await api.get("/crawls", { signal })).items, {
    isLive: told === null,
  });
  return told === null ? asked : { ...asked, data: told, problem: null };
}

/** One crawl with its domains, asked for anew when there is news. */
export function useCrawl(name: string): Resource<CrawlDetail> {
  return useResource(`crawl ${name}`, (signal) => api.get("/crawls/{name}", { path: { name }, signal }));
}
