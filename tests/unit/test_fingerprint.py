from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from textwrap import dedent
from typing import Any

import pytest

import holdfast
from holdfast.fingerprint import (
    MESSAGE_LIMIT,
    TRACEBACK_LIMIT,
    _normalised,
    _user_frames,
    fingerprint_of,
    message_of,
    name_of,
    traceback_of,
)
from holdfast.redact import redacted_text

SPILT = (" postgres://svc:" + "S3CR3T" * 9 + "@host/db", " password='" + "S3CR3T " * 9 + "' x", " ghp_" + "S3CR3T" * 8)


def caught(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("did not fail")


def fail(message: str = "no", kind: type[Exception] = ValueError) -> None:
    raise kind(message)


def run(code: str, file: str, name: str = "boom") -> Callable[[], object]:
    """A function whose code claims to be in that file."""
    names: dict[str, Any] = {}
    exec(compile(dedent(code), file, "exec"), names)
    call: Callable[[], object] = names[name]
    return call


def stripped(call: Callable[..., object], *args: object) -> BaseException:
    """What a call raises, without the frames of this file."""
    error = caught(lambda: call(*args))
    step = error.__traceback__
    while step is not None and step.tb_frame.f_code.co_filename == __file__:
        step = step.tb_next
    return error.with_traceback(step)


def shop_frames(users: Callable[..., object], library: Callable[[], object]) -> list[str]:
    """The frames that count, of an error that a library raises under a user's function."""
    return _user_frames(stripped(users, library))


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class TestFingerprint:
    def test_starts_with_its_version(self) -> None:
        assert fingerprint_of(caught(fail)).startswith("1:")

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("order 17 failed", "order 4,211.5 failed"),
            ("user 'ann' is unknown", "user 'bob' is unknown"),
            ('key "a" is missing', 'key "b c" is missing'),
            ("column `a` is missing", "column `b` is missing"),
            ("job 018f3a5e-7c1b-7000-8000-0123456789ab", "job ffffffff-7c1b-7000-8000-0123456789ab"),
            ("object at 0x7f00aa", "object at 0xdeadbeef"),
            ("commit 3f2a9c81d4 is gone", "commit 77aa00bb11 is gone"),
            ("took 00:12:01", "took 11:59:59"),
            ("order ord_8f3a9c2b is unknown", "order ord_77be01ac is unknown"),
            ("no such customer: cus_NffrFeUfNV2Hib", "no such customer: cus_OabcDeFgH9ijKl"),
            ("event 01ARZ3NDEKTSV4RRFFQ69G5FAV came twice", "event 01BX5ZZKBKACTAV9WEVGEMMVRZ came twice"),
            ("no mail for ann@example.com", "no mail for bob.long+x@mail.example.co.uk"),
            ("weight 1e5 is too much", "weight 2.5e-7 is too much"),
            ("cannot read /tmp/tmpabcdef/orders.csv", "cannot read /tmp/tmpq9_x1z/a/invoices.json"),
            ("the name “ann” is taken", "the name “bob” is taken"),
            ("the name «ann» is taken", "the name «bob» is taken"),
            ("at 2024-05-01 it broke", "at 2025-12-31 it broke"),
        ],
    )
    def test_is_the_same_when_only_numbers_ids_and_quotes_differ(self, one: str, other: str) -> None:
        assert fingerprint_of(caught(lambda: fail(one))) == fingerprint_of(caught(lambda: fail(other)))

    def test_differs_by_words_and_by_class(self) -> None:
        prints = [
            fingerprint_of(caught(lambda: fail("no"))),
            fingerprint_of(caught(lambda: fail("yes"))),
            fingerprint_of(caught(lambda: fail("no", KeyError))),
        ]
        assert len(set(prints)) == 3

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("connection refused", "connection reset"),
            ("order 17 failed", "order 17 is unknown"),
            ("user 'ann' is unknown", "user 'ann' is locked"),
            ("read/write failed", "read/seek failed"),
            ("see https://example.com/orders", "see https://example.com/invoices"),
            ("unknown column", "unknown table"),
            ("the name “ann” is taken", "the name “ann” is too long"),
            ('5" wide\nand 6" high', '5" wide\nbut 6" high'),
            ("", "no"),
        ],
    )
    def test_differs_when_the_words_do(self, one: str, other: str) -> None:
        assert fingerprint_of(caught(lambda: fail(one))) != fingerprint_of(caught(lambda: fail(other)))

    @pytest.mark.parametrize(
        ("message", "normalised"),
        [
            ("a" * 2_000, "a" * 2_000),
            ("/" * 2_000, "/" * 2_000),
            ("/a" * 1_000, "#"),
            ("a1" * 1_000, "#"),
            ("a-" * 1_000, "a-" * 1_000),
            ("1." * 1_000, "#."),
            ("1e" * 1_000, "#"),
            ('"' * 1_999, "#" * 999 + '"'),
            ("“" * 2_000, "“" * 2_000),
            ("a@" * 1_000, "a@" * 1_000),
            ("/" + "a" * 1_999, "/" + "a" * 1_999),
        ],
        ids=lambda text: repr(text[:8]),
    )
    def test_the_longest_and_oddest_messages_are_normalised_as_any_other(self, message: str, normalised: str) -> None:
        assert _normalised(message) == normalised

    @pytest.mark.parametrize(
        "file",
        [
            os.path.join(os.path.dirname(holdfast.__file__), "runtime", "guards", "drivers.py"),
            os.path.join(os.path.dirname(os.__file__), "json", "decoder.py"),
            "/venv/lib/python3/site-packages/client/core.py",
            "/usr/lib/python3/dist-packages/client/core.py",
            "<frozen importlib._bootstrap>",
        ],
    )
    def test_frames_that_are_not_the_users_are_left_out(self, file: str) -> None:
        users = run("def boom(call):\n    call()", "/app/shop.py")
        one = run("def boom():\n    raise ValueError('x')", file)
        other = run("def bang():\n    raise ValueError('x')", file, "bang")
        assert shop_frames(users, one) == shop_frames(users, other) == ["shop:boom"]
        beside = run("def boom():\n    raise ValueError('x')", "/app/holdfast/drivers.py")
        assert shop_frames(users, beside) == ["shop:boom", "drivers:boom"]

    def test_the_folder_a_program_is_deployed_to_does_not_matter(self) -> None:
        code = "def boom():\n    raise ValueError('x')"
        one, other = run(code, "/srv/releases/1/tasks.py"), run(code, "/srv/releases/2/tasks.py")
        assert fingerprint_of(stripped(one)) == fingerprint_of(stripped(other))

    def test_functions_of_one_name_in_two_modules_are_two_causes(self) -> None:
        code = "__name__ = '{}'\ndef boom():\n    raise ValueError('x')"
        one, other = run(code.format("shop.mail"), "/app/x.py"), run(code.format("shop.ship"), "/app/x.py")
        assert fingerprint_of(stripped(one)) != fingerprint_of(stripped(other))

    def test_a_script_and_its_module_are_one_cause(self) -> None:
        code = "__name__ = '{}'\ndef boom():\n    raise ValueError('x')"
        one, other = run(code.format("__main__"), "/app/tasks.py"), run(code.format("tasks"), "/app/tasks.py")
        assert fingerprint_of(stripped(one)) == fingerprint_of(stripped(other))

    def test_of_a_deep_stack_the_twenty_innermost_frames_of_the_user_count(self) -> None:
        def deep(names: list[str]) -> str:
            code = "def f0():\n    raise ValueError('x')\n"
            code += "".join(
                f"def {name}():\n    {inner}()\n" for inner, name in zip(["f0", *names], names, strict=False)
            )
            return fingerprint_of(stripped(run(code, "/app/shop.py", names[-1])))

        names = [f"f{number}" for number in range(1, 25)]
        assert deep(names) == deep([*names[:19], *(f"g{number}" for number in range(3))])
        assert deep(names) != deep([*names[:18], "g", *names[19:]])
        assert deep(names) != deep(["g", *names[1:]])

    def test_without_frames_of_the_user_the_five_innermost_of_all_count(self) -> None:
        def deep(names: list[str]) -> str:
            code = "def f0():\n    raise ValueError('x')\n"
            code += "".join(
                f"def {name}():\n    {inner}()\n" for inner, name in zip(["f0", *names], names, strict=False)
            )
            return fingerprint_of(stripped(run(code, "/venv/site-packages/client/core.py", names[-1])))

        names = [f"f{number}" for number in range(1, 9)]
        assert deep(names) == deep([*names[:4], "g"])
        assert deep(names) != deep([*names[:3], "g", *names[4:]])
        assert deep(names) != deep(["g", *names[1:]])

    def test_does_not_depend_on_line_numbers(self) -> None:
        here = run("def boom():\n    raise ValueError('x')", "/app/shop.py")
        moved = run("\n\n\ndef boom():\n    a = 1\n    raise ValueError('x')", "/app/shop.py")
        assert fingerprint_of(caught(here)) == fingerprint_of(caught(moved))

    def test_depends_on_file_and_function(self) -> None:
        one = run("def boom():\n    raise ValueError('x')", "/app/shop.py")
        elsewhere = run("def boom():\n    raise ValueError('x')", "/app/bank.py")
        other = run("def bang():\n    raise ValueError('x')", "/app/shop.py", "bang")
        assert len({fingerprint_of(caught(call)) for call in (one, elsewhere, other)}) == 3

    def test_does_not_depend_on_where_the_program_is_installed(self) -> None:
        one = run("def boom():\n    raise ValueError('x')", "/srv/app/shop.py")
        other = run("def boom():\n    raise ValueError('x')", "/home/ann/app/shop.py")
        assert fingerprint_of(caught(one)) == fingerprint_of(caught(other))

    def test_does_not_depend_on_frames_of_libraries(self) -> None:
        code = (
            "def boom(deep=0):\n    return boom(deep - 1) if deep else inner()\ndef inner():\n    raise ValueError('x')"
        )
        library = run(code, "/venv/lib/python3/site-packages/client/core.py")
        users = run("def boom(call, *args):\n    return call(*args)", "/app/shop.py")
        shallow = caught(lambda: users(library))  # type: ignore[call-arg]
        deep = caught(lambda: users(library, 7))  # type: ignore[call-arg]
        assert fingerprint_of(shallow) == fingerprint_of(deep)

    def test_does_not_depend_on_how_deep_a_recursion_went(self) -> None:
        code = "def boom(deep):\n    if deep:\n        boom(deep - 1)\n    raise ValueError('x')"
        boom = run(code, "/app/shop.py")
        assert fingerprint_of(caught(lambda: boom(3))) == fingerprint_of(caught(lambda: boom(9)))  # type: ignore[call-arg]

    def test_a_group_is_known_by_its_first_member(self) -> None:
        member = caught(fail)
        assert isinstance(member, Exception)
        group = ExceptionGroup("g", [ExceptionGroup("h", [member]), KeyError()])
        assert fingerprint_of(group) == fingerprint_of(member)

    def test_can_be_had_of_an_error_that_was_never_raised_and_of_one_without_words(self) -> None:
        assert fingerprint_of(ValueError("x")).startswith("1:")
        assert fingerprint_of(Wordless()).startswith("1:")
        assert fingerprint_of(ValueError("\ud800")).startswith("1:")


