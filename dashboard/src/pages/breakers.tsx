/** Breakers: a card each, those that stop work first. */
import { api } from "../api/client";
import type { Breaker } from "../api/types";
import { useResource } from "../frame/resource";
import { asked, href, setQuery } from "../frame/router";
import { canOperate } from "../frame/session";
import { Badge, Button, Countdown, Empty, Facts, Loaded, PageHead, Search, Skeleton, confirmed, done, format, toneOf } from "../ui";

const ORDER: readonly Breaker["state"][] = ["open", "forced_open", "half_open", "disabled", "closed"];

/** Those that need a look come first; names decide among equals. */
export function byUrgency(breakers: readonly Breaker[]): readonly Breaker[] {
  return [...breakers].sort(
    (one, two) => ORDER.indexOf(one.state) - ORDER.indexOf(two.state) || one.key.localeCompare(two.key),
  );
}

const MEANS: Readonly<Record<Breaker["state"], string>> = {
  closed: "Work goes through.",
  open: "Work waits in the queue until the recovery time is over.",
  half_open: "A few trials go through; their outcome decides.",
  forced_open: "Somebody holds it open: work waits until it is reset.",
  disabled: "It counts nothing and stops nothing until it is reset.",
};

const CHANGES = {
  reset: {
    action: "Reset",
    text: "It closes, forgets its failures, and work goes through at once.",
    isDanger: false,
  },
  "force-open": {
    action: "Force open",
    text: "No work of its tasks starts until somebody resets it. Jobs wait in the queue and lose no attempts.",
    isDanger: true,
  },
  disable: {
    action: "Disable",
    text: "It lets everything through, however much fails, until somebody resets it.",
    isDanger: true,
  },
} as const;

async function change(breaker: Breaker, how: keyof typeof CHANGES, reload: () => Promise<void>): Promise<void> {
  const { action, text, isDanger } = CHANGES[how];
  if (!(await confirmed({ title: `${action} the breaker ${breaker.key}?`, text, action, isDanger }))) return;
  const call = { path: { key: breaker.key } };
  const after =
    how === "reset"
      ? await api.post("/breakers/{key}/reset", call)
      : how === "force-open"
        ? await api.post("/breakers/{key}/force-open", call)
        : await api.post("/breakers/{key}/disable", call);
  done(`Breaker ${breaker.key} is ${format.words(after.state)}`);
  await reload();
}

function recovery({ recovery_timeout_s: wait, half_open_max_calls: trials }: Breaker): string {
  if (wait === null) return "";
  return `${format.duration(wait)}${trials === null ? "" : `, then ${format.plural(trials, "trial")}`}`;
}

function Card({ breaker, reload }: { readonly breaker: Breaker; readonly reload: () => Promise<void> }) {
  const isHeld = breaker.state === "forced_open" || breaker.state === "disabled";
  return (
    <article class={`breaker tone-${toneOf(breaker.state)}`} aria-label={`Breaker ${breaker.key}`}>
      <header>
        <h2 title={breaker.key}>{breaker.key}</h2>
        <Badge of={breaker.state} />
      </header>
      <p class="muted">{MEANS[breaker.state]}</p>
      {breaker.state === "open" && breaker.until_at !== null && (
        <p class="countdown">
          Trials in{" "}
          <strong>
            <Countdown to={breaker.until_at} over="a moment" />
          </strong>
        </p>
      )}
      {breaker.cause && (
        <p class="cause" title={breaker.cause}>
          <span>{breaker.cause}</span>
        </p>
      )}
      <Facts
        of={[
          ["Opens after", breaker.window],
          ["Recovery", recovery(breaker)],
          ["Failures now", format.count(breaker.failures)],
          ["Trips", format.count(breaker.trips)],
          [
            "Tasks",
            breaker.tasks.length > 0 && (
              <span class="tags">
                {breaker.tasks.map((task) => (
                  <a key={task} class="tag" href={href("jobs", { task })}>
                    {task}
                  </a>
                ))}
              </span>
            ),
          ],
        ]}
      />
      {canOperate.value && (
        <footer>
          {(isHeld || breaker.state !== "closed" || breaker.failures > 0) && (
            <Button isSmall icon="retry" onClick={() => change(breaker, "reset", reload)}>
              Reset
            </Button>
          )}
          {breaker.state !== "forced_open" && (
            <Button isSmall icon="stop" onClick={() => change(breaker, "force-open", reload)}>
              Force open
            </Button>
          )}
          {breaker.state !== "disabled" && (
            <Button isSmall kind="quiet" onClick={() => change(breaker, "disable", reload)}>
              Disable
            </Button>
          )}
        </footer>
      )}
    </article>
  );
}

/** Whether a search means this breaker. */
export function isMeant(breaker: Pick<Breaker, "key">, text: string): boolean {
  return breaker.key.toLowerCase().includes(text.toLowerCase());
}

export function BreakersPage() {
  const breakers = useResource("breakers", (signal) => api.get("/breakers", { signal }));
  const text = asked("q");
  return (
    <>
      <PageHead title="Breakers" note="Shared by all workers" />
      {(text !== "" || (breakers.data?.items.length ?? 0) > 3) && (
        <div class="filters" role="search">
          <Search
            label="Find a breaker"
            value={text}
            onSearch={(typed) => setQuery({ q: typed }, text !== "" && typed !== "")}
          />
        </div>
      )}
      <Loaded of={breakers} skeleton={<Skeleton lines={4} isTall />}>
        {(found) =>
          found.items.length === 0 ? (
            <Empty title="No breakers yet" icon="breakers">
              A breaker shows here once one of its tasks has run.
            </Empty>
          ) : !found.items.some((breaker) => isMeant(breaker, text)) ? (
            <Empty title="No breaker matches" icon="search">
              None is named like “{text}”: one that has never failed may not be here. <a href={href("breakers")}>Show all breakers</a>
            </Empty>
          ) : (
            <div class="cards">
              {byUrgency(found.items.filter((breaker) => isMeant(breaker, text))).map((breaker) => (
                <Card key={breaker.key} breaker={breaker} reload={breakers.reload} />
              ))}
            </div>
          )
        }
      </Loaded>
    </>
  );
}
