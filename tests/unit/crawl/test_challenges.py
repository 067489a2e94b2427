from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.crawl.challenges import Sign, is_suspect, told_by, told_by_redirect
from holdfast.crawl.page import Page
from holdfast.crawl.patterns import Pattern
from holdfast.crawl.rules import Rule, parse
from holdfast.errors import PageChanged
from tests.unit.crawl.pages import FIXTURES, URL, page, stored_page

LOGIN = "https://example.org/login?next=%2Fshop%2F1"

TOLD = {
    "cloudflare_challenge": (503, "challenge", "Cloudflare"),
    "cloudflare_old_form": (403, "challenge", "Cloudflare"),
    "datadome_captcha": (403, "captcha", "DataDome"),
    "human_press_and_hold": (403, "captcha", "HUMAN"),
    "imperva_frame": (200, "challenge", "Imperva"),
    "imperva_script": (200, "challenge", "Imperva"),
    "akamai_crypto": (429, "challenge", "Akamai"),
    "akamai_refresh": (200, "challenge", "Akamai"),
    "aws_challenge": (202, "challenge", "AWS WAF"),
    "kasada": (429, "challenge", "Kasada"),
    "ddos_guard": (403, "challenge", "DDoS-Guard"),
    "sucuri": (200, "challenge", "Sucuri"),
    "anubis": (200, "challenge", "Anubis"),
    "shop_image_captcha": (200, "captcha", "Amazon"),
    "search_unusual_traffic": (429, "captcha", "Google"),
    "own_turnstile_gate": (200, "captcha", "form"),
    "own_image_gate": (200, "captcha", "form"),
}
ORDINARY = sorted(path.stem for path in FIXTURES.glob("ok_*.html"))


def check(answer: Page, expect: Sequence[str], content_type: str) -> None:
    """As it is done for the page of a handler."""
    rule = Rule(pattern=Pattern("**"), handle=lambda _: None, expect=tuple(expect), content_type=content_type)
    asyncio.run(parse(answer, [rule], is_followed=False))


@pytest.mark.parametrize("name", TOLD)
def test_a_challenge_is_told_from_its_structure(name: str) -> None:
    status, kind, by = TOLD[name]
    answer = page(stored_page(name), status=status)
    assert is_suspect(answer.fetched)
    assert told_by(answer) == Sign(kind, by)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TOLD)
def test_a_challenge_of_status_200_is_told_as_well(name: str) -> None:
    with pytest.raises(PageChanged) as told:
        check(page(stored_page(name)), (), "text/html")
    assert told.value.cause == f"example.org: {TOLD[name][1]}"


@pytest.mark.parametrize("name", TOLD)
def test_a_challenge_is_told_where_selectors_are_missing(name: str) -> None:
    with pytest.raises(PageChanged) as told:
        check(page(stored_page(name)), [".price"], "text/html")
    assert told.value.cause == f"example.org: {TOLD[name][1]}"


@pytest.mark.parametrize(
    ("name", "status"),
    # A small page that is refused and asks for a password is a login page, whatever else is on it.
    [
        (name, status)
        for name in ORDINARY
        for status in (200, 403, 503)
        if name != "ok_shop_with_login_box" or status == 200
    ],
)
def test_an_ordinary_page_raises_no_alarm(name: str, status: int) -> None:
    answer = page(stored_page(name), status=status)
    assert told_by(answer) is None
    check(answer, (), "text/html")


@pytest.mark.parametrize("name", [name for name in ORDINARY if 'class="price"' in stored_page(name)])
def test_a_page_with_what_is_expected_raises_no_alarm(name: str) -> None:
    check(page(stored_page(name)), ["h1", ".price"], "text/html")


@pytest.mark.parametrize("name", ["ok_article_about_captchas", "ok_shop_changed_with_login_box", "ok_documentation"])
def test_a_changed_page_is_not_taken_for_a_challenge(name: str) -> None:
    with pytest.raises(PageChanged) as told:
        check(page(stored_page(name)), [".price"], "text/html")
    assert told.value.cause == "example.org: no .price"


def test_there_are_enough_pages_of_both_kinds_and_none_is_unused() -> None:
    assert len(TOLD) >= 8
    assert len(ORDINARY) >= 8
    assert {path.stem for path in FIXTURES.glob("*.html")} == {*TOLD, *ORDINARY, "login_form"}


