"""`holdfast crawl letters` and `crawl retry`: the pages of a crawl that were given up."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from holdfast.app import App
from holdfast.ops.commands.crawl_views import view_of
from holdfast.ops.commands.lazy import Failed, Unusable
from holdfast.ops.commands.output import echo_json, hint, is_sure, print_table, say, yes_option
from holdfast.ops.commands.reading import cursor_option, full_group, limit_option
from holdfast.ops.commands.record import as_fields, store_now
from holdfast.ops.commands.tables import Column
from holdfast.ops.commands.target import on_any_store, on_store, store_options
from holdfast.ops.commands.unnamed import UnnamedGroup
from holdfast.ops.redact import origin_shown, redacted_text, without_secrets
from holdfast.ops.text import ago, instant, many, short
from holdfast.ports import Page
from holdfast.types import FailureType

if TYPE_CHECKING:
    from holdfast.crawl.letters import CrawlLetters

_COLUMNS: Final = (
    Column("id", prefix=13),
    Column("page", least=24),
    Column("type", goes=2),
    Column("attempts", is_number=True, goes=1),
    Column("given up", goes=3),
    Column("error", least=12, goes=4),
)
_COUNTS: Final = (Column("pages", is_number=True), Column("what", least=20))
_TYPES: Final = click.Choice([one.value for one in FailureType])

_domain_option = click.option("--domain", default="", help="Of this domain, such as example.org.")
_group_option = click.option("--group", default="", help="Of this group: its fingerprint, or the beginning of it.")
_retriable_option = click.option("--retriable", is_flag=True, help="Those whose failure can heal.")
_attempts_option = click.option(
    "--attempts-under",
    type=click.IntRange(min=1),
    metavar="N",
    help="Those with fewer attempts; structural failures never are among them.",
)


@click.group("letters", cls=UnnamedGroup, unnamed="list")
@store_options
@click.pass_context
def letters(ctx: click.Context, /, **options: Any) -> None:
    """Dead letters of a crawl: pages that were given up. With a NAME alone it lists them.

    `holdfast dlq --task crawl:NAME` shows them by cause; `holdfast crawl retry NAME` sends them back.

    \b
    Example:
      holdfast crawl letters example.org
      holdfast crawl letters export example.org letters.jsonl
    """  # noqa: D301 - click wants the backspace itself
    if ctx.invoked_subcommand is None:
        raise Unusable("of which crawl? Give its NAME; holdfast crawl lists them")


@letters.command("list")
@click.argument("NAME")
@_retriable_option
@_attempts_option
@_domain_option
@limit_option
@cursor_option
@on_store
def list_letters(
    app: App,
    name: str,
    retriable: bool,
    attempts_under: int | None,
    domain: str,
    limit: int,
    cursor: str,
    as_json: bool,
) -> None:
    """Pages that were given up, newest first.

    \b
    Example:
      holdfast crawl letters list example.org --retriable
    """  # noqa: D301 - click wants the backspace itself
    found = _letters(app, name)
    if retriable or attempts_under is not None:
        if cursor:
            raise Unusable("--cursor: a list of retriable letters has none; give a larger --limit")
        page = Page(found.retriable(attempts_under=attempts_under, domain=domain, limit=limit))
    else:
        page = found.list(limit=limit, cursor=cursor, domain=domain)
    if as_json:
        echo_json({"items": [as_fields(record) for record in page.items], "cursor": page.cursor})
        return
    if not page.items:
        hint("no dead letters")
        return
    now = store_now(app)
    rows = []
    for record in map(without_secrets, page.items):
        error = f"{record.error_name.rpartition('.')[2]}: {record.message}" if record.error_name else record.reason
        url = str(origin_shown(record).get("url", ""))
        kind = record.failure_type.value if record.failure_type else "-"
        rows.append([record.id, url, kind, str(record.attempt), ago(record.ended_at, now), short(error, 100)])
    print_table(_COLUMNS, rows)
    if page.cursor:
        hint(f"there are more: --cursor {page.cursor}")


@letters.command("stats")
@click.argument("NAME")
@on_store
def stats(app: App, name: str, as_json: bool) -> None:
    """Pages that were given up, counted by cause, failure type and domain.

    \b
    Example:
      holdfast crawl letters stats example.org
    """  # noqa: D301 - click wants the backspace itself
    counted = _letters(app, name).stats()
    by_error = _redacted(counted.by_error)
    if as_json:
        by_domain = _redacted(counted.by_domain)
        echo_json(
            {
                "total": counted.total,
                "by_error": by_error,
                "by_failure_type": counted.by_failure_type,
                "by_domain": by_domain,
                "oldest": counted.oldest,
                "newest": counted.newest,
            }
        )
        return
    say(f"{many(counted.total, 'dead letter')}")
    if not counted.total:
        return
    say(f"given up between {instant(counted.oldest)} and {instant(counted.newest)}")
    for counts in (by_error, counted.by_failure_type, _redacted(counted.by_domain)):
        print_table(_COUNTS, [[f"{count:,}", what] for what, count in counts.items()])


@letters.command("export")
@click.argument("NAME")
@click.argument("FILE", default="-")
@_domain_option
@_group_option
@yes_option
@on_store
def export(app: App, name: str, file: str, domain: str, group: str, is_yes: bool, as_json: bool) -> None:
    """Write pages that were given up as lines of JSON, with every attempt; not the pages that are kept with them.

    FILE is standard output by default. An export has everything, secrets too: a FILE is made for its owner's eyes
    alone.

    \b
    Example:
      holdfast crawl letters export example.org letters.jsonl
      holdfast crawl letters export example.org | jq .url
    """  # noqa: D301 - click wants the backspace itself
    found = _letters(app, name)
    which = {"domain": domain, "group": _full_group(found, group)}
    if file == "-":
        found.export(sys.stdout, **which)
        return
    path = Path(file)
    if path.exists() and not is_sure(f"Write over {path}?", is_yes):
        raise Failed("nothing was written")
    written = found.export(path, **which)
    if as_json:
        echo_json({"exported": written, "file": str(path.absolute())})
    else:
        say(f"{many(written, 'dead letter')} written to {path.absolute()}")


@letters.command("import")
@click.argument("NAME")
@click.argument("FILE", type=click.File("rb"))
@on_any_store
def import_(app: App, name: str, file: IO[bytes], as_json: bool) -> None:
    """Take the lines of an export as pages of a crawl, to be fetched by its next run.

    A page that the crawl has already stays what it is. With a bad line none is taken. All that a line needs is a "url".
    `-` is standard input.

    \b
    Example:
      holdfast crawl letters import example.org letters.jsonl
    """  # noqa: D301 - click wants the backspace itself
    from holdfast.crawl.letters import CrawlLetters  # noqa: PLC0415 - the extra, which looking does not need

    imported = CrawlLetters(app, name).import_(file)
    if as_json:
        echo_json({"new": imported.new, "known": imported.known})
    else:
        say(f"{many(imported.new, 'page')} to be fetched, {imported.known} known already")


@click.command("retry")
@click.argument("NAME")
@_retriable_option
@_attempts_option
@_domain_option
@_group_option
@click.option("--type", "failure_type", type=_TYPES, help="With this type of failure.")
@on_store
def retry(
    app: App,
    name: str,
    retriable: bool,
    attempts_under: int | None,
    domain: str,
    group: str,
    failure_type: str | None,
    as_json: bool,
) -> None:
    """Send pages that were given up back, to be fetched anew: all of a crawl, or those that the options say.

    A run of the crawl fetches them: the one that is on, or the next. Exit code 1 where there were none.

    \b
    Example:
      holdfast crawl retry example.org --retriable
      holdfast crawl retry shop --domain example.org
    """  # noqa: D301 - click wants the backspace itself
    found = _letters(app, name)
    if retriable or attempts_under is not None:
        if group or failure_type:
            raise Unusable("--retriable and --attempts-under go with --domain alone")
        ids = [one.id for one in found.retriable(attempts_under=attempts_under, domain=domain)]
        sent = found.retry(ids)
    else:
        sent = found.retry(domain=domain, group=_full_group(found, group), failure_type=failure_type)
    if as_json:
        echo_json({"sent": sent})
    else:
        say(f"{many(sent, 'page')} to be fetched anew")
        if sent and not view_of(app, name).processes:
            hint("no process is on this crawl now: run it again, as it was run before")
    if not sent:
        raise Failed("there is no such dead letter")


def _letters(app: App, name: str) -> CrawlLetters:
    from holdfast.crawl.letters import CrawlLetters  # noqa: PLC0415 - the extra, which looking does not need

    return CrawlLetters(app, view_of(app, name).name)


def _full_group(found: CrawlLetters, start: str) -> str:
    return full_group(found.groups(), start) if start else ""


def _redacted(counts: Mapping[str, int]) -> dict[str, int]:
    """Causes and domains come from pages, and may hold a secret; what looks the same then is counted together."""
    shown: dict[str, int] = {}
    for text, count in counts.items():
        key = redacted_text(text)
        shown[key] = shown.get(key, 0) + count
    return shown


COMMANDS: Final[Sequence[click.Command]] = (letters, retry)
