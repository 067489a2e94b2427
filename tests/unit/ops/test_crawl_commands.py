"""`holdfast crawl`: a site is crawled to its end, stopped and gone on with, looked at, exported and forgotten."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.ops.commands.crawl_run import run
from holdfast.testing.site import Site, SiteProcess
from tests.unit.crawled import begun, crawl_report, crawling, domain, page
from tests.unit.ops.conftest import Shop

SECRET = "https://ann:canary-53@example.org/?token=canary-53"
CRAWLER = """
from holdfast import App
from holdfast.crawl import Crawler

app = App("sqlite:///shop.db")
crawler = Crawler(app, name="products", robots=False, allow_private=True, per_domain=8)


@crawler.page("**", expect="h1")
def product(page):
    yield {"name": page.text("h1")}
    yield from page.links()
"""


@pytest.fixture(scope="module")
def site() -> Iterator[SiteProcess]:
    with SiteProcess(Site(pages=40, links=3, faults={"not-found": 0.1, "disallowed": 0.05})) as process:
        yield process


def lines(path: str) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def crawled(shop: Shop, site: SiteProcess, *words: str, **options: Any) -> Any:
    return shop.json("crawl", site.url, "--allow-private", "--per-domain", "16", *words, **options)


def ends(site: SiteProcess) -> dict[str, int]:
    """How many pages of the site end in which way."""
    kinds = [site.site.plan(n).kind for n in range(site.site.pages)]
    return {"done": kinds.count("ok"), "dead": kinds.count("not-found"), "skipped": kinds.count("disallowed")}


# ---------------------------------------------------------------- run


def test_a_site_is_crawled_to_its_end_without_any_code(shop: Shop, site: SiteProcess) -> None:
    wanted = ends(site)
    assert all(wanted.values())
    args = ["crawl", site.url, "--depth", "all", "--out", "pages.jsonl", "--allow-private", "--name", "all"]
    done = shop.cli(*args)
    text = done.stdout
    assert f"finished: {wanted['done']} pages done, {wanted['dead']} given up, {wanted['skipped']} skipped" in text
    assert f"{wanted['done']} new in {shop.folder}/pages.jsonl" in text
    assert f"{wanted['dead']} × BadStatus: " in text
    assert "holdfast dlq --task crawl:all" in text
    items = lines("pages.jsonl")
    assert len(items) == len({item["url"] for item in items}) == wanted["done"]
    home = next(item for item in items if item["depth"] == 0)
    assert home.pop("bytes") > 100
    assert home.pop("links") > 3
    place = f"{site.url}/"
    assert home == {"url": place, "status": 200, "title": "Product 0", "description": "", "depth": 0}
    assert shop.cli("dlq", "--task", "crawl:all").stdout.count("BadStatus") == 1

    again = shop.cli(*args).stdout
    assert "It was finished before" in again
    assert "holdfast crawl remove all" in again
    assert len(lines("pages.jsonl")) == wanted["done"]


def test_json_is_one_object_with_the_summary_and_the_causes(shop: Shop, site: SiteProcess) -> None:
    wanted = ends(site)
    found = crawled(shop, site, "--depth", "all", "--out", "pages.db")
    assert found.pop("took_s") > 0
    (group,) = found.pop("given_up")
    assert (group["count"], group["failure_type"]) == (wanted["dead"], "permanent")
    assert found == wanted | {
        "name": site.url.removeprefix("http://"),
        "is_finished": True,
        "pending": 0,
        "done_here": wanted["done"],
        "items_here": wanted["done"],
        "not_followed": {},
        "was_finished": False,
        "output": str(shop.folder / "pages.db"),
    }


def test_the_depth_is_bounded(shop: Shop, site: SiteProcess) -> None:
    near = crawled(shop, site, "--depth", "1", "--out", "near.jsonl", "--name", "near")
    assert {item["depth"] for item in lines("near.jsonl")} == {0, 1}
    assert list(near["not_followed"]) == ["too deep"]
    home = crawled(shop, site, "--depth", "0", "--name", "home")
    assert (home["done"], home["is_finished"]) == (1, True)


@pytest.mark.parametrize(("words", "depth"), [([], 3), (["--depth", "7"], 7), (["--depth", "all"], None)])
def test_a_depth_of_three_is_the_default_and_all_is_no_bound(words: list[str], depth: int | None) -> None:
    assert run.make_context("run", ["https://example.org", *words]).params["depth"] == depth


def test_items_on_standard_output_have_it_for_themselves(shop: Shop, site: SiteProcess) -> None:
    done = shop.cli("crawl", site.url, "--depth", "0", "--out", "-", "--allow-private")
    (item,) = map(json.loads, done.stdout.splitlines())
    assert item["title"] == "Product 0"
    assert "finished: 1 page done" in done.stderr


def test_a_missing_selector_is_a_structural_failure_and_the_kept_page_is_pointed_to(
    shop: Shop, site: SiteProcess
) -> None:
    args = ["--depth", "0", "--allow-private", "--expect", "h1", "--expect", ".price-tag", "--name", "x"]
    done = shop.cli("crawl", site.url, *args, code=1)
    assert "nothing matches .price-tag" in done.stdout
    assert "holdfast crawl replay 1:" in done.stdout


def test_a_private_address_is_refused_unless_it_is_allowed(shop: Shop, site: SiteProcess) -> None:
    found = shop.json("crawl", site.url, "--retries", "0", "--no-robots", code=1)
    assert (found["done"], found["dead"], found["given_up"][0]["error"]) == (0, 1, "holdfast.errors.PageRefused")


def test_a_crawler_of_the_users_runs_with_its_own_handlers_and_settings(shop: Shop, site: SiteProcess) -> None:
    (shop.folder / "crawling.py").write_text(CRAWLER)
    target = ["--app", "crawling:crawler"]
    try:
        for words, told in (
            (["--depth", "2"], "--depth: crawling:crawler has its own settings"),
            (["--url", "sqlite:///other.db"], "--url: crawling:crawler has its own store"),
        ):
            assert told in shop.cli("crawl", site.url, *target, *words, code=2).stderr
        assert "has not begun yet: give it a URL" in shop.cli("crawl", "run", *target, code=2).stderr
        found = shop.json("crawl", site.url, *target, "--out", "names.jsonl")
        wanted = ends(site)
        done = wanted["done"] + wanted["skipped"]  # it does not ask for robots.txt
        assert (found["name"], found["done"], found["dead"]) == ("products", done, wanted["dead"])
        assert {"name": "Product 0"} in lines("names.jsonl")
        again = shop.json("crawl", "run", *target)
        assert (again["was_finished"], again["done_here"]) == (True, 0)
        (view,) = shop.json("crawl", "list", *target)["items"]
        assert view["name"] == "products"
    finally:
        sys.modules.pop("crawling").app.close()


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["example.org"], 2, "'example.org' is no URL of a page; did you mean https://example.org/?"),
        (["lst"], 2, "No such command 'lst'"),
        (["--depth", "3"], 2, "crawl what? Give a URL"),
        (["https://example.org", "--depth", "deep"], 2, "'deep' is no depth; write a whole number, or all"),
        (["https://example.org", "--rate", "often"], 2, "often"),
        (["https://example.org", "--expect", "h1["], 2, "h1["),
        (["https://example.org", "--app", "shop:not_an_app"], 2, "it is a int, not a Crawler or an App"),
        (["https://example.org", "--out", "pages.csv"], 2, "out='pages.csv': must end in one of .jsonl"),
        (["run", "--name", "nobody"], 2, "the crawl nobody has not begun yet: give it a URL"),
        (["show", "nobody"], 1, "there is no crawl 'nobody'; there are none"),
        (["remove", "nobody", "--yes"], 1, "there is no crawl 'nobody'"),
        (["export", "nobody"], 1, "there is no crawl 'nobody'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(shop: Shop, words: list[str], code: int, line: str) -> None:
    shop.enqueue('{"order_id": 1}')
    assert line in shop.cli("crawl", *words, code=code).stderr


# ---------------------------------------------------------------- signals


def start(shop: Shop, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "holdfast", "crawl", *words, "--allow-private", "--no-robots", "--name", "x"]
    return subprocess.Popen(command, cwd=shop.folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def await_pages(shop: Shop, process: subprocess.Popen[str]) -> None:
    """Until the first items are written: a real process, on real time."""
    path, clock = shop.folder / "out.jsonl", SystemClock()
    while not path.exists() or not path.stat().st_size:
        assert process.poll() is None, process.communicate()
        clock.sleep(0.02)


def test_ctrl_c_finishes_what_is_active_and_the_same_command_goes_on(shop: Shop) -> None:
    with SiteProcess(Site(pages=150, links=3, latency_s=0.05)) as site:
        words = [site.url, "--depth", "all", "--out", "out.jsonl"]
        first = start(shop, *words, "--per-domain", "4")
        await_pages(shop, first)
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=20)
        assert first.returncode == 3, err
        assert "press again to leave at once" in err
        assert "run the same command again to go on" in out
        assert 0 < len(lines("out.jsonl")) < 150
        (view,) = shop.json("crawl")["items"]
        assert (view["state"], view["processes"]) == ("stopped", [])
        second = start(shop, *words, "--per-domain", "32", "--json")
        out, err = second.communicate(timeout=20)
        assert (second.returncode, err) == (0, "")
        assert msgspec.json.decode(out)["done"] == 150
        requests = [request.path for request in site.log() if request.path.startswith("/p/")]
    assert len(requests) == len(set(requests)) == 149
    assert len({item["url"] for item in lines("out.jsonl")}) == len(lines("out.jsonl")) == 150


def test_a_second_signal_leaves_at_once(shop: Shop, site: SiteProcess) -> None:
    process = start(shop, site.url, site.url_as("slow", delay_s=30), "--depth", "0", "--out", "out.jsonl")
    await_pages(shop, process)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    while "press again" not in (line := process.stderr.readline()):
        assert line
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 143


def test_a_reader_that_has_enough_ends_the_crawl(shop: Shop, site: SiteProcess) -> None:
    process = start(shop, site.url, "--depth", "all", "--out", "-", "--rate", "4/second")
    assert process.stdout is not None
    assert "Product 0" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(20) == 1
    assert process.stderr is not None
    with process.stderr as told:
        assert "Error" not in told.read()
    assert shop.json("crawl")["items"][0]["state"] == "stopped"


# ---------------------------------------------------------------- looking, exporting, removing


def fill(shop: Shop, *, is_running: bool = False) -> None:
    app = shop.app
    app.bridge.run(begun(app, "shop", SECRET))
    app.bridge.run(app.store.enqueue([page("shop", f"https://example.org/{n}") for n in range(3)]))
    if is_running:
        held = domain("example.org", fetched=1200, held_s=28.0, why="it answered 429", latency_s=0.25)
        report = crawl_report("shop", held, output=SECRET, rate_per_s=1.5)
        app.bridge.run(crawling(app, report))
    app.close()


def test_crawls_are_listed_and_shown_without_secrets(shop: Shop) -> None:
    fill(shop, is_running=True)
    head, _, row = shop.cli("crawl").stdout.splitlines()
    assert head.split()[:4] == ["crawl", "state", "done", "pending"]
    assert row.split()[:4] == ["shop", "running", "0", "3"]
    text = shop.cli("crawl", "show", "shop").stdout
    for part in ("https://ann:[redacted]@example.org", "1.5 pages/s, ETA 2s", "for 28s: it answered 429", "1,200"):
        assert part in text
    (listed,) = shop.json("crawl", "list")["items"]
    assert (listed["eta_s"], listed["pending"], listed["processes"][0]["host"]) == (2.0, 3, "mill")
    assert shop.json("crawl", "show", "shop")["name"] == "shop"
    for words in (["crawl", "--json"], ["crawl", "show", "shop"], ["crawl", "show", "shop", "--json"]):
        assert "canary" not in shop.cli(*words).stdout


def test_without_crawls_it_says_how_to_get_one(shop: Shop) -> None:
    shop.enqueue('{"order_id": 1}')
    assert "holdfast crawl https://example.org starts one" in shop.cli("crawl").stderr
    assert shop.json("crawl") == {"items": []}


def test_a_removal_asks_first_and_forgets_the_crawl(shop: Shop) -> None:
    fill(shop)
    asked = shop.cli("crawl", "remove", "shop", code=1, text="n\n")
    assert "Delete 3 pages of the crawl shop, 3 of them pending, for good?" in asked.stderr
    assert "nothing was removed" in asked.stderr
    assert shop.json("crawl", "remove", "shop", "--yes") == {"removed": 3}
    assert shop.json("crawl") == {"items": []}


def test_a_crawl_that_runs_is_not_removed(shop: Shop) -> None:
    fill(shop, is_running=True)
    assert "runs in process mill 7: stop it first" in shop.cli("crawl", "remove", "shop", "-y", code=1).stderr
    assert shop.json("crawl", "show", "shop")["pending"] == 3


def test_an_export_has_all_items_of_the_store(shop: Shop, site: SiteProcess) -> None:
    name = crawled(shop, site, "--depth", "1")["name"]
    done = shop.cli("crawl", "export", name)
    items = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(items) > 3
    exported = shop.json("crawl", "export", name, "--out", "all.jsonl")
    assert exported == {"file": os.path.abspath("all.jsonl"), "pages": len(items), "new": len(items)}
    assert sorted(lines("all.jsonl"), key=str) == sorted(items, key=str)
    told = shop.cli("crawl", "export", name, "--out", "all.jsonl").stdout
    assert told == f"{len(items)} pages in {os.path.abspath('all.jsonl')}, 0 of them new\n"


@pytest.mark.parametrize("words", [("crawl", "https://example.org"), ("worker", "mine:app")])
def test_without_the_extra_one_line_says_what_to_type(
    shop: Shop, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("holdfast.crawl", "mine"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    (shop.folder / "mine.py").write_text("from holdfast.crawl import Crawler\n")
    done = shop.cli(*words, code=2)
    line = "a crawl needs the package aiohttp: pip install 'holdfast[crawl]', or in a checkout pip install '.[crawl]'"
    where = f" ({shop.folder / 'mine.py'}, line 1)" if words[0] == "worker" else ""
    assert done.stderr == f"Error: {'cannot load mine:app: ' if where else ''}{line}{where}\n"
