"""A shop in a folder of its own, and its command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from holdfast.app import App
from holdfast.ops.cli import main
from holdfast.runtime.isolated import load

SHOP = r"""
from holdfast import App, Invalid, Permanent

app = App("sqlite:///shop.db")


@app.task
def charge(order_id: int, cents: int = 5, password: str = "") -> str:
    if cents > 100:
        raise Permanent(f"order {order_id}: declined \x1b[31m[bold]")
    return f"charged {cents}"


@app.task(name="mail.send", queue="mail", breaker="mailer")
def send(to: str) -> None:
    raise Invalid(to)


app.schedule(charge.bind(1), cron="0 3 * * *", name="nightly")
not_an_app = 42
"""


class Shop:
    """The folder, as the current one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def app(self) -> App:
        """The shop's app, in this process."""
        app: App = load("shop:app")
        return app

    def cli(self, *words: str, code: int = 0, text: str | None = None) -> Result:
        """Run `holdfast` with these words; it must end with this exit code."""
        done = CliRunner().invoke(main, words, input=text, catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done

    def json(self, *words: str, code: int = 0) -> Any:
        """The JSON that a command prints."""
        return msgspec.json.decode(self.cli(*words, "--json", code=code).stdout)

    def enqueue(self, arguments: str, task: str = "charge") -> str:
        """The id of a new job."""
        found: str = self.json("enqueue", "shop:app", task, arguments)["id"]
        return found

    def work(self) -> None:
        """Run all jobs to their ends."""
        self.app.run_until_idle()
        self.app.close()

    def dead_letters(self, *cents: int) -> list[str]:
        """Ids of orders that were declined."""
        ids = [self.enqueue(f'{{"order_id": {i}, "cents": {n}}}') for i, n in enumerate(cents)]
        self.work()
        return ids


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///shop.db")
    monkeypatch.delenv("HOLDFAST_APP", raising=False)
    yield Shop(tmp_path)
    module = sys.modules.pop("shop", None)
    if module is not None:
        module.app.close()
