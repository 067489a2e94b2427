"""The site as its clients meet it, over plain sockets, and its plan and log as tests ask them."""

from __future__ import annotations

import gzip
import http.client
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError
from holdfast.testing import ManualClock
from holdfast.testing.site import (
    FATES,
    Burst,
    Kind,
    Request,
    Site,
    SiteProcess,
    early,
    most_in_flight,
    read_log,
    requests_by_path,
    starts_in_any_window,
)
from holdfast.testing.site.fates import SHOWS_ITS_LINKS
from holdfast.testing.site.host import Host
from holdfast.testing.site.pages import Pages

CLOCK = SystemClock()
SOON_S = 5.0
MIXED: dict[Kind, float] = dict.fromkeys((kind for kind in FATES if kind != "ok"), 0.025)


@pytest.fixture(scope="module")
def running() -> Iterator[SiteProcess]:
    with SiteProcess(Site(pages=300, faults={"redirect": 0.1, "changed": 0.1, "disallowed": 0.1})) as found:
        yield found


class Reply:
    """One answer, without redirects followed."""

    def __init__(self, url: str, method: str = "GET") -> None:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=SOON_S)
        connection.request(method, url.removeprefix(f"http://{parts.netloc}") or "/")
        reply = connection.getresponse()
        self.status = reply.status
        self.headers = reply.headers
        try:
            self.body = reply.read()
        finally:
            connection.close()


def plug_to(site: SiteProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(site.url).port or 0), timeout=SOON_S)


def get(site: SiteProcess, url: str, more: str = "") -> bytes:
    path = url.removeprefix(site.url)
    return f"GET {path} HTTP/1.1\r\nHost: site\r\n{more}\r\n".encode()


def hrefs(body: bytes, base: str) -> set[str]:
    return {urljoin(base, found.decode()) for found in re.findall(rb'href="([^"]+)"', body)}


# ---- the plan


def test_the_same_settings_make_the_same_site_and_another_seed_another_one() -> None:
    one, same, other = (Site(pages=200, seed=seed, faults=MIXED) for seed in (1, 1, 2))

    plans = [[site.plan(page) for page in range(200)] for site in (one, same, other)]
    assert plans[0] == plans[1] != plans[2]
    assert [one.links_of(page) for page in range(200)] == [same.links_of(page) for page in range(200)]


def test_fates_come_in_about_the_shares_that_were_asked_for() -> None:
    site = Site(pages=5000, faults={"not-found": 0.1, "slow": 0.02})

    counts = Counter(site.plan(page).kind for page in range(5000))
    assert 400 < counts["not-found"] < 600
    assert 60 < counts["slow"] < 140
    assert counts.keys() == {"ok", "not-found", "slow"}


@pytest.mark.parametrize("hosts", [1, 5])
def test_every_page_is_found_from_the_first_one_whatever_the_faults_are(hosts: int) -> None:
    site = Site(pages=2000, hosts=hosts, faults=MIXED, host_faults={4: {"error": 1.0}} if hosts > 4 else {})
    found, left = {0}, [0]
    while left:
        page = left.pop()
        if site.plan(page).kind in SHOWS_ITS_LINKS:
            new = set(site.links_of(page)) - found
            found |= new
            left += new

    assert found == set(range(2000))
    assert max(len(site.links_of(page)) for page in range(2000)) <= 40


