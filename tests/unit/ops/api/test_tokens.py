from __future__ import annotations

import errno
import hashlib
import hmac
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import json

from holdfast.errors import ConfigError
from holdfast.ops.api.roles import Principal, Role
from holdfast.ops.api.tokens import BadToken, Token, TokenFile, Tokens, lines_of, make_token, read_tokens
from holdfast.ops.cli import main

NOW = 1_000_000_000.0


def written(path: Path, *tokens: Token) -> Path:
    path.write_text("\n".join(map(lines_of, tokens)))
    path.chmod(0o600)
    return path


def refusal(find: Callable[[str, float], Token], text: str, now: float = NOW) -> str:
    with pytest.raises(BadToken) as caught:
        find(text, now)
    return str(caught.value)


# ---------------------------------------------------------------- one token


def test_a_new_token_has_128_bits_of_secret_and_is_kept_by_its_hash() -> None:
    made = make_token(name="ops", role="operator")
    start, id_, secret = made.text.split("_")
    assert (start, id_) == ("hf", made.token.id)
    assert len(bytes.fromhex(secret)) == 16
    assert made.token.sha256 == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in lines_of(made.token)
    assert secret not in repr(made.token)
    assert make_token(name="ops", role="operator").text != made.text


def test_a_token_is_found_by_its_text_and_says_whom_it_stands_for() -> None:
    made = make_token(name="acme", role="viewer", tenant="acme")
    found = Tokens([make_token(name="ops", role="admin").token, made.token]).find(made.text, NOW)
    assert found.principal == Principal(name="acme", role=Role.VIEWER, tenant="acme", token_id=made.token.id)


@pytest.mark.parametrize("spoil", [str.upper, str.strip, lambda text: text + "0", lambda text: text[:-1]])
def test_only_the_exact_text_is_the_token(spoil: Callable[[str], str]) -> None:
    made = make_token(name="ops", role="admin")
    text = f" {made.text}" if spoil is str.strip else spoil(made.text)
    assert refusal(Tokens([made.token]).find, text) == "the token is not known"


def test_the_secret_of_another_token_does_not_do() -> None:
    one, other = make_token(name="one", role="admin"), make_token(name="other", role="viewer")
    mixed = f"hf_{one.token.id}_{other.text.rpartition('_')[2]}"
    assert refusal(Tokens([one.token, other.token]).find, mixed) == "the token is not known"


def test_a_token_is_refused_from_the_instant_it_expires_at() -> None:
    made = make_token(name="ops", role="admin", expires_at=NOW)
    tokens = Tokens([made.token])
    assert tokens.find(made.text, NOW - 0.001) == made.token
    assert refusal(tokens.find, made.text) == "the token has expired"


def test_the_expiry_of_a_token_is_told_only_to_whoever_has_its_secret() -> None:
    made = make_token(name="ops", role="admin", expires_at=NOW)
    guessed = f"hf_{made.token.id}_{'0' * 32}"
    assert refusal(Tokens([made.token]).find, guessed) == "the token is not known"


def test_an_unknown_id_is_compared_as_a_known_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_token(name="ops", role="admin")
    tokens = Tokens([made.token])
    compared: list[tuple[int, int]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for text in (made.text, f"hf_{made.token.id}_{'0' * 32}", f"hf_{'0' * 12}_{'0' * 32}", "", "x" * 500):
        try:
            tokens.find(text, NOW)
        except BadToken:
            continue
    assert compared == [(64, 64)] * 5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "nope"),
        ("name", ""),
        ("name", "x" * 65),
        ("name", "new\nline"),
        ("name", 'quo"te'),
        ("role", "root"),
        ("sha256", "short"),
        ("tenant", ""),
        ("tenant", 5),
    ],
)
def test_a_token_that_cannot_work_is_refused_by_name(field: str, value: object) -> None:
    good = {"id": "0" * 12, "name": "ops", "role": Role.ADMIN, "sha256": "0" * 64}
    with pytest.raises(ConfigError, match=field):
        Token(**{**good, field: value})  # type: ignore[arg-type]


def test_one_id_twice_is_refused() -> None:
    token = make_token(name="ops", role="admin").token
    with pytest.raises(ConfigError, match="twice"):
        Tokens([token, token])


# ---------------------------------------------------------------- the file


def test_what_is_written_into_a_file_is_read_from_it(tmp_path: Path) -> None:
    tokens = [
        make_token(name="ops", role="operator", expires_at=NOW).token,
        make_token(name="a.b-c @ d", role="viewer", tenant='quo"te\\ \n\x00 ünï').token,
    ]
    assert read_tokens(written(tmp_path / "t.toml", *tokens)) == tokens


@pytest.mark.parametrize("text", ["2026-02-14T09:00:00Z", '"2026-02-14T10:00:00+01:00"', "2026-02-14T09:00:00+00:00"])
def test_an_expiry_is_an_rfc_3339_date_with_its_zone(tmp_path: Path, text: str) -> None:
    path = written(tmp_path / "t.toml", make_token(name="ops", role="admin").token)
    path.write_text(path.read_text() + f"expires = {text}\n")
    assert read_tokens(path)[0].expires_at == 1_771_059_600.0


