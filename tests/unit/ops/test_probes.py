"""Ready-made checks, against what they are made for."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from holdfast import App
from holdfast.errors import ConfigError
from holdfast.health import database, redis, site
from holdfast.runtime.checks import CheckResult
from tests.receiver import OK, Receiver, status
from tests.servers import free_port


def checked(look: Any) -> CheckResult:
    app = App("memory://")
    app.health_check("it", look, timeout=30.0)
    result = app.health().checks["it"]
    app.close()
    return result


def test_a_redis_server_answers(redis_url: str) -> None:
    assert checked(redis(redis_url)).status == "ok"


def test_a_database_answers(postgres_url: str) -> None:
    assert checked(database(postgres_url)).status == "ok"


@pytest.mark.parametrize(("probe", "scheme"), [(redis, "redis"), (database, "postgresql")])
def test_a_server_that_is_not_there_fails_without_its_password(probe: Any, scheme: str) -> None:
    result = checked(probe(f"{scheme}://ada:hunter2@127.0.0.1:{free_port()}/0"))
    assert result.status == "failed"
    assert "hunter2" not in str(result.error)


def test_a_file_is_a_database_only_when_it_is_there(tmp_path: Path) -> None:
    look = database(f"sqlite:///{tmp_path}/shop.db")
    assert checked(look).status == "failed"
    assert list(tmp_path.iterdir()) == [], "a look makes no file"
    app = App(f"sqlite:///{tmp_path}/shop.db")
    app.stats()
    app.close()
    assert checked(look).status == "ok"
    (tmp_path / "shop.db").write_bytes(b"no database" * 1000)
    assert checked(look).status == "failed"


@pytest.mark.parametrize(
    ("answers", "methods", "error"),
    [
        ([OK], ["HEAD"], None),
        ([status(302, Location="/login")], ["HEAD"], None),
        ([status(405), OK], ["HEAD", "GET"], None),
        ([status(404)], ["HEAD"], "ConnectionError: http://127.0.0.1:{port}/… answered 404"),
        ([status(405), status(500)], ["HEAD", "GET"], "ConnectionError: http://127.0.0.1:{port}/… answered 500"),
    ],
)
def test_a_site_answers(answers: list[Any], methods: list[str], error: str | None) -> None:
    with Receiver(*answers) as receiver:
        result = checked(site(receiver.url()))
    assert [asked.method for asked in receiver.asked] == methods
    assert result.error == (error and error.format(port=receiver.port))


def test_a_site_that_is_not_there_fails() -> None:
    result = checked(site(f"http://127.0.0.1:{free_port()}/"))
    assert (result.status, "ConnectionRefusedError" in str(result.error)) == ("failed", True)


@pytest.mark.parametrize(
    ("probe", "url"),
    [(redis, "http://a"), (database, "mysql://ada:hunter2@h/x"), (database, 7), (site, "ftp://a"), (site, "")],
)
def test_a_url_of_something_else_is_refused(probe: Any, url: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        probe(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("probe", "url", "package", "extra"),
    [(redis, "redis://h", "redis", "redis"), (database, "postgresql://h/x", "psycopg", "postgres")],
)
def test_a_missing_package_is_named(
    probe: Any, url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def missing(name: str) -> Any:
        if name == package:
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr("holdfast.ops.probes.import_module", missing)
    with pytest.raises(
        ConfigError, match=rf"pip install 'holdfast\[{extra}\]', or in a checkout pip install '\.\[{extra}\]'$"
    ):
        probe(url)