class TestMessage:
    def test_is_the_errors_own_words(self) -> None:
        assert message_of(ValueError("no")) == "no"

    def test_is_bounded(self) -> None:
        assert message_of(ValueError("x" * MESSAGE_LIMIT)) == "x" * MESSAGE_LIMIT
        long = message_of(ValueError("x" * (MESSAGE_LIMIT + 1)))
        assert len(long) == MESSAGE_LIMIT
        assert long.endswith("x…")

    @pytest.mark.parametrize("secret", SPILT)
    def test_of_a_text_that_is_cut_no_half_of_a_secret_is_kept(self, secret: str) -> None:
        for before in range(MESSAGE_LIMIT - 70, MESSAGE_LIMIT, 5):
            assert "S3CR3T" not in redacted_text(message_of(ValueError("x" * before + secret)))

    def test_can_be_had_when_str_raises(self) -> None:
        assert message_of(Wordless()) == f"<{name_of(Wordless)} whose text cannot be had>"


class TestName:
    def test_has_its_module_unless_it_is_built_in(self) -> None:
        assert name_of(ValueError) == "ValueError"
        assert name_of(Wordless).endswith("test_fingerprint.Wordless")


class TestTraceback:
    def test_tells_frames_and_chain(self) -> None:
        def chained() -> None:
            try:
                fail("inner")
            except ValueError as error:
                raise KeyError("outer") from error

        text = traceback_of(caught(chained))
        assert "ValueError: inner" in text
        assert "KeyError: 'outer'" in text
        assert "in fail" in text

    def test_is_bounded_and_keeps_beginning_and_end(self) -> None:
        text = traceback_of(caught(lambda: fail("x" * 50_000 + "the end")))
        assert len(text) <= TRACEBACK_LIMIT
        assert text.startswith("Traceback")
        assert text.endswith("the end\n")
        assert "characters left out" in text

    @pytest.mark.parametrize("secret", SPILT)
    @pytest.mark.parametrize(
        ("before", "after"),
        [(TRACEBACK_LIMIT, TRACEBACK_LIMIT * 3 // 4 - 90), (TRACEBACK_LIMIT // 4 - 500, TRACEBACK_LIMIT)],
    )
    def test_of_one_that_is_cut_no_half_of_a_secret_is_kept(self, secret: str, before: int, after: int) -> None:
        for shift in range(0, 500, 25):
            error = caught(partial(fail, "x" * (before + shift) + secret + "y" * (after - shift)))
            assert "S3CR3T" not in redacted_text(traceback_of(error))

    def test_can_be_had_when_str_raises(self) -> None:
        def wordless() -> None:
            raise Wordless

        assert "Wordless" in traceback_of(caught(wordless))
