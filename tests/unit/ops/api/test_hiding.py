"""Secrets are left out of what is shown, and an edit never gives one to something else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.ops.api.hiding import hidden, unhidden

H = "[redacted]"
URL = "postgres://shop:s3cret@db/shop"
HIDDEN_URL = f"postgres://shop:{H}@db/shop"
BOB = {"user": "bob", "password": "bobs"}
AMY = {"user": "amy", "password": "amys"}


def stored(value: Any) -> bytes:
    return json.dumps(value).encode()


def as_shown(value: Any) -> Any:
    return hidden(stored(value)).value


def test_values_are_hidden_by_their_names_and_by_their_looks_and_it_is_said_where() -> None:
    found = hidden(stored({"a/b": {"apiKey": "k", "n": 1}, "notes": [URL, "plain"], "token": "", "pin": None}))
    assert found.value == {"a/b": {"apiKey": H, "n": 1}, "notes": [HIDDEN_URL, "plain"], "token": "", "pin": None}
    assert found.pointers == ("/a~1b/apiKey", "/notes/0")


def test_what_is_no_json_is_shown_as_text_without_secrets() -> None:
    assert hidden(b"\xff password=hunter2").value == f"\\xff password={H}"
    assert hidden(None).value is None


@pytest.mark.parametrize(
    "value",
    [
        {"password": "p", "cents": 5},
        {"password": {"old": "p", "new": ["q"]}},
        {"account": {"deep": {"token": "t"}}, "note": URL},
        {"accounts": [BOB, AMY]},
        {"accounts": [BOB, BOB, {"user": "bob", "password": "other"}]},
        {"rows": [[{"pin": "1"}], [{"pin": "2"}]]},
        {"urls": [URL, URL]},
        {"note": f"somebody wrote {H}", "list": [H]},
        {"amounts": [{"password": "p", "amount": 2.0, "big": 2**70}]},
    ],
)
def test_what_is_sent_back_as_it_was_shown_is_what_was_stored(value: dict[str, Any]) -> None:
    assert unhidden(as_shown(value), stored(value)) == value


def test_under_a_name_all_else_may_change() -> None:
    before = {"password": "p", "account": {"token": "t", "user": "bob"}, "cents": 5}
    edited = {"password": H, "account": {"token": H, "user": "amy", "more": 1}, "cents": 6}
    assert unhidden(edited, stored(before)) == {
        "password": "p",
        "account": {"token": "t", "user": "amy", "more": 1},
        "cents": 6,
    }


def test_a_hidden_value_may_be_written_anew_or_left_out() -> None:
    before = {"password": "p", "accounts": [BOB, AMY]}
    new = {"user": "bob", "password": "new"}
    assert unhidden({"password": "q", "accounts": [new, as_shown(AMY)]}, stored(before)) == {
        "password": "q",
        "accounts": [new, AMY],
    }
    assert unhidden({"accounts": []}, stored(before)) == {"accounts": []}


def refused(edited: dict[str, Any], before: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid, match=f"at {pointer} has "):
        unhidden(edited, stored(before))


def test_a_hidden_value_under_another_name_is_refused() -> None:
    refused({"passphrase": H}, {"password": "p"}, "/passphrase")
    refused({"note": H}, {"password": "p"}, "/note")
    refused({"b": {"token": H}}, {"a": {"token": "t"}}, "/b/token")
    refused({"memo": HIDDEN_URL}, {"note": URL}, "/memo")
    refused({"a~b/c": {"pin": H}}, {}, "/a~0b~1c/pin")


def test_a_hidden_text_that_was_changed_around_the_hidden_part_is_refused() -> None:
    refused({"note": f"postgres://root:{H}@db/shop"}, {"note": URL}, "/note")
    refused({"note": H}, {"note": URL}, "/note")


def test_hidden_under_a_name_that_holds_nothing_secret_is_refused() -> None:
    refused({"note": H}, {"note": "plain"}, "/note")
    refused({"token": H}, {"token": ""}, "/token")
    refused({"token": H}, {"token": None}, "/token")


def test_items_that_changed_places_keep_nobodys_secret() -> None:
    before = {"accounts": [BOB, AMY]}
    refused({"accounts": [as_shown(AMY), as_shown(BOB)]}, before, "/accounts/0")
    refused({"accounts": [as_shown(AMY)]}, before, "/accounts/0")
    refused({"accounts": [{"user": "new", "password": "n"}, as_shown(BOB)]}, before, "/accounts/1")
    refused({"accounts": [as_shown(BOB), as_shown(BOB)]}, before, "/accounts/1")


def test_an_item_that_says_something_else_now_keeps_no_secret_in_a_list_of_the_same_length() -> None:
    refused({"accounts": [{"user": "eve", "password": H}, as_shown(AMY)]}, {"accounts": [BOB, AMY]}, "/accounts/0")
    refused({"accounts": [as_shown(BOB) | {"admin": True}]}, {"accounts": [BOB]}, "/accounts/0")
    refused({"accounts": [{"password": H}]}, {"accounts": [BOB]}, "/accounts/0")
    refused({"accounts": [{"password": H, "n": True}]}, {"accounts": [{"password": "p", "n": 1}]}, "/accounts/0")


def test_items_that_read_alike_keep_their_secrets_only_where_the_list_is_as_it_was_shown() -> None:
    before = {"pins": [{"pin": "1"}, {"pin": "2"}]}
    refused({"pins": [{"pin": H}]}, before, "/pins/0")  # which of them was removed?
    refused({"pins": [{"pin": H}, {"pin": "3"}]}, before, "/pins/0")
    refused({"pins": [{"pin": H}, {"pin": H}, {"pin": "3"}]}, before, "/pins/0")
    refused({"urls": [HIDDEN_URL]}, {"urls": [URL, URL.replace("s3cret", "other")]}, "/urls/0")


def test_an_item_that_reads_like_no_other_stays_where_a_list_grows_or_shrinks_behind_it() -> None:
    before = {"accounts": [BOB, AMY]}
    new = {"user": "new", "password": "n"}
    assert unhidden({"accounts": [as_shown(BOB), as_shown(AMY), new]}, stored(before)) == {"accounts": [BOB, AMY, new]}
    assert unhidden({"accounts": [as_shown(BOB)]}, stored(before)) == {"accounts": [BOB]}


def test_what_is_deep_inside_of_an_item_belongs_to_the_item() -> None:
    one = {"id": 1, "logins": [{"pin": "1"}], "box": {"token": "t"}}
    two = {"id": 2, "logins": [{"pin": "2"}], "box": {"token": "u"}}
    before = {"shops": [one, two]}
    swapped = [as_shown(one) | {"id": 2}, as_shown(two) | {"id": 1}]
    refused({"shops": swapped}, before, "/shops/0")
    refused({"rows": [[{"pin": H}], []]}, {"rows": [[{"pin": "1"}], [{"pin": "2"}]]}, "/rows/0")


def test_a_list_where_something_else_was_stored_keeps_nothing() -> None:
    refused({"accounts": [{"password": H}]}, {"accounts": {"0": {"password": "p"}}}, "/accounts/0")
    refused({"accounts": {"0": {"password": H}}}, {"accounts": [{"password": "p"}]}, "/accounts/0/password")
    refused({"password": [H]}, {"password": "p"}, "/password/0")


def test_of_what_could_not_be_read_nothing_is_kept() -> None:
    with pytest.raises(Invalid):
        unhidden({"password": H}, b"\xff")
    assert unhidden({"n": 1}, b"\xff") == {"n": 1}


def elements(*found: Any) -> dict[str, Any]:
    return {"origin": {"kind": "ring", "ring": "prices", "consumer": "enrich", "batch": 1}, "elements": list(found)}


def test_an_element_of_a_ring_is_edited_at_its_place_and_keeps_its_secrets() -> None:
    before = elements(BOB, {"n": 1, "box": {"token": "t"}}, AMY)
    edited = elements({"user": "bob", "age": 7, "password": H}, {"n": 2, "box": {"token": H}}, as_shown(AMY))
    assert unhidden(edited, stored(before)) == elements(BOB | {"age": 7}, {"n": 2, "box": {"token": "t"}}, AMY)
    alike = elements({"pin": "1"}, {"pin": "2"}, {"n": 1})
    assert unhidden(elements({"pin": H}, {"pin": H}, {"n": 2}), stored(alike)) == elements(
        *alike["elements"][:2], {"n": 2}
    )


def test_elements_of_a_ring_that_changed_places_or_number_keep_nobodys_secret() -> None:
    before = elements(BOB, AMY)
    refused(elements(as_shown(AMY), as_shown(BOB)), before, "/elements/0")
    refused(elements(as_shown(BOB), as_shown(BOB)), before, "/elements/1")
    refused(elements(as_shown(AMY)), before, "/elements/0")
    refused(elements(as_shown(BOB) | {"n": 1}), before, "/elements/0")
    refused(elements(as_shown(BOB) | {"n": 1}, as_shown(AMY), {}), before, "/elements/0")
    refused(elements({"user": "bob", "pin": H}, as_shown(AMY)), before, "/elements/0/pin")


def test_what_is_hidden_in_a_ring_s_element_for_the_one_before_it_is_kept_only_where_nothing_changed() -> None:
    before = elements("--password", "hunter2", "x")
    assert unhidden(as_shown(before), stored(before)) == before
    refused(elements("--verbose", H, "x"), before, "/elements/1")


def test_only_the_elements_of_a_ring_go_by_their_places() -> None:
    before = elements({"logins": [BOB, AMY]}) | {"more": [BOB]}
    refused(before | elements({"logins": [as_shown(BOB) | {"n": 1}, as_shown(AMY)]}), before, "/elements/0/logins/0")
    refused(as_shown(before) | {"more": [as_shown(BOB) | {"n": 1}]}, before, "/more/0")
    job = {"elements": [BOB]}
    refused({"elements": [as_shown(BOB) | {"n": 1}]}, job, "/elements/0")
    claimed = elements() | {"elements": [as_shown(BOB) | {"n": 1}]}
    refused(claimed, job, "/elements/0")


def test_the_key_of_a_message_says_nothing_of_its_value() -> None:
    origin = {"kind": "message", "group": "g", "topic": "t", "partition": 0, "offset": 5}
    letter = {"origin": origin, "key": "password", "value": {"n": 1, "pin": 7}, "headers": [["X-Api-Key", "x"]]}
    found = hidden(stored(letter))
    assert found.value == letter | {"value": {"n": 1, "pin": H}, "headers": [["X-Api-Key", H]]}
    assert unhidden(found.value, stored(letter)) == letter
    pair = {"key": "password", "value": "hunter2"}
    assert hidden(stored(pair)).value == pair | {"value": H}
    assert hidden(stored(pair | {"origin": {"kind": "message"}})).value["value"] == H
