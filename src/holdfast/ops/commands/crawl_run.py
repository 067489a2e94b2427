"""`holdfast crawl URL…`: crawl from these pages, or go on, until nothing is left or somebody says stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from holdfast.app import App
from holdfast.ops.commands.crawl_built_in import built_in
from holdfast.ops.commands.crawl_running import code_of, run_on, set_up_run_logs, tell
from holdfast.ops.commands.lazy import Unusable
from holdfast.ops.commands.reading import length_of
from holdfast.ops.commands.target import APP_VARIABLE, json_option, loaded, of_group

if TYPE_CHECKING:
    from holdfast.crawl import Crawler

_ALL: Final = "all"
_DEPTH: Final = 3
_ANYBODYS: Final = ("url", "target", "as_json", "out", "urls")
"""What may be given with a crawler of --app; all else is its own."""


def depth_of(text: str | int) -> int | None:
    """How many links away: a whole number, or `all`, which is None."""
    if text == _ALL:
        return None
    if isinstance(text, int) or text.isdecimal():
        return int(text)
    raise click.BadParameter(f"{text!r} is no depth; write a whole number, or {_ALL}")


def _options(fn: Callable[..., None]) -> Callable[..., None]:
    """All that `run` takes."""
    number = click.IntRange(min=1)
    for option in (
        json_option,
        click.option("--retries", type=click.IntRange(min=0), help="Of a page that fails in a way that can heal. [4]"),
        click.option("--allow-private", is_flag=True, help="Addresses of private networks may be connected to."),
        click.option("--user-agent", metavar="TEXT", help="Who asks, and how to reach you. [Holdfast/<version>]"),
        click.option("--no-robots", is_flag=True, help="Do not ask for robots.txt, nor obey it."),
        click.option(
            "--expect", multiple=True, metavar="SELECTOR", help="Every HTML page must have it, or it is given up."
        ),
        click.option("--max-pages", type=number, help="Take no further URLs once there are so many. [no limit]"),
        click.option(
            "--delay", type=length_of, metavar="TIME", default=0.0, help="Between two requests to one domain. [0]"
        ),
        click.option(
            "--concurrency", type=number, default=32, show_default=True, help="Requests in flight, in this process."
        ),
        click.option(
            "--per-domain", type=number, default=4, show_default=True, help="Requests in flight to one domain."
        ),
        click.option("--rate", metavar="RATE", help="Requests to one domain, such as 2/second. [no limit of its own]"),
        click.option("--deny", multiple=True, metavar="PATTERN", help="URLs that are not wanted; may be repeated."),
        click.option(
            "--allow",
            multiple=True,
            metavar="PATTERN",
            help="URLs that are wanted, such as https://example.org/shop/**; may be repeated. [the URLs' domains]",
        ),
        click.option(
            "--depth",
            type=depth_of,
            metavar="N",
            default=_DEPTH,
            help=f"How many links a page may be away from a URL, or `{_ALL}`. [{_DEPTH}]",
        ),
        click.option("--name", help="Of the crawl: the same goes on, another begins anew. [the first URL's domain]"),
        click.option(
            "--out", metavar="FILE", help="Items go to this .jsonl or .db file, each once; - is standard output."
        ),
        click.option(
            "--app",
            "target",
            metavar="TARGET",
            envvar=APP_VARIABLE,
            help="The crawler that runs, or the app whose store it is: module:name, or file.py:name. [$HOLDFAST_APP]",
        ),
        click.option("--url", help="The store. [--app, then $HOLDFAST_URL, then ./holdfast.db]"),
        click.argument("urls", metavar="[URL]...", nargs=-1),
    ):
        fn = option(fn)
    return fn


@click.command("run")
@_options
def run(urls: tuple[str, ...], url: str | None, target: str | None, as_json: bool, **options: Any) -> None:
    """Crawl from these URLs, and go on with what is pending, until nothing is left.

    `run` may be left out before a URL or an option. Without --app an item of each HTML page is its url, status, title,
    description, depth, links and bytes, and all links in scope are followed. A crawler of --app has its own handlers
    and settings. It needs no URL to go on.

    Ctrl-C or SIGTERM finishes the active requests and saves; the second one leaves at once. The same command goes on.

    \b
    Exit codes: 0 finished, 1 finished without one page done, 2 could not start,
    3 stopped with pages left, 130 or 143 left at once by a second signal.

    \b
    Example:
      holdfast crawl https://example.org --depth 3 --out pages.jsonl
      holdfast crawl https://example.org --allow 'https://example.org/shop/**' --rate 2/second --expect h1
      holdfast crawl run --app shop:crawler --out products.db
    """  # noqa: D301 - click wants the backspace itself
    given = of_group()
    url, target, as_json = url or given.get("url"), target or given.get("target"), as_json or "as_json" in given
    set_up_run_logs()
    out = options.pop("out") or ""
    crawler = _found_crawler(url, target, urls, options)
    with closing(crawler.app):
        ended = run_on(crawler, urls, out, url=url, target=target, as_json=as_json)
    tell(ended, as_json=as_json)
    click.get_current_context().exit(code_of(ended))


def _found_crawler(url: str | None, target: str | None, urls: Sequence[str], options: Mapping[str, Any]) -> Crawler:
    """The crawler of --app, or one that is made of the options."""
    from holdfast.crawl import Crawler  # noqa: PLC0415 - the other commands do not need the extra

    is_given = click.get_current_context().get_parameter_source("target") is not ParameterSource.ENVIRONMENT
    if not target or (url and not is_given):
        return built_in(App(url), urls, options)
    found = loaded(target)
    if isinstance(found, Crawler):
        if url:
            raise Unusable(f"--url: {target} has its own store; change it there")
        _refuse_settings(target)
        return found
    if not isinstance(found, App):
        raise Unusable(f"cannot load {target}: it is a {type(found).__name__}, not a Crawler or an App")
    return built_in(App(url) if url else found, urls, options)


def _refuse_settings(target: str) -> None:
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name not in _ANYBODYS:
            raise Unusable(f"{parameter.opts[-1]}: {target} has its own settings; change it there")
