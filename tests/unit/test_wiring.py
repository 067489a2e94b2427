"""A URL names a store, or is refused in words that help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.wiring import _sqlite_parts, open_store, url_or_default


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
        ("postgresql://u:secret@host/db", "no postgresql store yet"),
        ("redis://:secret@host", "no redis store yet"),
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