@pytest.mark.parametrize(
    ("header", "value", "sign"),
    [
        ("cf-mitigated", "challenge", Sign("challenge", "Cloudflare")),
        ("x-amzn-waf-action", "challenge", Sign("challenge", "AWS WAF")),
        ("x-amzn-waf-action", "Captcha", Sign("captcha", "AWS WAF")),
        ("x-vercel-mitigated", "challenge", Sign("challenge", "Vercel")),
        ("x-vercel-mitigated", "deny", None),
        ("server", "cloudflare", None),
    ],
)
def test_headers_tell_it_whatever_the_page_is(header: str, value: str, sign: Sign | None) -> None:
    for content_type in ("text/html", "application/json"):
        answer = page("<h1>Blue mug</h1>", headers={header: value}, content_type=content_type)
        assert is_suspect(answer.fetched) is (header != "server")
        assert told_by(answer, has_expected=True) == sign


def test_a_captcha_beside_what_is_expected_is_part_of_the_page() -> None:
    body = '<h1>Blue mug</h1><div class="h-captcha"></div>'
    check(page(body), ["h1"], "text/html")
    with pytest.raises(PageChanged, match="captcha"):
        check(page(body), [".price"], "text/html")


def test_a_form_with_fields_of_its_own_is_no_captcha_page() -> None:
    fields = '<input name="from"><input type="text" name="to">'
    assert told_by(page(f'<form>{fields}<div class="h-captcha"></div><button>Search</button></form>')) is None


def test_long_scripts_and_styles_are_nothing_to_read() -> None:
    unseen = f"<body><style>{'.a{color:red} ' * 500}</style><noscript>{'x ' * 3_000}</noscript>"
    unseen += f"<script>{'a = 1; ' * 1_000}</script>"
    assert told_by(page(unseen + stored_page("cloudflare_old_form"))) == Sign("challenge", "Cloudflare")
    assert told_by(page("<p>word </p>" * 1_000 + stored_page("cloudflare_old_form"))) is None


def test_a_page_too_tangled_to_be_parsed_is_judged_by_its_headers_alone() -> None:
    body = "captcha" + "<div>" * 31_000
    assert told_by(page(body, status=403)) is None
    assert told_by(page(body, headers={"cf-mitigated": "challenge"})) == Sign("challenge", "Cloudflare")


# ---------------------------------------------------------------- logins


def test_a_login_after_a_redirect_is_told() -> None:
    with pytest.raises(PageChanged) as told:
        check(page(stored_page("login_form"), final_url=LOGIN), (), "text/html")
    assert told.value.cause == "example.org: login"


def test_a_login_without_anything_expected_is_told() -> None:
    with pytest.raises(PageChanged) as told:
        check(page(stored_page("login_form")), [".price"], "text/html")
    assert told.value.cause == "example.org: login"


def test_a_refusal_with_a_login_is_told() -> None:
    refused = page(stored_page("login_form"), status=401)
    assert told_by(refused) == Sign("login", "form")
    assert told_by(refused, has_expected=True) is None


def test_a_login_that_was_asked_for_is_a_page_like_others() -> None:
    asked = page(stored_page("login_form"), url="https://example.org/login")
    check(asked, (), "text/html")
    check(page(stored_page("login_form")), ["h1"], "text/html")  # something of what is expected is there


def test_a_redirect_to_a_page_that_only_sounds_like_a_login_is_none() -> None:
    check(page("<h1>How to log in</h1>", final_url="https://example.org/login"), (), "text/html")


@pytest.mark.parametrize(
    "target",
    [
        LOGIN,
        "https://accounts.example.org/signin",
        "https://example.org/users/sign_in",
        "https://example.org/wp-login.php?redirect_to=https%3A%2F%2Fexample.org%2Fshop%2F1",
        "https://id.example.org/auth?x=%2Fshop%2F1",
        "https://example.org/account/login/?ReturnUrl=%2F",
        "https://example.org/sessions/new",
    ],
)
def test_a_redirect_to_a_login_is_told_without_its_page(target: str) -> None:
    assert told_by_redirect(URL, target) == Sign("login", "redirect")


@pytest.mark.parametrize(
    "target",
    [
        "https://example.org/shop/2",
        "https://example.org/blog/login-pages-of-the-year",
        "https://example.org/login/help",
        "https://example.org/catalogin",
        "https://example.org/design-in/",
        "https://example.org/authors",
        "https://example.org/login?theme=dark",
    ],
)
def test_other_redirects_are_no_logins(target: str) -> None:
    assert told_by_redirect(URL, target) is None


def test_a_login_that_was_asked_for_may_redirect_to_another() -> None:
    assert told_by_redirect("https://example.org/login", "https://accounts.example.org/signin") is None


def test_ordinary_pages_are_not_looked_at_closely() -> None:
    links = "".join(f'<a href="/p/{n}">captcha challenge {n}</a>' for n in range(20))
    assert not is_suspect(page(f"<h1>Shop</h1>{links}").fetched)
    assert not is_suspect(page("<h1>Blue mug</h1>").fetched)
    assert not is_suspect(page("captcha " * 100_000).fetched)