GOOD = f'[[token]]\nid = "{"0" * 12}"\nname = "ops"\nrole = "admin"\nsha256 = "{"0" * 64}"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD + "\n[[token]]\nid = ???", "line 8"),
        (GOOD + GOOD.replace("admin", "boss").replace("000000000000", "000000000001"), "line 6: role='boss'"),
        ("# first\n" + GOOD.replace('name = "ops"\n', ""), "line 2: name is missing"),
        (GOOD + "secret = 'x'\n", "line 1: secret: no such field"),
        (GOOD + GOOD, "line 6: the id 000000000000 is there twice"),
        (GOOD + "expires = 2026-02-14\n", "line 1: expires=2026-02-14"),
        (GOOD + "expires = 5\n", "line 1: expires=5"),
        (GOOD.replace("[[token]]", "[token]"), "line 1: write [[token]]"),
        ("\ntoken = [1]\n", "must be a table"),
        ("tokens = 1\n", "tokens: only"),
    ],
)
def test_what_cannot_be_used_in_a_file_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "t.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        TokenFile(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_what_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_bytes(GOOD.encode() + b"# \xff\n")
    with pytest.raises(ConfigError, match="line 6: is not UTF-8"):
        TokenFile(path)


def test_a_file_that_is_not_there_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        TokenFile(tmp_path / "none.toml")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    one, other = make_token(name="one", role="admin"), make_token(name="other", role="admin")
    file = TokenFile(written(tmp_path / "t.toml", one.token))
    assert file.find(one.text, NOW) == one.token
    written(tmp_path / "t.toml", other.token)
    os.utime(tmp_path / "t.toml", (1, 1))
    assert file.find(other.text, NOW) == other.token
    assert refusal(file.find, one.text) == "the token is not known"


def test_a_file_that_is_spoilt_is_reported_once_and_its_last_good_tokens_hold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = make_token(name="one", role="admin")
    file = TokenFile(written(tmp_path / "t.toml", one.token))
    (tmp_path / "t.toml").write_text("[[token]]\nid = 5\n")
    for _ in range(3):
        assert file.find(one.text, NOW) == one.token
    assert len(caplog.messages) == 1
    assert "line 1: name is missing" in caplog.messages[0]


def test_a_file_that_could_not_be_read_for_a_moment_is_read_again_so_that_a_revoked_token_does_not_hold_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = make_token(name="one", role="admin"), make_token(name="other", role="admin")
    path = written(tmp_path / "t.toml", one.token)
    file = TokenFile(path)
    written(path, other.token)
    os.utime(path, (1, 1))

    def busy(self: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", busy)
        for _ in range(3):
            assert file.find(one.text, NOW) == one.token
    assert [line for line in caplog.messages if "Too many open files" in line] == caplog.messages[:1]
    assert len(caplog.messages) == 1
    assert refusal(file.find, one.text) == "the token is not known"
    assert file.find(other.text, NOW) == other.token


def test_a_file_that_is_gone_or_empty_lets_nobody_in_until_it_is_back(tmp_path: Path) -> None:
    one = make_token(name="one", role="admin")
    path = written(tmp_path / "t.toml", one.token)
    file = TokenFile(path)
    path.rename(tmp_path / "away")
    assert refusal(file.find, one.text) == "the token is not known"
    (tmp_path / "away").rename(path)
    assert file.find(one.text, NOW) == one.token
    path.write_text("")
    assert refusal(file.find, one.text) == "the token is not known"


@pytest.mark.parametrize(("mode", "said"), [(0o600, ""), (0o640, "read"), (0o604, "read"), (0o620, "written")])
def test_a_file_that_others_can_reach_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, said: str
) -> None:
    path = written(tmp_path / "t.toml")
    path.chmod(mode)
    with caplog.at_level(logging.WARNING, "holdfast.api"):
        TokenFile(path)
    assert [f"can be {said} by others" in line for line in caplog.messages] == ([True] if said else [])


# ---------------------------------------------------------------- holdfast token


def test_what_token_new_prints_makes_a_file_that_lets_the_secret_in(tmp_path: Path) -> None:
    made = CliRunner().invoke(
        main, ["token", "new", "--name", "ops", "--role", "viewer", "--tenant", "a", "--days", "1"]
    )
    assert made.exit_code == 0
    path = tmp_path / "t.toml"
    path.write_text(made.stdout)
    path.chmod(0o600)
    secret = next(word for word in made.stderr.split() if word.startswith("hf_"))
    assert secret not in made.stdout
    found = TokenFile(path).find(secret, NOW)
    assert (found.name, found.role, found.tenant) == ("ops", Role.VIEWER, "a")
    assert found.expires_at is not None
    assert CliRunner().invoke(main, ["token", "check", str(path)]).exit_code == 0


def test_token_check_names_what_is_to_be_mended(tmp_path: Path) -> None:
    path = written(tmp_path / "t.toml", make_token(name="old", role="admin", expires_at=5.0).token)
    found = CliRunner().invoke(main, ["token", "check", str(path), "--json"])
    assert found.exit_code == 1
    answer = json.decode(found.stdout)
    assert [token["name"] for token in answer["tokens"]] == ["old"]
    assert "nobody can sign in" in answer["warnings"][0]
    path.write_text("[[token]]\n")
    assert CliRunner().invoke(main, ["token", "check", str(path)]).exit_code == 2
