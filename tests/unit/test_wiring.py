"""A URL names a store, or is refused in words that help."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.wiring import _sqlite_parts, open_store, shown, url_or_default


def test_without_a_url_the_environment_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    assert url_or_default(None) == "sqlite:///holdfast.db"
    monkeypatch.setenv("HOLDFAST_URL", "memory://")
    assert url_or_default(None) == "memory://"
    assert url_or_default("sqlite:///mine.db") == "sqlite:///mine.db"


def test_memory_stores_are_new_each_time_and_go_by_the_clock_given(clock: ManualClock) -> None:
    first, second = open_store("memory://", clock), open_store("memory:")
    assert isinstance(first, MemoryStore)
    assert first is not second
    before = first._now()
    clock.advance(60.0)
    assert first._now() - before == 60.0


@pytest.mark.parametrize(
    ("url", "path", "synchronous"),
    [
        ("sqlite:///shop.db", "shop.db", "FULL"),
        ("sqlite:///a%20folder/shop.db", "a folder/shop.db", "FULL"),
        ("sqlite:///{root}/deep/shop.db", "deep/shop.db", "FULL"),
        ("sqlite:///shop.db?synchronous=Normal", "shop.db", "NORMAL"),
    ],
)
def test_a_sqlite_url_is_a_path_and_nothing_is_created_before_the_first_use(
    url: str, path: str, synchronous: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = url.format(root=tmp_path)
    assert _sqlite_parts(url) == (tmp_path / path, synchronous)
    open_store(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://shop.db", "three slashes"),
        ("sqlite:///", "names no file"),
        ("sqlite:///shop.db?mode=ro", "the only option"),
        ("sqlite:///shop.db?synchronous=off", "synchronous must be one of"),
        ("memory://name", "has no name"),
        ("postgresql://u:secret@host/db?shema=x", "has no option 'shema'"),
        ("postgresql://u:secret@host/db?schema=a;b", "schema must be of letters"),
        ("postgresql://u:secret@host/db?synchronous_commit=no", "synchronous_commit must be one of on, off"),
        ("postgres://u:a#secret@host/db", "%23 for #"),
        ("postgresql://host/db?schema=a&schema=b", "given twice"),
        ("redis://:secret@host?prefix={x}", "prefix must be of letters"),
        ("redis://:secret@host?wait_replicas=many", "wait_replicas must be a number"),
        ("redis://:secret@host?wait_replicas=1.5", "wait_replicas must be a whole number"),
        ("redis://:secret@host?socket_timeout=5", "has no option 'socket_timeout'"),
        ("redis://host?password=secret&wait_s=-1", "wait_s must be a number"),
        ("postgresql://u:a@secret@host/db", "%40 for @"),
        ("redis://:a@secret@host/0", "%40 for @"),
        ("postgresql://u:secret", "must be (postgresql|redis)://user:password@host"),
        ("redis://u:secret", "must be (postgresql|redis)://user:password@host"),
        ("postgresql://u:se/secret?x=secret@host/db", "must be (postgresql|redis)://user:password@host"),
        ("postgresql://u:12/secret@host:1/db", "%2F for /"),
        ("postgresql://:12/secret@host:1/db", "%2F for /"),
        ("postgresql://u:12?secret@host/db", "%3F for ?"),
        ("postgresql://u:12?a=secret@host/db", "%3F for ?"),
        ("postgresql://u:12#secret", "%23 for #"),
        ("postgresql://u:12?secret", "must be name=value"),
        ("redis://:12/3@secret/0", "%2F for /"),
        ("redis://:sec/secret@host", "%2F for /"),
        ("redis://h/0?password=p@secret", "%40 for @"),
        ("postgresql://host/db?passwort=secret", "has no option 'passwort'"),
        ("postgresql://host/db?Secret1=secret", "has no option of this name"),
        ("redis://host?passwort=secret", "has no option 'passwort'"),
        ("redis://host?ssl_keyfile=secret", "has no option 'ssl_keyfile'"),
        ("rediss://host?ssl_keyword=secret", "has no option 'ssl_keyword'"),
        ("sqlite:///shop.db?passwort=secret", "the only option"),
        ("redis://host?prefix=", "prefix must be of letters"),
        ("postgresql://host/db?schema=", "schema must be of letters"),
        ("redis://host/0?db=zero", "db must be a number"),
        ("redis://host/-1", "the number of a database"),
        ("postgresql+psycopg://u:secret@host/db", r"leave out \+psycopg"),
        ("postgresql+asyncpg://u:secret@host/db", r"leave out \+asyncpg"),
        ("redis+sentinel://:secret@host", r"leave out \+sentinel"),
        ("redis://:secret@host/shop", "the number of a database"),
        ("redis://:secret@a,b/0", "more than one host"),
        ("postgresql:/u:secret@host/db", "must be one such as sqlite"),
        ("redis:u:secret@host", "must be one such as sqlite"),
        ("postgresql://u:sec ret@host/db", "cannot be read"),
        ("postgresql://u:%zzsecret@host/db", "cannot be read"),
        ("host=h password=secret dbname=x", "must be one such as sqlite"),
        ("mysql://u:secret@host/db", "must be one such as sqlite"),
        ("shop.db", "must be one such as sqlite"),
        (7, "must be text"),
        ("sqlite://[x/a.db", "cannot be read"),
        ("http://[", "cannot be read"),
        ("redis://:secret@[host", "cannot be read"),
        ("sqlite:///a%00b.db", "names no file"),
        ("sqlite:///a%0Ab.db", "names no file"),
    ],
)
def test_a_url_that_names_no_store_is_refused_without_its_password(url: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


class Asked:
    """Stands in for a store: what it was made with."""

    def __init__(self, url: str, **options: object) -> None:
        self.url = url
        self.options = options


@pytest.mark.parametrize(
    ("url", "given", "options"),
    [
        ("postgresql://u@host/db", "postgresql://u@host/db", {"schema": ""}),
        ("postgres:///db?schema=jobs", "postgres:///db", {"schema": "jobs"}),
        (
            "postgresql://u:p%23@a:1,b:2/db?sslmode=require&schema=s&synchronous_commit=off&sslrootcert=/a+b",
            "postgresql://u:p%23@a:1,b:2/db?sslmode=require&synchronous_commit=off&sslrootcert=/a%2Bb",
            {"schema": "s"},
        ),
        ("redis://host", "redis://host", {"prefix": "holdfast", "wait_replicas": 0, "wait_s": 1.0}),
        (
            "rediss://:p@host:1/2?prefix=shop&wait_replicas=1&wait_s=0.5&ssl_cert_reqs=none",
            "rediss://:p@host:1/2?ssl_cert_reqs=none",
            {"prefix": "shop", "wait_replicas": 1, "wait_s": 0.5},
        ),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2", {"prefix": "holdfast"}),
        ("unix://:p@/run/redis.sock", "unix://:p@/run/redis.sock", {"prefix": "holdfast"}),
        ("redis://:p@[::1]:1/2", "redis://:p@[::1]:1/2", {"prefix": "holdfast"}),
        ("postgresql://%2Frun%2Fpg/db", "postgresql://%2Frun%2Fpg/db", {"schema": ""}),
        ("postgresql://u@h/db?options=-c a=b", "postgresql://u@h/db?options=-c%20a%3Db", {"schema": ""}),
    ],
)
def test_a_servers_url_gives_its_store_the_options_and_its_driver_the_rest(
    url: str, given: str, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, kind in (("postgres", "PostgresStore"), ("redis", "RedisStore")):
        monkeypatch.setitem(sys.modules, f"holdfast.stores.{name}", SimpleNamespace(**{kind: Asked}))
    store: Any = open_store(url)
    assert store.url == given
    assert {name: store.options[name] for name in options} == options


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("postgresql://u:secret@host/db", "psycopg", "postgres"),
        ("redis://:secret@host", "redis", "redis"),
    ],
)
def test_a_missing_package_is_told_with_the_line_to_type(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"pip install 'holdfast\[{extra}\]'") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__, "one line, and no chained traceback"


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("postgresql://u:secret@host/db", "postgresql://u:…@host/db"),
        ("postgresql://u:se/secret@host/db", "postgresql://…"),
        ("postgresql://u:se#secret@a:1,b:2/db", "postgresql://…"),
        ("postgresql://u:sec@ret@host/db", "postgresql://u:…@host/db"),
        ("postgresql://u@host/db?password=secret&sslmode=require", "postgresql://u@host/db?password=…&sslmode=require"),
        ("redis://:secret@host/0", "redis://:…@host/0"),
        ("redis://h:1?db=2&password=psecret&", "redis://h:1?db=2&password=…&"),
        ("redis://h?passwort=secret&Secret=1&secret", "redis://h?passwort=…&…&…"),
        ("postgresql://u:12/secret@h/db", "postgresql://…"),
        ("postgresql://u:12#secret", "postgresql://…"),
        ("redis://:se?secret@host/0", "redis://…"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("redis://u:secret", "redis://…"),
        ("postgresql://u:se/secret?x=secret@host/db", "postgresql://…"),
        ("host=h password='a secret' dbname=x", "…"),
        ("postgresql:/u:secret@h/db", "…"),
        ("sqlite:////var/lib/a@b.db", "sqlite:////var/lib/a@b.db"),
        ("memory://", "memory://"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, seen: str) -> None:
    assert shown(url) == seen
    assert "secret" not in shown(url)
