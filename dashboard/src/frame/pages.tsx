/** Every page: its name, key and icon, who sees it, and what shows it. */
import type { ComponentChildren } from "preact";
import { AlertsPage } from "../pages/alerts";
import { AuditPage } from "../pages/audit";
import { BreakersPage } from "../pages/breakers";
import { CrawlsPage } from "../pages/crawls";
import { JobsPage } from "../pages/jobs";
import { OverviewPage } from "../pages/overview";
import { QueuesPage } from "../pages/queues";
import { RingsPage } from "../pages/rings";
import { SchedulesPage } from "../pages/schedules";
import { StreamsPage } from "../pages/streams";
import { WorkersPage } from "../pages/workers";
import { InboxPage } from "../inbox";
import type { IconName } from "../ui/Icon";
import { isAdmin, isTenant } from "./session";

export interface Page {
  /** The first part of the route, and the icon's name. */
  readonly id: IconName;
  readonly title: string;
  /** Pressed after `g`. */
  readonly key: string;
  /** Tenants see their own jobs and letters; the rest is about the whole fleet. */
  readonly isForTenants?: boolean;
  readonly isForAdmins?: boolean;
  /** Other first parts of a route that belong to this page. */
  readonly also?: readonly string[];
  /** `rest` is what stands after the first part of the route. */
  readonly show: (rest: readonly string[], first: string) => ComponentChildren;
}

const PAGES: readonly Page[] = [
  {
    id: "inbox",
    title: "Inbox",
    key: "i",
    isForTenants: true,
    also: ["letter", "replays"],
    show: (rest, first) => <InboxPage rest={rest} first={first} />,
  },
  { id: "overview", title: "Overview", key: "o", show: () => <OverviewPage /> },
  { id: "jobs", title: "Jobs", key: "j", isForTenants: true, show: (rest) => <JobsPage rest={rest} /> },
  { id: "breakers", title: "Breakers", key: "b", show: () => <BreakersPage /> },
  { id: "queues", title: "Queues", key: "q", show: () => <QueuesPage /> },
  { id: "streams", title: "Streams", key: "t", show: (rest) => <StreamsPage rest={rest} /> },
  { id: "rings", title: "Rings", key: "r", show: (rest) => <RingsPage rest={rest} /> },
  { id: "crawls", title: "Crawls", key: "c", show: (rest) => <CrawlsPage rest={rest} /> },
  { id: "workers", title: "Workers", key: "w", show: () => <WorkersPage /> },
  { id: "schedules", title: "Schedules", key: "s", show: () => <SchedulesPage /> },
  { id: "alerts", title: "Alerts", key: "a", show: () => <AlertsPage /> },
  { id: "audit", title: "Audit", key: "l", isForAdmins: true, show: () => <AuditPage /> },
];

/** Whether a route that begins so belongs to a page. */
export function isOf(page: Page, first: string): boolean {
  return page.id === first || page.also?.includes(first) === true;
}

/** The page of a route that is there, but for admins alone; what is about the whole fleet is not there for tenants. */
export function adminPage(first: string): Page | undefined {
  return isTenant.value ? undefined : PAGES.find((page) => page.isForAdmins === true && isOf(page, first));
}

/** The pages that whoever is signed in may see. */
export function visiblePages(): readonly Page[] {
  return PAGES.filter(
    (page) => (!isTenant.value || page.isForTenants === true) && (page.isForAdmins !== true || isAdmin.value),
  );
}
