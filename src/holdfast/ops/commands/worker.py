"""`holdfast worker` and `holdfast dev`: run the jobs of an app."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from holdfast.app import App
from holdfast.clock import SystemClock, chance
from holdfast.errors import StoreAway
from holdfast.ops.commands.dev import DevPage, find_page
from holdfast.ops.commands.lazy import Unusable
from holdfast.ops.commands.log_option import log_option, log_to_stderr
from holdfast.ops.commands.output import echo_json, say
from holdfast.ops.commands.reading import length_of
from holdfast.ops.commands.target import json_option, load_app, target_or_default
from holdfast.ops.text import length, many
from holdfast.ports import Capabilities, Clock
from holdfast.runtime.outage import Outage
from holdfast.runtime.place import place_of
from holdfast.runtime.probe import served
from holdfast.runtime.runner import Room
from holdfast.runtime.supervisor import PROCESS, Supervisor
from holdfast.runtime.worker import Exit, WorkerSettings

_ENDS: Final = {
    Exit.DRAINED: "stopped: everything that had begun was finished",
    Exit.RELEASED: "stopped: the grace time ran out, and what was still running was given back",
    Exit.REPLACE: "stopped: a worker lost its lease or hung, and what it had is run again elsewhere",
}

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_LOOK_S: Final = 0.1


def _settings(fn: Callable[..., None]) -> Callable[..., None]:
    """The options that `worker` and `dev` share."""
    defaults = WorkerSettings()
    number = click.IntRange(min=1)
    for option in (
        json_option,
        log_option,
        click.option(
            "--lease",
            type=length_of,
            metavar="TIME",
            default=defaults.lease_s,
            help="Jobs are given up after so long without a heartbeat. [12s]",
        ),
        click.option(
            "--grace",
            type=length_of,
            metavar="TIME",
            default=defaults.grace_s,
            help="A stop waits so long for what runs. [30s]",
        ),
        click.option("--queues", metavar="A,B", help="Take jobs from these queues only. [all]"),
        click.option("--streams", metavar="A,B", help="Handle the messages of these streams only, or of none. [all]"),
        click.option(
            "--isolates",
            type=number,
            default=defaults.room.isolates,
            show_default=True,
            help="Jobs at a time in processes of their own.",
        ),
        click.option(
            "--threads", type=number, default=defaults.room.threads, show_default=True, help="Sync jobs at a time."
        ),
        click.option(
            "--concurrency",
            type=number,
            default=defaults.room.concurrency,
            show_default=True,
            help="Async jobs at a time.",
        ),
        click.argument("TARGET", required=False),
    ):
        fn = option(fn)
    return fn


@click.command()
@_settings
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Worker processes.")
@click.option("--metrics-port", type=click.IntRange(0, 65_535), help="Serve metrics and health there; 0 finds a port.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="The address for that port.")
def worker(
    target: str | None, processes: int, metrics_port: int | None, metrics_host: str, as_json: bool, **options: Any
) -> None:
    """Run the jobs and the streams of an app, until told to stop.

    TARGET is module:app or file.py:app, or else $HOLDFAST_APP. The first Ctrl-C or SIGTERM finishes what is running,
    for at most --grace; the second ends everything at once. Processes that die are replaced. --concurrency, --threads
    and --isolates are for each process.

    --metrics-port serves /metrics, /health/live and /health/ready of this worker alone; the fleet's metrics are at
    /metrics of `holdfast serve`.

    \b
    Exit codes: 0 everything was finished, 2 could not start, 3 the grace time ran out,
    4 a worker had to be given up, 130 or 143 ended at once by a second signal.

    \b
    Example:
      holdfast worker shop:app
      holdfast worker shop.py:app --processes 4 --queues mail,default
      holdfast worker shop:app --streams bill
      holdfast worker shop:app --metrics-port 9464 --log-format json
    """  # noqa: D301 - click wants the backspace itself
    place = None if metrics_port is None else (metrics_host, metrics_port)
    _run(target_or_default(target), processes, None, as_json, place=place, **options)


@click.command()
@_settings
@click.option("--port", type=click.IntRange(1, 65_535), help="Of the page. [8080, or the next that is free]")
def dev(target: str | None, port: int | None, as_json: bool, **options: Any) -> None:
    """A worker, the HTTP API and the page; starts again when a file changes.

    TARGET is module:app or file.py:app, or else $HOLDFAST_APP. It watches the Python files in and below the current
    folder, and runs one process. A file that cannot be loaded is told of, and waited for. Without the extra `web` there
    is no page.

    \b
    Example:
      holdfast dev shop:app
    """  # noqa: D301 - click wants the backspace itself
    _run(target_or_default(target), 1, Path.cwd(), as_json, page=find_page(port), **options)


def _run(
    target: str,
    processes: int,
    watch: Path | None,
    as_json: bool,
    *,
    page: DevPage | None = None,
    place: tuple[str, int] | None = None,
    log_format: str | None,
    concurrency: int,
    threads: int,
    isolates: int,
    queues: str | None,
    streams: str | None,
    grace: float,
    lease: float,
) -> None:
    settings = WorkerSettings(
        queues=_names("queues", queues, "mail,default"),
        streams=() if streams == "none" else _names("streams", streams, "bill,ship, or --streams none"),
        room=Room(concurrency=concurrency, threads=threads, isolates=isolates),
        lease_s=lease,
        grace_s=grace,
    )
    log_to_stderr(log_format)
    check = _checked if watch is None else _checked_or_broken
    found = check(target, settings.streams)
    start: dict[str, Any] = {}
    if found is not None:
        start = found | {
            "processes": processes,
            "queues": list(settings.queues or ()),
            "streams": found["streams"] if settings.streams is None else list(settings.streams),
            "watch": None if watch is None else str(watch),
            "page": None if page is None else page.url,
        }
    supervisor = Supervisor(
        target,
        settings,
        processes,
        SystemClock(),
        watch=watch,
        module=PROCESS if page is None else page.module,
        arguments=() if page is None else page.arguments,
        is_probed=place is not None,
    )
    with ExitStack() as block:
        port = None if place is None else _listening(block, supervisor, *place)
        if found is not None and as_json:
            echo_json({"kind": "start"} | start)
        elif found is not None:
            tell_start(start, settings)
        if place is not None and port is not None:
            _tell_port(place[0], port, as_json)
        code = int(supervisor.run())
    if as_json:
        echo_json({"kind": "end", "code": code, "restarts": supervisor.restarts})
    elif code in _ENDS:
        say(_ENDS[Exit(code)])
    click.get_current_context().exit(code)


def _listening(block: ExitStack, supervisor: Supervisor, host: str, port: int) -> int:
    try:
        return block.enter_context(served(supervisor, host, port))
    except OSError as error:
        raise Unusable(f"--metrics-port {port}: cannot listen on {host}: {error.strerror or error}") from error


def _tell_port(host: str, port: int, as_json: bool) -> None:
    name = f"[{host}]" if ":" in host else host
    if as_json:
        echo_json({"kind": "port", "metrics": f"http://{name}:{port}/metrics"})
    else:
        say(f"metrics    http://{name}:{port}/metrics, and /health/live and /health/ready there")


def _checked(target: str, streams: tuple[str, ...] | None) -> dict[str, Any]:
    """Load the app, make its streams and open its store before any process is started: what is wrong is one line."""
    app = load_app(target)
    if not app.specs and not app.stream_specs:
        raise Unusable(
            f"{target} has no tasks: decorate a function with @app.task or @app.stream, and import it with the app"
        )
    if unknown := sorted(set(streams or ()) - set(app.stream_specs)):
        known = ", ".join(sorted(app.stream_specs)) or "none at all"
        raise Unusable(f"--streams: {target} has no stream {unknown[0]!r}; it has {known}")
    app.streams.check_sources(streams)
    capabilities = opened_patiently(app, SystemClock())
    app.close()
    return {
        "target": target,
        "store": capabilities.location,
        "is_shared": capabilities.is_shared,
        "is_durable": capabilities.is_durable,
        "durability": capabilities.durability,
        "warnings": list(capabilities.warnings),
        "tasks": sorted(app.specs),
        "schedules": sorted(app.scheduled),
        "streams": sorted(app.stream_specs),
    }


def _checked_or_broken(target: str, streams: tuple[str, ...] | None) -> dict[str, Any] | None:
    """The same; None where a file of the user's is broken, which the next change may mend."""
    try:
        return _checked(target, streams)
    except Unusable as error:
        cause = error.__cause__
        if cause is None or not (isinstance(cause, SyntaxError) or place_of(cause)):
            raise
        return None


