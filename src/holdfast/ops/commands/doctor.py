"""`holdfast doctor`: is everything as it should be, and what would help if not."""

from __future__ import annotations

import functools

import click

from holdfast.app import App
from holdfast.errors import ConfigError, StoreError
from holdfast.ops.checks import Check, look_at, machine_checks, store_checks, stream_checks, task_check
from holdfast.ops.commands.lazy import FAILED, Failed, Unusable
from holdfast.ops.commands.output import echo_json
from holdfast.ops.commands.target import find_app, help_for, load_app, opened, store_options
from holdfast.ops.text import many, plain
from holdfast.wiring import store_file


@click.command()
@click.argument("URL", required=False)
@functools.partial(store_options, url_as="url_option")
def doctor(url: str | None, url_option: str | None, target: str | None, as_json: bool) -> None:
    """Look at Python, SQLite, the store, the workers and the work, and say what would help.

    The store is that of URL, or of --url, --app, $HOLDFAST_URL or the current folder: its version, that of its tables
    or keys and where they are, what it survives, how far its clock is from this machine's and how long it takes to
    answer. With --app it also looks whether the app loads, and whether there are jobs of tasks that it does not know.
    The exit code is 1 if something is wrong.

    \b
    Example:
      holdfast doctor postgresql://shop@db.example/shop
      holdfast doctor --app shop:app
      holdfast doctor sqlite:////var/lib/shop.db --json
    """  # noqa: D301 - click wants the backspace itself
    if url and url_option:
        raise Unusable("give the store once: as URL or by --url")
    checks = _checks(url or url_option, target)
    is_well = all(check.is_ok for check in checks)
    if as_json:
        echo_json({"is_ok": is_well, "checks": checks})
    else:
        for check in checks:
            _tell(check)
    if not is_well:
        click.get_current_context().exit(FAILED)


def _checks(url: str | None, target: str | None) -> list[Check]:
    """Every check that can be made; one that fails stands in the way of those behind it only."""
    checks = machine_checks()
    loaded: App | None = None
    if target:
        try:
            loaded = load_app(target)
            streams = f" and {many(len(loaded.stream_specs), 'stream')}" if loaded.stream_specs else ""
            checks.append(Check("app", True, f"{target} loads, with {many(len(loaded.specs), 'task')}{streams}"))
        except Failed as error:
            checks.append(Check("app", False, error.message, "start in the app's folder, or mend what it says"))
    try:
        app = find_app(url, None) if url or loaded is None else loaded
        with opened(app, help_=help_for(url, target)) as there:
            found = look_at(there, store_file(there.url))
        checks += store_checks(found)
        if loaded is not None:
            checks.append(task_check(found, {*loaded.specs, *loaded.stream_specs}))
    except Failed as error:
        checks.append(Check("store", False, error.message, "a worker or `holdfast enqueue` makes it"))
    except (ConfigError, StoreError) as error:
        checks.append(Check("store", False, str(error)))
    if loaded is not None and loaded.stream_specs:
        checks += stream_checks(loaded.streams.lag())
    return checks


def _tell(check: Check) -> None:
    mark = click.style("✓", fg="green") if check.is_ok else click.style("✗", fg="red")
    click.echo(f"{mark} {check.name:<13} {plain(check.text)}")
    if check.help and not check.is_ok:
        click.echo(f"  {'':<13} → {plain(check.help)}")