def test_a_redirect_leads_to_a_fine_page_of_its_own_host() -> None:
    site = Site(pages=500, hosts=3, faults={"redirect": 0.5, "error": 0.4})

    for page in site.pages_with("redirect"):
        fate = site.plan(page)
        assert site.plan(fate.to).kind == "ok"
        assert site.host_of(fate.to) == site.host_of(page)
        assert site.item(page) == site.item(fate.to)
    assert {site.plan(page).status for page in site.pages_with("redirect")} == {301, 302, 303, 307, 308}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pages": 0}, "pages=0"),
        ({"hosts": 9, "pages": 8}, "hosts=9"),
        ({"faults": {"tired": 0.1}}, "no fate is called 'tired'"),
        ({"faults": {"slow": 0.6, "gone": 0.5}}, "more than all pages"),
        ({"faults": {"slow": 1.5}}, "at most 1"),
        ({"host_faults": {1: {}}}, "1 hosts"),
        ({"retry_after_s": (3, 1)}, "the larger one last"),
        ({"latency_s": -1}, "latency_s=-1"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Site(**settings)  # type: ignore[arg-type]


# ---- pages


def test_a_page_shows_its_item_and_its_links(running: SiteProcess) -> None:
    site = running.site
    page = site.pages_with("ok")[7]

    reply = Reply(running.url_of(page))

    text, item = reply.body.decode(), site.item(page)
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert f"<h1>{item['name']}</h1>" in text
    assert f'class="price">{item["price"]}<' in text
    assert f'class="sku">{item["sku"]}<' in text
    assert hrefs(reply.body, running.url_of(page)) == {running.url_of(target) for target in site.links_of(page)}
    assert 1_500 < len(reply.body) < 5_000


def test_hosts_have_ports_of_their_own_and_link_to_each_other() -> None:
    with SiteProcess(Site(pages=40, hosts=3)) as site:
        assert len(set(site.urls)) == 3
        assert Reply(site.url_of(4)).status == 200
        assert Reply(f"{site.urls[0]}/p/4").status == 404  # it is on another one
        assert hrefs(Reply(site.url_of(4)).body, site.url_of(4)) == {
            site.url_of(page) for page in site.site.links_of(4)
        }
        assert [stats.requests for stats in site.stats()] == [1, 2, 0]
        assert [stats.distinct for stats in site.stats()] == [0, 1, 0]


@pytest.mark.parametrize(
    ("kind", "status"), [("not-found", 404), ("gone", 410), ("forbidden", 403), ("error", 500), ("challenge", 403)]
)
def test_what_is_refused_for_good_is_refused_every_time(running: SiteProcess, kind: Kind, status: int) -> None:
    assert [Reply(running.url_as(kind)).status for _ in range(4)] == [status] * 4


def test_a_page_is_unavailable_so_many_times_and_then_fine(running: SiteProcess) -> None:
    url = running.url_as("unavailable", times=3)

    assert [Reply(url).status for _ in range(5)] == [503, 503, 503, 200, 200]
    assert Reply(running.url_as("unavailable", "another")).status == 503


@pytest.mark.parametrize("kind", ["limited-seconds", "limited-date", "unavailable-after"])
def test_retry_after_is_kept_up_while_it_lasts_and_those_who_come_early_are_found_out(
    running: SiteProcess, kind: Kind
) -> None:
    url = running.url_as(kind, "early", retry_after_s=60)
    first, second = Reply(url), Reply(url)

    assert first.status == second.status == FATES[kind].status
    told = first.headers["Retry-After"]
    wait_s = parsedate_to_datetime(told).timestamp() - CLOCK.now() if kind == "limited-date" else float(told)
    assert 55 < wait_s <= 61
    requests = [request for request in running.log() if request.url == url]
    assert [request.what for request in requests] == [kind, "early"]
    assert early(requests) == [requests[1]]


@pytest.mark.parametrize(("kind", "told_early"), [("limited-seconds", 3.5), ("limited-date", 3.0)])
def test_after_retry_after_a_page_is_fine_and_early_requests_do_not_count(kind: Kind, told_early: float) -> None:
    clock, site = ManualClock(), Site(pages=1)
    host = Host(site, 0, domain="a:1", port=1, made=Pages(site, ["http://a:1"]), clock=clock)
    path = f"/as/{kind}/1?retry_after_s=3&times=2"

    first = host.ask(path)
    clock.advance(2.5)
    second = host.ask(path)
    assert (first.status, first.until, second.status, second.until) == (429, 3.0, 429, told_early)
    clock.advance(second.until - clock.monotonic())
    assert host.ask(path).status == 429
    clock.advance(3.0)
    assert host.ask(path).status == 200


def test_a_limit_may_say_nothing_of_when_to_come_again(running: SiteProcess) -> None:
    url = running.url_as("limited-silent")
    first = Reply(url)

    assert (first.status, first.headers["Retry-After"], Reply(url).status) == (429, None, 200)


# ---- answers that are none


def test_a_reset_comes_in_the_middle_of_the_page(running: SiteProcess) -> None:
    with plug_to(running) as plug:
        plug.sendall(get(running, running.url_as("reset")))
        assert plug.recv(65_536).startswith(b"HTTP/1.1 200 OK")
        with pytest.raises(ConnectionResetError):
            plug.recv(65_536)


@pytest.mark.parametrize("kind", ["truncated", "truncated-chunked"])
def test_a_truncated_page_ends_before_it_said_it_would(running: SiteProcess, kind: Kind) -> None:
    with pytest.raises(http.client.IncompleteRead):
        Reply(running.url_as(kind))


def test_a_silent_page_never_answers_and_is_under_way_until_the_client_goes(running: SiteProcess) -> None:
    with plug_to(running) as plug:
        plug.sendall(get(running, running.url_as("silent")))
        plug.settimeout(0.1)
        with pytest.raises(TimeoutError):
            plug.recv(1)
        assert running.stats()[0].in_flight == 1
    assert eventually(lambda: running.stats()[0].in_flight == 0)


def test_an_endless_page_goes_on_until_the_client_goes(running: SiteProcess) -> None:
    with plug_to(running) as plug:
        plug.sendall(get(running, running.url_as("endless", size=1000, delay_s=0)))
        got = 0
        while got < 1_000_000:
            got += len(plug.recv(65_536))
    assert eventually(lambda: running.stats()[0].in_flight == 0)


def test_a_page_that_drips_keeps_its_pauses(running: SiteProcess) -> None:
    with plug_to(running) as plug:
        plug.sendall(get(running, running.url_as("endless", size=1, delay_s=3600)))
        assert plug.recv(65_536).startswith(b"HTTP/1.1 200 OK")
        plug.settimeout(0.1)
        with pytest.raises(TimeoutError):
            while plug.recv(65_536):
                pass


def test_a_huge_page_is_as_long_as_it_says(running: SiteProcess) -> None:
    assert len(Reply(running.url_as("huge", size=3_000_001)).body) == 3_000_001


def test_a_slow_page_comes_late(running: SiteProcess) -> None:
    began = CLOCK.monotonic()
    assert Reply(running.url_as("slow", delay_s=0.15)).status == 200
    assert CLOCK.monotonic() - began >= 0.15


# ---- bodies


def test_packed_pages_unpack_to_the_page_and_a_bomb_to_a_thousand_times_its_size(running: SiteProcess) -> None:
    page = Reply(running.url_as("gzip"))
    bomb = Reply(running.url_as("gzip-bomb", size=5_000_000))

    assert page.headers["Content-Encoding"] == bomb.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(page.body) == Reply(f"{running.url}/").body
    assert len(gzip.decompress(bomb.body)) == 5_000_000
    assert len(bomb.body) < 10_000


def test_a_page_with_the_wrong_charset_is_not_what_it_says() -> None:
    with SiteProcess(Site(pages=30, faults={"wrong-charset": 1.0})) as site:
        reply = Reply(site.url_of(7))

    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert site.site.item(7)["name"] == "Crème brûlée 7"
    assert "Crème brûlée 7" in reply.body.decode("cp1252")
    with pytest.raises(UnicodeDecodeError):
        reply.body.decode("utf-8")


def test_a_changed_page_has_its_product_but_no_price_class(running: SiteProcess) -> None:
    page = running.site.pages_with("changed")[0]
    text = Reply(running.url_of(page)).body.decode()

    assert running.site.item(page)["price"] in text
    assert 'class="price"' not in text


def test_other_content_is_no_html_and_a_challenge_says_so_in_its_headers(running: SiteProcess) -> None:
    assert Reply(running.url_as("other-type")).headers["Content-Type"] == "application/pdf"
    assert Reply(running.url_as("challenge")).headers["CF-Mitigated"] == "challenge"


# ---- redirects and traps


def followed(url: str, most: int) -> list[str]:
    """The URLs that redirects lead through, at most so many."""
    found = [url]
    while len(found) <= most and (target := Reply(found[-1]).headers["Location"]):
        found.append(urljoin(found[-1], target))
    return found


def test_redirects_lead_where_the_plan_says(running: SiteProcess) -> None:
    site = running.site
    page = site.pages_with("redirect")[3]

    assert Reply(running.url_of(page)).status == site.plan(page).status
    assert followed(running.url_of(page), 5) == [running.url_of(page), running.url_of(site.plan(page).to)]


def test_loops_go_round_and_chains_come_to_an_end_after_so_many_hops(running: SiteProcess) -> None:
    loop = followed(running.url_as("redirect-loop"), 9)
    chain = followed(running.url_as("redirect-chain", hops=7), 20)

    assert len(loop) == 10
    assert len(set(loop)) == 3
    assert len(chain) == len(set(chain)) == 8
    assert Reply(chain[-1]).status == 200


def test_a_login_page_stands_in_front_of_a_page(running: SiteProcess) -> None:
    door = followed(running.url_as("login"), 3)[-1]

    assert door == f"{running.url}/login?next=/as/login/1"
    assert b'type="password"' in Reply(door).body


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no 127.0.0.2")
def test_who_follows_a_redirect_to_another_host_is_seen_there(running: SiteProcess) -> None:
    there = followed(running.url_as("redirect-away"), 3)[-1]

    assert there.startswith("http://127.0.0.2:")
    assert running.log()[-1].url == there


@pytest.mark.parametrize("kind", ["calendar", "path-trap", "session-trap"])
def test_a_trap_leads_on_for_ever(running: SiteProcess, kind: Kind) -> None:
    base = running.url_as(kind)
    seen: set[str] = set()
    for _ in range(30):
        deeper = {url for url in hrefs(Reply(base).body, base) if f"/{kind}/" in urlsplit(url).path} - seen - {base}
        assert deeper
        seen.add(base)
        base = (
            max(deeper, key=lambda url: [int(part) for part in re.findall(r"\d+", url)][-2:])
            if (kind == "calendar")
            else deeper.pop()
        )


def test_paths_that_are_none_of_its_own_are_not_found(running: SiteProcess) -> None:
    for path in ("/p/300", "/p/-1", "/p/x", "/p/0", "/p/٣", "/nowhere", "/calendar/1/x/y", "/loop/1", "/as/tired/1"):
        quoted = "".join(char if char.isascii() else "%D9%A3" for char in path)
        assert Reply(f"{running.url}{quoted}").status == 404
    assert Reply(running.url_as("slow", delay_s=float("nan"))).status == 404


# ---- robots, limits, outages


def test_robots_txt_disallows_what_the_plan_calls_disallowed(running: SiteProcess) -> None:
    page = running.site.pages_with("disallowed")[0]

    assert b"Disallow: /private/" in Reply(f"{running.url}/robots.txt").body
    assert urlsplit(running.url_of(page)).path == f"/private/{page}"
    assert Reply(running.url_of(page)).status == 200  # it is there: whoever asks is in the log
    assert running.log()[-1].what == "disallowed"


def test_robots_txt_may_ask_for_a_delay_or_be_broken() -> None:
    with SiteProcess(Site(pages=1, crawl_delay_s=1.5)) as site:
        assert b"Crawl-delay: 1.5" in Reply(f"{site.url}/robots.txt").body
    with SiteProcess(Site(pages=1, robots_status=500)) as site:
        assert Reply(f"{site.url}/robots.txt").status == 500


def test_more_than_so_many_starts_a_second_are_refused() -> None:
    with SiteProcess(Site(pages=50, burst=Burst(per_second=5, retry_after_s=7))) as site:
        replies = [Reply(site.url_of(page)) for page in range(8)]

        assert [reply.status for reply in replies] == [200] * 5 + [429] * 3
        assert replies[-1].headers["Retry-After"] == "7"
        assert len(early(site.log(), by="domain")) == 2
        assert not early(site.log(), by="path")


def test_more_than_so_many_at_once_are_refused() -> None:
    with SiteProcess(Site(pages=5, burst=Burst(at_once=2))) as site:
        plugs = [plug_to(site) for _ in range(2)]
        for plug in plugs:
            plug.sendall(get(site, site.url_as("silent")))
        assert eventually(lambda: site.stats()[0].in_flight == 2)

        assert Reply(site.url_of(1)).status == 429
        for plug in plugs:
            plug.close()
        assert eventually(lambda: site.stats()[0].in_flight == 0)
        assert Reply(site.url_of(1)).status == 200


def test_an_outage_hits_all_pages_of_a_host_until_it_is_healed() -> None:
    with SiteProcess(Site(pages=10, hosts=2)) as site:
        assert Reply(site.url_of(2)).status == 200
        site.outage("unavailable", host=0)
        assert [Reply(site.url_of(2)).status for _ in range(5)] == [503] * 5
        assert Reply(site.url_of(3)).status == 200

        site.heal()
        assert Reply(site.url_of(2)).status == 200
        with pytest.raises(ValueError, match="no fate is called"):
            site.outage("tired")  # type: ignore[arg-type]


# ---- HTTP


def test_a_connection_is_kept_and_pipelined_requests_are_answered_in_their_order(running: SiteProcess) -> None:
    slow, quick = running.url_as("slow", "first", delay_s=0.05), running.url_as("not-found", "second")
    with plug_to(running) as plug:
        plug.sendall(get(running, slow) + get(running, quick) + get(running, quick, "Connection: close\r\n")[:-5])
        plug.sendall(b"e\r\n\r\n")
        answer = b"".join(iter(lambda: plug.recv(65_536), b""))

    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"200", b"404", b"404"]