def opened_patiently(app: App, clock: Clock) -> Capabilities:
    """Open the store. One that is away is waited for, as machines come up in any order; Ctrl-C or SIGTERM ends that."""
    outage = Outage(clock, chance)
    signals: list[int] = []
    kept: dict[int, Any] = {}
    try:
        while True:
            try:
                capabilities = app.store.capabilities
            except StoreAway as error:
                due_s = clock.monotonic() + outage.fails("start", error)
                if not kept:
                    # It only takes note: what takes a lock may find that the thread it has interrupted holds it.
                    kept = {one: signal.signal(one, lambda number, _: signals.append(number)) for one in _ENDING}
                while not signals and (left_s := due_s - clock.monotonic()) > 0:
                    clock.sleep(min(left_s, _LOOK_S))
            else:
                outage.works("start")
                if not signals:
                    return capabilities
            if signals:
                say("stopped: nothing had begun")
                click.get_current_context().exit(Exit.DRAINED)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def tell_start(start: dict[str, Any], settings: WorkerSettings) -> None:
    """The first lines: what runs where, and what people should know of it."""
    shared = "" if start["is_shared"] else " (lives in the worker's process alone: nobody else can enqueue)"
    say(f"store      {start['store']}{shared}")
    if not start["is_durable"] and start["is_shared"]:
        say(f"           not durable: {start['durability']}")
    for line in start["warnings"]:
        say(f"warning    {line}")
    tasks, schedules = len(start["tasks"]), len(start["schedules"])
    say(f"app        {start['target']}: {many(tasks, 'task')}, {many(schedules, 'schedule')}")
    say(f"queues     {', '.join(start['queues']) or 'all'}")
    if start["streams"]:
        say(f"streams    {', '.join(start['streams'])}")
    if start["watch"] is not None:
        say(f"watching   {start['watch']}: a change of a Python file starts the worker again")
    if start.get("page"):
        say(f"page       {start['page']}")
    processes = many(start["processes"], "process", "processes")
    say(f"{processes}; Ctrl-C finishes what is running (at most {length(settings.grace_s)}), twice ends at once")


def _names(option: str, text: str | None, example: str) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise Unusable(f"--{option} names none: write --{option} {example}")
    return names
