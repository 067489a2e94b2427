"""`holdfast serve` before it serves: who may reach it, and what is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.errors import ConfigError
from holdfast.ops.api import page_files
from holdfast.ops.api.serving import address_of, listen
from holdfast.ops.commands.dev import find_page
from holdfast.ops.extras import wanted
from tests.unit.ops.conftest import Shop


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "jobs.example.com", ""])
def test_other_addresses_than_this_machines_own_need_tokens(shop: Shop, host: str) -> None:
    done = shop.cli("serve", "shop:app", "--host", host, code=2)
    assert "needs --tokens FILE" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_tokens_file_that_cannot_be_read_stops_it(shop: Shop) -> None:
    done = shop.cli("serve", "shop:app", "--tokens", "none.toml", code=2)
    assert "none.toml" in done.stderr
    Path("bad.toml").write_text("[[token]]\nrole = 'king'\n")
    assert "bad.toml" in shop.cli("serve", "shop:app", "--tokens", "bad.toml", code=2).stderr


def test_a_port_that_is_taken_is_one_line(shop: Shop) -> None:
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        done = shop.cli("serve", "shop:app", "--port", str(port), code=2)
    assert f"cannot listen at 127.0.0.1, port {port}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_app_is_closed_also_where_the_server_could_not_begin(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[App] = []

    def close(app: App) -> None:
        closed.append(app)

    monkeypatch.setattr(App, "close", close)
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        shop.cli("serve", "shop:app", "--port", str(taken.getsockname()[1]), code=2)
    assert len(closed) == 1


def test_an_address_is_one_that_a_browser_can_open() -> None:
    with listen("127.0.0.1", 0) as there:
        port = there.getsockname()[1]
        assert address_of("127.0.0.1", there) == f"http://127.0.0.1:{port}/"
        assert address_of("0.0.0.0", there) == f"http://127.0.0.1:{port}/"
        assert address_of("::", there) == f"http://[::1]:{port}/"


def test_without_the_extra_it_says_what_to_type(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.ops.api")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = shop.cli("serve", "shop:app", code=2)
    line = "pip install 'holdfast[web]', or in a checkout pip install '.[web]'"
    assert done.stderr == f"Error: uvicorn is not installed: {line}\n"


def test_without_the_extra_dev_goes_on_without_a_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.ops.api")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert find_page(None) is None
    line = "pip install 'holdfast[web]', or in a checkout pip install '.[web]'"
    assert capsys.readouterr().err == f"no page    fastapi is not installed: {line}\n", (
        "in line with what dev says next"
    )


def test_dev_says_that_the_page_is_not_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(page_files, "FOLDER", tmp_path)
    assert find_page(None) is not None
    assert "no page    the page has not been built: run `make page`" in capsys.readouterr().err
    (tmp_path / "index.html").write_text("")
    assert find_page(None) is not None
    assert capsys.readouterr().err == ""


def test_a_package_that_is_no_part_of_the_extra_is_not_explained_away() -> None:
    with pytest.raises(ModuleNotFoundError), wanted("web"):
        raise ModuleNotFoundError("No module named 'mine'", name="mine")


def test_dev_takes_the_next_port_that_is_free_unless_it_is_told_one() -> None:
    first = find_page(None)
    assert first is not None
    with listen("127.0.0.1", first.port) as taken:
        taken.listen()
        second = find_page(None)
        assert second is not None
        assert second.port > first.port
        with pytest.raises(ConfigError, match="cannot listen"):
            find_page(first.port)
