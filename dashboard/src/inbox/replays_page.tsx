/** Every replay, newest first. */
import { href } from "../frame/router";
import { Empty, Icon, Loaded, PageHead } from "../ui";
import { ReplayCard } from "./ReplayCard";
import { useReplays } from "./replaying";
import { isUnderWay, several } from "./words";

export function ReplaysPage() {
  const found = useReplays();
  const running = found.data?.filter(isUnderWay).length ?? 0;
  return (
    <>
      <a class="crumb" href={href("inbox")}>
        <Icon name="back" size={13} /> Inbox
      </a>
      <PageHead title="Replays" {...(running > 0 && { note: `${several(running, "is", "are")} under way` })} />
      <Loaded of={found}>
        {(replays) =>
          replays.length === 0 ? (
            <Empty title="Nothing was replayed yet" icon="retry">
              A replay sends all letters of a cause, or of a filter, back to the queue: a few first, and the rest when
              these completed. Open a cause in the <a href={href("inbox")}>inbox</a> to begin one.
            </Empty>
          ) : (
            <div class="stack">
              {replays.map((replay) => (
                <ReplayCard key={replay.id} replay={replay} onChange={found.reload} />
              ))}
            </div>
          )
        }
      </Loaded>
    </>
  );
}
