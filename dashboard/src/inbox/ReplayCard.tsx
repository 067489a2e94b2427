/** One replay: how far it is, what its canaries say, and the buttons that steer it. */
import { api } from "../api/client";
import type { Replay } from "../api/types";
import { href } from "../frame/router";
import { canOperate } from "../frame/session";
import { Badge, Button, confirmed, format, Time } from "../ui";
import { isUnderWay, replayInWords, several } from "./words";

const VERDICTS: Readonly<Record<string, readonly [text: string, tone: "busy" | "good" | "bad"]>> = {
  waiting: ["canaries are running", "busy"],
  passed: ["canaries passed", "good"],
  failed: ["canaries failed", "bad"],
};

const TONES: Readonly<Record<Replay["state"], string>> = {
  running: "busy",
  paused: "warn",
  stopped: "muted",
  done: "good",
};

export function ReplayCard({ replay, onChange }: { readonly replay: Replay; readonly onChange: () => Promise<void> }) {
  const share = replay.total > 0 ? Math.min(1, replay.sent / replay.total) : replay.state === "done" ? 1 : 0;
  const verdict = VERDICTS[replay.verdict];
  const steer = (to: "/replays/{id}/pause" | "/replays/{id}/resume") => async () => {
    await api.post(to, { path: { id: replay.id } });
    await onChange();
  };
  const stop = async () => {
    const isSure = await confirmed({
      title: "Stop this replay?",
      text: `${several(replay.sent, "letter has", "letters have")} gone back to the queue and will run. The others stay in the inbox. A replay that was stopped cannot go on.`,
      action: "Stop the replay",
      isDanger: true,
    });
    if (!isSure) return;
    await api.post("/replays/{id}/stop", { path: { id: replay.id } });
    await onChange();
  };
  const isFailed = replay.state === "stopped" && replay.verdict === "failed";
  return (
    <article class={`replay tone-${isFailed ? "bad" : TONES[replay.state]}`}>
      <header class="row">
        <Badge of={isFailed ? "failed" : replay.state} text={isFailed ? "stopped by itself" : replay.state} />
        {verdict && !isFailed && <Badge of={replay.verdict} text={verdict[0]} tone={verdict[1]} />}
        <span class="replay-what">{whatOf(replay)}</span>
        <span class="muted">
          <Time at={replay.created_at} />
        </span>
      </header>
      <div
        class="meter"
        role="progressbar"
        aria-label="Letters sent back"
        aria-valuemin={0}
        aria-valuemax={replay.total}
        aria-valuenow={replay.sent}
      >
        <i style={{ width: `${share * 100}%` }} />
      </div>
      <div class="row replay-line">
        <strong class="num">
          {format.count(replay.sent)} of {several(replay.total, "letter", "letters")}
        </strong>
        <span class="muted num">
          {[
            replay.canary > 0 && several(replay.canary, "canary", "canaries"),
            replay.rate === null ? "no rate limit" : `at most ${format.rate(replay.rate)}`,
            format.shortId(replay.id),
          ]
            .filter(Boolean)
            .join(" · ")}
        </span>
        {canOperate.value && isUnderWay(replay) && (
          <span class="row replay-actions">
            {replay.state === "running" ? (
              <Button isSmall icon="pause" onClick={steer("/replays/{id}/pause")}>
                Pause
              </Button>
            ) : (
              <Button isSmall icon="play" onClick={steer("/replays/{id}/resume")}>
                Resume
              </Button>
            )}
            <Button isSmall kind="danger" icon="stop" onClick={stop}>
              Stop
            </Button>
          </span>
        )}
      </div>
      <p class={isFailed ? "replay-why" : "muted"} role={isFailed ? "alert" : undefined}>
        {replayInWords(replay)}
      </p>
    </article>
  );
}

function whatOf(replay: Replay) {
  const parts = [replay.task && `task ${replay.task}`, replay.tenant && `tenant ${replay.tenant}`]
    .filter(Boolean)
    .join(", ");
  if (!replay.group) return <span>{parts || "All letters that matched"}</span>;
  return (
    <span>
      Cause{" "}
      <a class="mono" href={href(["inbox", replay.group])}>
        {replay.group}
      </a>
      {parts && `, ${parts}`}
    </span>
  );
}
