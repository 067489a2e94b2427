"""What became of a crawl, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from holdfast.ops.redact import without_secrets
from holdfast.ops.text import length, many, short
from holdfast.runtime.crawl_origins import queue_of
from holdfast.runtime.crawls import CrawlView
from holdfast.types import FailureType, Group

if TYPE_CHECKING:
    from holdfast.crawl import CrawlSummary

_MOST_GROUPS: Final = 5
_INDENT: Final = 14


class Ended(Struct, frozen=True, kw_only=True):
    """A run that has ended, and what stands around it."""

    summary: CrawlSummary
    before: CrawlView | None
    """The crawl before this run; None where there was none."""
    groups: Sequence[Group]
    """Its dead letters by cause, the largest group first."""
    out: str
    """Where its items were written; empty where nowhere."""
    where: str
    """The options that lead another command to its store, with a space in front; empty where it needs none."""
    target: str = ""
    """What `--app` has named."""

    @property
    def was_over(self) -> bool:
        """Whether there was nothing to do: the crawl was finished before."""
        if self.before is None or not self.summary.is_finished:
            return False
        then, now = self.before, self.summary
        ended = (then.done, then.dead, then.skipped)
        return then.pending == 0 and any(ended) and ended == (now.done, now.dead, now.skipped)


def as_fields(ended: Ended) -> dict[str, Any]:
    """The summary as JSON."""
    fields: dict[str, Any] = msgspec.to_builtins(ended.summary)
    return fields | {
        "was_finished": ended.was_over,
        "output": ended.out,
        "given_up": [
            {
                "group": one.fingerprint,
                "count": one.count,
                "failure_type": one.failure_type.value,
                "error": one.error_name,
                "message": one.message,
            }
            for one in map(without_secrets, ended.groups)
        ],
    }


def summary_lines(ended: Ended) -> Iterator[str]:
    """The summary for people."""
    summary = ended.summary
    yield _headline(ended)
    if ended.was_over:
        name = summary.name
        yield "It was finished before, and its pages are known: nothing was fetched. To begin anew give another --name,"
        yield f"or forget this one: holdfast crawl remove {name}{ended.where}"
        if summary.dead:
            yield f"To have given up pages fetched again: holdfast crawl retry {name}{ended.where}, and this once more"
    if ended.out:
        yield _row("items", f"{summary.items_here:,} new in {ended.out}")
    elif summary.done:
        yield _row("items", f"are in the store: holdfast crawl export {summary.name}{ended.where} --out FILE.jsonl")
    if summary.not_followed:
        yield _row("not followed", _counts(summary.not_followed))
    yield from _given_up(ended)


def _headline(ended: Ended) -> str:
    summary = ended.summary
    parts = [f"{summary.done:,} {'page' if summary.done == 1 else 'pages'} done"]
    if summary.done_here != summary.done:
        parts[0] += f" ({summary.done_here:,} in this run)"
    if summary.pending:
        parts.append(f"{summary.pending:,} pending")
    if summary.dead:
        parts.append(f"{summary.dead:,} given up")
    if summary.skipped:
        parts.append(f"{summary.skipped:,} skipped")
    what = "finished" if summary.is_finished else "stopped"
    again = "" if summary.is_finished else "; run the same command again to go on"
    return f"{what}: {', '.join(parts)}, in {length(summary.took_s)}{again}"


def _given_up(ended: Ended) -> Iterator[str]:
    groups = ended.groups
    if not groups:
        return
    label = "given up"
    for group in map(without_secrets, groups[:_MOST_GROUPS]):
        name = group.error_name.rpartition(".")[2]
        yield _row(label, f"{group.count:,} × {short(f'{name}: {group.message}', 120)}   {group.fingerprint}")
        label = ""
    if len(groups) > _MOST_GROUPS:
        yield _row("", f"and {many(len(groups) - _MOST_GROUPS, 'more cause')}")
    yield _row("", f"look at them: holdfast dlq --task {queue_of(ended.summary.name)}{ended.where}")
    structural = next((one for one in groups if one.failure_type is FailureType.STRUCTURAL), None)
    if structural is not None:
        target = ended.target or "MODULE:CRAWLER"
        yield _row("", f"parse kept pages again: holdfast crawl replay {structural.fingerprint} --app {target} --try")


def _counts(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{count:,} {why}" for why, count in ordered)


def _row(label: str, text: str) -> str:
    return f"{label:<{_INDENT}}{text}"
