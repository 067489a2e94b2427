/** Short names for what goes over the wire; all of them are made from the server's OpenAPI. */
import type { components } from "./schema.gen";

type Schemas = components["schemas"];

export type Alert = Schemas["AlertAnswer"];
export type Attempt = Schemas["AttemptAnswer"];
export type AuditEntry = Schemas["AuditEntry"];
export type Breaker = Schemas["BreakerAnswer"];
export type Changed = Schemas["ChangedAnswer"];
export type Crawl = Schemas["CrawlAnswer"];
export type CrawlDetail = Schemas["CrawlDetail"];
export type CrawlProcess = Schemas["CrawlProcessAnswer"];
export type Domain = Schemas["DomainAnswer"];
export type Consumer = Schemas["ConsumerAnswer"];
export type FieldProblem = Schemas["FieldProblem"];
export type Frame = Schemas["FrameAnswer"];
export type Group = Schemas["GroupAnswer"];
export type Job = Schemas["JobAnswer"];
export type JobPage = Schemas["JobPage"];
export type JobSummary = Schemas["JobSummary"];
export type LetterFilter = Schemas["ReplayFilter"];
export type Minute = Schemas["MinuteAnswer"];
export type MessageOrigin = Schemas["MessageOrigin"];
export type Overview = Schemas["Overview"];
export type PageOrigin = Schemas["PageOrigin"];
export type Partition = Schemas["PartitionAnswer"];
export type Preview = Schemas["PreviewAnswer"];
export type Queue = Schemas["QueueAnswer"];
export type Replay = Schemas["ReplayAnswer"];
export type ReplayRequest = Schemas["ReplayRequest"];
export type Ring = Schemas["RingAnswer"];
export type RingOrigin = Schemas["RingOrigin"];
export type Schedule = Schemas["ScheduleAnswer"];
export type Session = Schemas["SessionAnswer"];
export type Stream = Schemas["StreamAnswer"];
export type Task = Schemas["TaskAnswer"];
export type Worker = Schemas["WorkerAnswer"];

export type JobState = JobSummary["state"];
export type FailureType = Group["failure_type"];
export type Severity = Group["severity"];

export const JOB_STATES: readonly JobState[] = [
  "queued",
  "running",
  "retrying",
  "waiting",
  "completed",
  "failed",
  "dead_letter",
  "cancelled",
];

export const FAILURE_TYPES: readonly FailureType[] = [
  "transient",
  "rate_limited",
  "network",
  "system",
  "permanent",
  "validation",
  "authentication",
  "structural",
];
