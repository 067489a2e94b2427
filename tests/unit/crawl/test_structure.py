from __future__ import annotations

import pytest

from holdfast.crawl.structure import check, check_fields, refuse_bad_selector
from holdfast.errors import ConfigError, PageChanged
from holdfast.policy.classify import classify
from holdfast.types import FailureType
from tests.unit.crawl.pages import URL, page

MUG = "<h1>Blue mug</h1><p class=price>12.00</p>"


def test_a_page_with_everything_expected_passes() -> None:
    check(page(MUG), ["h1", ".price"], "text/html")
    check(page(MUG), [], None)


def test_the_first_selector_that_matches_nothing_is_named() -> None:
    with pytest.raises(PageChanged) as changed:
        check(page(MUG), ["h1", ".stock", ".seller"], "text/html")
    error = changed.value
    assert str(error) == f"{URL}: nothing matches .stock"
    assert (error.cause, error.selector, error.url) == ("example.org: no .stock", ".stock", URL)
    assert classify(error).type is FailureType.STRUCTURAL


def test_pages_of_one_domain_that_lack_the_same_are_one_group() -> None:
    def fingerprint(url: str, selector: str) -> str:
        with pytest.raises(PageChanged) as changed:
            check(page(MUG, url=url), [selector], None)
        return classify(changed.value).fingerprint

    first = fingerprint("https://example.org/p/1", ".stock")
    assert fingerprint("https://example.org/q/other-2?x=7", ".stock") == first
    assert fingerprint("https://example.org/p/1", ".seller") != first
    assert fingerprint("https://example.net/p/1", ".stock") != first


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        ("text/html", "text/html"),
        ("TEXT/HTML; charset=utf-8", "text/html"),
        ("application/xhtml+xml", "text/html"),
        ("text/html", "Text/HTML"),
        ("", "text/html"),
        ("application/json", "application/json"),
        ("image/png", None),
    ],
)
def test_a_content_type_that_is_as_expected_passes(sent: str, wanted: str | None) -> None:
    check(page(MUG, content_type=sent), [], wanted)


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        ("application/json", "text/html"),
        ("text/html", "application/json"),
        ("text/plain", "text/html"),
        ("application/xhtml+xml", "text/plain"),
    ],
)
def test_another_content_type_is_told_before_any_selector(sent: str, wanted: str) -> None:
    with pytest.raises(PageChanged) as changed:
        check(page(MUG, content_type=sent), [".stock"], wanted)
    assert changed.value.cause == f"example.org: {wanted} became {sent}"
    assert changed.value.selector == ""


@pytest.mark.parametrize("item", [{}, {"price": None}, {"price": ""}])
def test_a_field_that_is_missing_or_empty_is_named(item: dict[str, object]) -> None:
    with pytest.raises(PageChanged) as changed:
        check_fields({"name": "Blue mug"} | item, ["name", "price"], page(MUG))
    assert changed.value.cause == "example.org: no field price"


def test_fields_may_be_zero_or_false() -> None:
    check_fields({"stock": 0, "sold": False, "tags": []}, ["stock", "sold", "tags"], page(MUG))


def test_a_field_may_be_a_value_that_compares_in_its_own_way() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("not comparable")

        __hash__ = None  # type: ignore[assignment]

    check_fields({"price": Odd()}, ["price"], page(MUG))


@pytest.mark.parametrize(
    "selector", ["", " ", "a[", "..", "a >", "a,", "a::text", ":nope", "a:contains(x)", "a\ud800", 7]
)
def test_what_is_no_selector_is_refused_in_one_line(selector: object) -> None:
    with pytest.raises(ConfigError, match="selector=") as refused:
        refuse_bad_selector(selector)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "selector", ["h1", ".price", "a[href^='/p/']", "ul > li:nth-child(2n+1):not(:has(b))", "h1, h2"]
)
def test_selectors_pass(selector: str) -> None:
    refuse_bad_selector(selector)
