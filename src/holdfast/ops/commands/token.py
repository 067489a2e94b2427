"""`holdfast token`: make tokens for the HTTP API, and look at a file of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from holdfast.clock import SystemClock
from holdfast.ops.api.roles import Role
from holdfast.ops.api.tokens import lines_of, make_token, read_tokens, warnings_about
from holdfast.ops.commands.lazy import FAILED
from holdfast.ops.commands.output import echo_json, hint, print_table, say
from holdfast.ops.commands.tables import Column
from holdfast.ops.text import ago, instant

_COLUMNS: Final = (
    Column("id"),
    Column("name", least=8),
    Column("role"),
    Column("tenant", least=6, goes=1),
    Column("expires", goes=2),
)
_DAY_S: Final = 86_400.0
_LONGEST_DAYS: Final = 36_500.0


@click.group()
def token() -> None:
    """Tokens for the HTTP API: new, check.

    A tokens file holds the hash of each secret, so whoever reads it can not sign in with it. `holdfast serve --tokens`
    reads it again when it changes.

    \b
    Example:
      holdfast token new --name ops --role operator --days 90 >> tokens.toml
      holdfast token check tokens.toml
    """  # noqa: D301 - click wants the backspace itself


@token.command()
@click.option("--name", required=True, help="Whom it is for; it stands in the audit log.")
@click.option(
    "--role", type=click.Choice([role.value for role in Role]), required=True, help="What it allows; admin is all."
)
@click.option("--tenant", help="Only this tenant's jobs can be seen and made with it.")
@click.option(
    "--days", type=click.FloatRange(0, _LONGEST_DAYS, min_open=True), help="For how long it holds; for ever without."
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def new(name: str, role: str, tenant: str | None, days: float | None, as_json: bool) -> None:
    """Make a token: the secret on standard error, once; the lines for the tokens file on standard output.

    \b
    Example:
      holdfast token new --name ops --role operator --days 90 >> tokens.toml
      holdfast token new --name acme --role viewer --tenant acme --json
    """  # noqa: D301 - click wants the backspace itself
    expires_at = None if days is None else SystemClock().now() + days * _DAY_S
    made = make_token(name=name, role=role, tenant=tenant, expires_at=expires_at)
    if as_json:
        echo_json({"token": made.text, "lines": lines_of(made.token)})
        return
    hint("the token, which is shown this once and kept nowhere:")
    hint(f"  {made.text}")
    hint("the lines for the tokens file:")
    click.echo()
    click.echo(lines_of(made.token), nl=False)


@token.command()
@click.argument("FILE", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def check(file: Path, as_json: bool) -> None:
    """Read a tokens file as `holdfast serve` does, and say what it has.

    The exit code is 2 when it cannot be used, and 1 when there is something to mend: no token that holds, or a file
    that others can read or write.

    \b
    Example:
      holdfast token check tokens.toml
    """  # noqa: D301 - click wants the backspace itself
    found = read_tokens(file)
    now = SystemClock().now()
    warnings = warnings_about(file)
    if not any(one.expires_at is None or one.expires_at > now for one in found):
        warnings.append(f"{file} has no token that holds, so nobody can sign in")
    if as_json:
        rows = [
            {"id": one.id, "name": one.name, "role": one.role, "tenant": one.tenant, "expires_at": one.expires_at}
            for one in found
        ]
        echo_json({"tokens": rows, "warnings": warnings})
    else:
        print_table(
            _COLUMNS,
            [
                (
                    one.id,
                    one.name,
                    one.role.value,
                    one.tenant if one.tenant is not None else "all",
                    "never" if one.expires_at is None else f"{instant(one.expires_at)} ({ago(one.expires_at, now)})",
                )
                for one in found
            ],
        )
        for line in warnings:
            say(line)
    if warnings:
        click.get_current_context().exit(FAILED)