def test_a_request_may_come_one_byte_at_a_time(running: SiteProcess) -> None:
    with plug_to(running) as plug:
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in get(running, f"{running.url}/", "Connection: close\r\n"):
            plug.sendall(bytes([byte]))
        assert b"".join(iter(lambda: plug.recv(65_536), b"")).startswith(b"HTTP/1.1 200 OK")


def test_head_has_the_headers_alone_and_other_methods_are_refused_with_their_bodies_skipped(
    running: SiteProcess,
) -> None:
    head = Reply(f"{running.url}/", "HEAD")
    with plug_to(running) as plug:
        plug.sendall(b"POST /login HTTP/1.1\r\nContent-Length: 30\r\n\r\n" + b"GET /not HTTP/1.1\r\n\r\n".ljust(30))
        plug.sendall(get(running, f"{running.url}/", "Connection: close\r\n"))
        answer = b"".join(iter(lambda: plug.recv(65_536), b""))

    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) > 1000
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"405", b"200"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET\r\n\r\n", 400),
        (b"GET nothing HTTP/1.1\r\n\r\n", 400),
        (b"GET /a\tb HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_ends(running: SiteProcess, sent: bytes, status: int) -> None:
    with plug_to(running) as plug:
        plug.sendall(sent)
        answer = b"".join(iter(lambda: plug.recv(65_536), b""))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


# ---- the log


def test_every_request_is_in_the_file_before_its_answer_and_questions_to_the_site_are_not(tmp_path: Path) -> None:
    with SiteProcess(Site(pages=5), log=tmp_path / "requests.log") as site:
        for page in (1, 2, 1):
            assert Reply(site.url_of(page)).status == 200
            assert read_log(tmp_path / "requests.log")[-1].url == site.url_of(page)
        site.stats()

        assert requests_by_path(site.log()) == {"/p/1": 2, "/p/2": 1}
        with urllib.request.urlopen(f"{site.url}/_site/log") as reply:
            assert reply.read() == (tmp_path / "requests.log").read_bytes()
    assert len(read_log(tmp_path / "requests.log")) == 3  # kept


def test_a_buffered_log_has_everything_when_it_is_asked_and_in_the_end(tmp_path: Path) -> None:
    with SiteProcess(Site(pages=5), log=tmp_path / "requests.log", is_buffered=True) as site:
        Reply(site.url_of(1))
        assert len(site.log()) == 1
        Reply(site.url_of(2))
    assert [request.path for request in read_log(tmp_path / "requests.log")] == ["/p/1", "/p/2"]


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "requests.log"
    log.write_text("1.000000\ta:1\t/\t200\tok\t1\t0.000000\n2.000000\ta:1\t/p/1\t20")

    assert [request.path for request in read_log(log)] == ["/"]


def request_at(at: float, path: str = "/", *, domain: str = "a:1", until: float = 0.0, in_flight: int = 1) -> Request:
    return Request(at=at, domain=domain, path=path, status=200, what="ok", in_flight=in_flight, until=until)


def test_what_came_early_is_judged_by_path_or_by_domain() -> None:
    log = [
        request_at(1.0, "/a", until=5.0),
        request_at(1.01, "/b"),
        request_at(2.0, "/b"),
        request_at(3.0, "/a", domain="b:1"),
        request_at(4.9, "/a"),
        request_at(5.0, "/a"),
    ]

    assert [request.at for request in early(log)] == [4.9]
    assert [request.at for request in early(log, by="domain")] == [1.01, 2.0, 4.9]
    assert [request.at for request in early(log, by="domain", grace_s=0.05)] == [2.0, 4.9]


def test_the_fullest_window_and_the_most_in_flight_are_found() -> None:
    log = [request_at(at, in_flight=count) for at, count in ((0.0, 1), (0.5, 3), (0.9, 2), (1.4, 1), (1.45, 1))]

    assert starts_in_any_window(log, 1.0) == 4  # 0.5 ≤ t < 1.5
    assert most_in_flight(log) == 3
    assert (starts_in_any_window([], 1.0), most_in_flight([])) == (0, 0)


# ---- the process


def test_latency_shows_how_many_are_under_way_at_once() -> None:
    with SiteProcess(Site(pages=20, latency_s=0.2)) as site:
        plugs = [plug_to(site) for _ in range(4)]
        for page, plug in enumerate(plugs):
            plug.sendall(get(site, site.url_of(page)))
        for plug in plugs:
            assert plug.recv(64).startswith(b"HTTP/1.1 200")
            plug.close()
        assert most_in_flight(site.log()) == 4


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import os\nfrom holdfast.testing.site import Site, SiteProcess\n"
        "site = SiteProcess(Site(pages=1), log=__import__('pathlib').Path('requests.log'))\n"
        "print(site.pid, flush=True)\nos._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True, timeout=30)
    pid = int(done.stdout)

    assert eventually(lambda: not is_alive(pid))


def test_settings_given_on_its_command_line_are_checked() -> None:
    command = [sys.executable, "-m", "holdfast.testing.site", "--faults", "tired=0.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)

    assert done.returncode == 2
    assert "no fate is called 'tired'" in done.stderr


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z" if sys.platform == "linux" else True
    )


def eventually(is_so: Callable[[], bool]) -> bool:
    end = CLOCK.monotonic() + SOON_S
    while not is_so():
        if CLOCK.monotonic() > end:
            return False
        CLOCK.sleep(0.005)
    return True
