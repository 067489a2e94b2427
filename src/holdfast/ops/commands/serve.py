"""`holdfast serve`: the HTTP API and the page of an app."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.app import App
from holdfast.errors import StoreAway
from holdfast.ops.commands.lazy import Unusable
from holdfast.ops.commands.log_option import log_option, log_to_stderr
from holdfast.ops.commands.output import echo_json, hint, say
from holdfast.ops.commands.target import json_option, load_app, target_or_default
from holdfast.ops.extras import wanted
from holdfast.ops.text import many
from holdfast.wiring import shown

if TYPE_CHECKING:
    from holdfast.ops.api.serving import ApiServer
    from holdfast.ops.api.settings import ApiSettings


@click.command()
@click.argument("TARGET", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen at this address.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8080, show_default=True, help="0 is a free one.")
@click.option("--tokens", type=click.Path(path_type=Path), metavar="FILE", help="Who may ask; see `holdfast token`.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A name of this server; may be repeated.")
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option("--allow-simulation", is_flag=True, help="Switch on POST /retry/simulate-failure.")
@click.option("--trust-proxy", is_flag=True, help="Believe X-Forwarded-For, -Proto and -Host; only behind a proxy.")
@log_option
@json_option
def serve(target: str | None, host: str, port: int, log_format: str | None, as_json: bool, **options: Any) -> None:
    """The HTTP API and the page of an app, until told to stop.

    TARGET is module:app or file.py:app, or else $HOLDFAST_APP. On this machine's own addresses no password is asked
    for; at any other address it refuses to start without --tokens. It watches the app's alerts as well. While the store
    is away it starts all the same, and answers 503.

    \b
    Example:
      holdfast serve shop:app
      holdfast serve shop:app --host 0.0.0.0 --tokens tokens.toml --allow-host jobs.example.com
    """  # noqa: D301 - click wants the backspace itself
    with wanted("web"):
        from holdfast.ops.api.page_files import NOT_BUILT, is_built  # noqa: PLC0415
        from holdfast.ops.api.serving import ApiServer, address_of, listen  # noqa: PLC0415
    settings = _settings(host, **options)
    found = target_or_default(target)
    app = load_app(found)
    try:
        log_to_stderr(log_format)
        listening = listen(host, port)
        url = address_of(host, listening)
        start = {"url": url, "target": found, "tasks": sorted(app.specs)} | _store(app)
        if not is_built():
            start["warnings"].append(NOT_BUILT)

        def on_started() -> None:
            if as_json:
                echo_json({"kind": "start"} | start)
            else:
                _tell(start, settings)

        asyncio.run(_run(ApiServer(app, settings, listening), on_started))
    finally:
        app.close()
    if as_json:
        echo_json({"kind": "end"})
    else:
        say("stopped")


def _settings(
    host: str,
    *,
    tokens: Path | None,
    hosts: tuple[str, ...],
    read_only: bool,
    allow_simulation: bool,
    trust_proxy: bool,
) -> ApiSettings:
    from holdfast.ops.api.settings import ApiSettings, is_loopback_host  # noqa: PLC0415
    from holdfast.ops.api.tokens import TokenFile, warnings_about  # noqa: PLC0415

    is_loopback = is_loopback_host(host)
    if not is_loopback and tokens is None:
        raise Unusable(
            f"--host {host} can be reached from other machines, so it needs --tokens FILE; "
            "`holdfast token new --name ops --role operator` makes the first one"
        )
    for line in warnings_about(tokens) if tokens is not None else ():
        hint(f"warning    {line}")
    is_name = host not in ("", "0.0.0.0", "::")  # noqa: S104 - these stand for all addresses, and are no name
    return ApiSettings(
        tokens=() if tokens is None else TokenFile(tokens),
        hosts=(*hosts, host) if is_name else hosts,
        read_only=read_only,
        allows_simulation=allow_simulation,
        trusts_proxy=trust_proxy,
        is_loopback=is_loopback,
    )


def _store(app: App) -> dict[str, Any]:
    """What people should know of the store; one that is away now may be there later."""
    try:
        store = app.store.capabilities
    except StoreAway as error:
        return {"store": shown(app.url), "is_away": True, "warnings": [f"the store is away: {error}"]}
    lines = list(store.warnings)
    if not store.is_shared:
        lines.append(
            "this store lives in this process alone: no worker will see its jobs; `holdfast dev` runs one here"
        )
    elif not store.is_durable:
        lines.append(f"not durable: {store.durability}")
    return {"store": store.location, "is_away": False, "warnings": lines}


def _tell(start: dict[str, Any], settings: ApiSettings) -> None:
    say(f"store      {start['store']}")
    for line in start["warnings"]:
        say(f"warning    {line}")
    say(f"app        {start['target']}: {many(len(start['tasks']), 'task')}")
    access = "with a token" if settings.has_tokens else "without a password, from this machine alone"
    say(f"access     {access}{', read-only' if settings.read_only else ''}")
    say(f"page       {start['url']}")


async def _run(server: ApiServer, on_started: Any) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    await server.run(on_started)
