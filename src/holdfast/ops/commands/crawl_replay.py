"""`holdfast crawl replay`: kept pages, parsed again by a handler that was mended, without fetching anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.errors import PageChanged
from holdfast.ops.commands.crawl_running import code_of, run_on, set_up_run_logs, tell
from holdfast.ops.commands.crawl_summary import as_fields
from holdfast.ops.commands.lazy import FAILED, Unusable
from holdfast.ops.commands.output import echo_json, hint, say
from holdfast.ops.commands.reading import full_group
from holdfast.ops.commands.target import APP_VARIABLE, json_option, loaded, of_group
from holdfast.ops.redact import redacted_text
from holdfast.ops.text import many, short
from holdfast.runtime.crawl_origins import queue_of

if TYPE_CHECKING:
    from holdfast.crawl import Crawler
    from holdfast.crawl.replaying import StillFailing, Tried

_MOST_ERRORS: Final = 5


@click.command("replay")
@click.argument("GROUP")
@click.option(
    "--app",
    "target",
    metavar="TARGET",
    envvar=APP_VARIABLE,
    help="The crawler whose handlers parse them: module:name, or file.py:name. [$HOLDFAST_APP]",
)
@click.option("--try", "is_trial", is_flag=True, help="Only say what would become of them.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="At most so many, the newest."
)
@click.option("--out", metavar="FILE", default="", help="Where the run writes items, as `crawl run --out`.")
@json_option
def replay(group: str, target: str | None, is_trial: bool, limit: int, out: str, as_json: bool) -> None:
    """Parse the kept pages of a group again, without fetching them, and complete those that pass.

    GROUP is the fingerprint of dead letters, or the beginning of it. Those that pass go back to the queue, and the
    crawl is run on to its end; the others stay as they are. With --try nothing is changed.

    \b
    Exit codes: 0 all of them pass, 1 some do not, 2 could not start, 3 stopped with pages left.

    \b
    Example:
      holdfast crawl replay 1:6f02 --app shop:crawler --try
      holdfast crawl replay 1:6f02 --app shop:crawler --out products.jsonl
    """  # noqa: D301 - click wants the backspace itself
    given = of_group()
    target, as_json = target or given.get("target"), as_json or bool(given.get("as_json"))
    if given.get("url"):
        raise Unusable("--url: the crawler of --app has its own store")
    set_up_run_logs()
    crawler = _crawler_of(target)
    with closing(crawler.app):
        code = _replay(crawler, group, limit, out, target or "", is_trial=is_trial, as_json=as_json)
    click.get_current_context().exit(code)


def _replay(crawler: Crawler, group: str, limit: int, out: str, target: str, *, is_trial: bool, as_json: bool) -> int:
    from holdfast.crawl.replaying import replay_stored, try_stored  # noqa: PLC0415 - the extra

    app = crawler.app
    fingerprint = full_group(app.dead_letters.groups(task=queue_of(crawler.name)), group)
    do = try_stored if is_trial else replay_stored
    tried = app.bridge.run(do(crawler, fingerprint, limit=limit))
    code = 0 if len(tried.passing) == tried.total else FAILED
    if not as_json:
        for line in _lines(tried, crawler.name, is_trial=is_trial):
            (hint if out == "-" else say)(line)
    if is_trial or not tried.sent:
        if as_json:
            echo_json({"replay": _fields(tried), "run": None})
        return code
    ended = run_on(crawler, (), out, url=None, target=target, as_json=as_json)
    if as_json:
        echo_json({"replay": _fields(tried), "run": as_fields(ended)}, err=out == "-")
    else:
        tell(ended, as_json=False)
    return code_of(ended) or code


def _crawler_of(target: str | None) -> Crawler:
    from holdfast.crawl import Crawler  # noqa: PLC0415 - the extra

    if not target:
        raise Unusable(f"whose handlers? Give --app module:crawler or file.py:crawler, or set {APP_VARIABLE}")
    found = loaded(target)
    if not isinstance(found, Crawler):
        raise Unusable(f"cannot load {target}: it is a {type(found).__name__}, not a Crawler")
    return found


def _lines(tried: Tried, crawl: str, *, is_trial: bool) -> Iterator[str]:
    passing = f"{len(tried.passing)} of {many(tried.total, 'kept page')}"
    yield f"{passing} can be parsed now, with {many(tried.items, 'item')}"
    errors = Counter(map(_cause, tried.failing))
    for error, count in errors.most_common(_MOST_ERRORS):
        yield f"  {count} × {short(error, 120)}"
    if len(errors) > _MOST_ERRORS:
        yield f"  and {many(len(errors) - _MOST_ERRORS, 'more error')}"
    if unkept := len(tried.missing) + len(tried.cut):
        yield f"  {unkept} have no whole page kept: holdfast crawl retry {crawl} fetches them anew"
    if tried.has_more:
        yield "  there are more: a larger --limit takes them as well"
    if tried.passing and is_trial:
        yield "without --try these are completed"


def _cause(failing: StillFailing) -> str:
    """Its error without what differs from page to page."""
    error = failing.error.replace(failing.url, "…") if failing.url else failing.error
    return redacted_text(error.removeprefix(f"{PageChanged.__module__}."))


def _fields(tried: Tried) -> dict[str, Any]:
    return {
        "passing": len(tried.passing),
        "items": tried.items,
        "failing": [
            {"id": one.id, "url": redacted_text(one.url), "error": redacted_text(one.error)} for one in tried.failing
        ],
        "missing": len(tried.missing) + len(tried.cut),
        "has_more": tried.has_more,
        "sent": tried.sent,
    }
