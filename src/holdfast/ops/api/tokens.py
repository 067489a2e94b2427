"""Tokens: who may ask, in which role, and for which tenant. A file holds their hashes, never the secrets."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import threading
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct

from holdfast.clock import new_secret
from holdfast.errors import ConfigError
from holdfast.ops.api.roles import Principal, Role
from holdfast.ops.text import short

_LOG: Final = logging.getLogger("holdfast.api")
_TOKEN: Final = re.compile(r"hf_([0-9a-f]{12})_([0-9a-f]{32})")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@ -]{0,63}")
_ID: Final = re.compile(r"[0-9a-f]{12}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_HEAD: Final = re.compile(r"^\s*\[\[\s*token\s*\]\]", re.MULTILINE)
_ONE: Final = re.compile(r"^\s*\[?\s*token", re.MULTILINE)
_FIELDS: Final = frozenset({"id", "name", "role", "sha256", "tenant", "expires"})
_NOBODYS: Final = "0" * 64


class BadToken(Exception):
    """Not a token that is known and still holds; the message may be told to whoever sent it."""


class Token(Struct, frozen=True, kw_only=True):
    """One token as it is kept: by the hash of its secret.

    tenant: only this tenant's jobs can be seen and made; None is all of them.
    expires_at: from this instant on (seconds since 1970) it is refused; None is never.
    """

    id: str
    name: str
    role: Role
    sha256: str
    tenant: str | None = None
    expires_at: float | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.id, str) and _ID.fullmatch(self.id)):
            raise ConfigError(f"id={self.id!r}: must be 12 hexadecimal digits, as `holdfast token new` makes them")
        if not (isinstance(self.name, str) and _NAME.fullmatch(self.name)):
            raise ConfigError(f"name={self.name!r}: must be 1 to 64 letters, digits, spaces or . _ @ -")
        if not isinstance(self.role, Role):
            raise ConfigError(f"role={self.role!r}: must be one of {', '.join(Role)}")
        if not (isinstance(self.sha256, str) and _HASH.fullmatch(self.sha256)):
            raise ConfigError("sha256: must be 64 hexadecimal digits, as `holdfast token new` makes them")
        if self.tenant is not None and not (isinstance(self.tenant, str) and 0 < len(self.tenant) <= 200):
            raise ConfigError(f"tenant={self.tenant!r}: must be 1 to 200 characters, or left out")

    @property
    def principal(self) -> Principal:
        """Whom it stands for."""
        return Principal(name=self.name, role=self.role, tenant=self.tenant, token_id=self.id)


class NewToken(NamedTuple):
    """A token that was just made; the text is told once and kept nowhere."""

    text: str
    token: Token


def make_token(*, name: str, role: Role | str, tenant: str | None = None, expires_at: float | None = None) -> NewToken:
    """A new token, with a secret of 128 random bits."""
    id_, secret = new_secret().hex()[:12], new_secret().hex()
    token = Token(id=id_, name=name, role=Role.parse(role), sha256=_hash(secret), tenant=tenant, expires_at=expires_at)
    return NewToken(f"hf_{id_}_{secret}", token)


def lines_of(token: Token) -> str:
    """A token as it stands in a tokens file."""
    lines = [
        "[[token]]",
        f'id = "{token.id}"',
        f'name = "{token.name}"',
        f'role = "{token.role.value}"',
        f'sha256 = "{token.sha256}"',
    ]
    if token.tenant is not None:
        lines.append(f"tenant = {_quoted(token.tenant)}")
    if token.expires_at is not None:
        lines.append(f"expires = {datetime.fromtimestamp(token.expires_at, UTC).strftime('%Y-%m-%dT%H:%M:%SZ')}")
    return "\n".join(lines) + "\n"


class Tokens:
    """Tokens by id; every answer takes the same way, whether there is such an id or not."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._by_id: dict[str, Token] = {}
        for token in tokens:
            if not isinstance(token, Token):
                raise ConfigError(f"tokens: must be a sequence of Token, not {type(token).__name__}")
            if token.id in self._by_id:
                raise ConfigError(f"tokens: the id {token.id} is there twice")
            self._by_id[token.id] = token

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, text: str, now: float) -> Token:
        """The token whose text this is; BadToken when it is unknown or has expired."""
        match = _TOKEN.fullmatch(text)
        id_, secret = match.groups() if match else ("", "")
        token = self._by_id.get(id_)
        # Compared in any case, and in constant time: how long it takes must not tell whether the id is known.
        is_right = hmac.compare_digest(_hash(secret), token.sha256 if token else _NOBODYS)
        if token is None or not is_right:
            raise BadToken("the token is not known")
        if token.expires_at is not None and now >= token.expires_at:
            raise BadToken("the token has expired")
        return token


class TokenFile:
    """The tokens of a TOML file, read again whenever the file changes.

    A file that was good and cannot be read any more is reported, the last good tokens hold, and it is tried again with
    every request; one that is gone lets nobody in. Without one good look there is nothing to hold on to, so the first
    one raises ConfigError.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] = ()
        self._tokens = Tokens(())
        self._told = ""
        seen = self._look()
        if not seen:
            raise ConfigError(f"tokens: there is no file {self.path}")
        self._tokens = Tokens(read_tokens(self.path))
        self._seen = seen
        for line in warnings_about(self.path):
            _LOG.warning(line)

    def __len__(self) -> int:
        return len(self._tokens)

    def find(self, text: str, now: float) -> Token:
        """The token whose text this is, as the file stands now; BadToken when it is unknown or has expired."""
        if self._look() != self._seen:
            self._read_again()
        return self._tokens.find(text, now)

    def _look(self) -> tuple[int, ...]:
        """What tells one state of the file from another; empty when it is not there."""
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def _read_again(self) -> None:
        with self._lock:
            seen = self._look()  # before reading: a change during it is seen next time
            if seen == self._seen:
                return
            if not seen:
                self._tokens, self._seen, self._told = Tokens(()), seen, ""
                _LOG.error("the tokens file %s is gone: nobody can sign in until it is back", self.path)
                return
            try:
                self._tokens = Tokens(read_tokens(self.path))
            except ConfigError as error:
                # Not seen: it is read again next time, since what was in the way may be gone by then, and a token that
                # was revoked must not hold on because of it.
                if self._told != str(error):
                    self._told = str(error)
                    _LOG.error("%s; the tokens read before still hold", error)
                return
            self._seen, self._told = seen, ""
            _LOG.info("read %d tokens from %s", len(self._tokens), self.path)
        for line in warnings_about(self.path):
            _LOG.warning(line)


def read_tokens(path: Path) -> Sequence[Token]:
    """The tokens of a file; ConfigError names the line that cannot be used."""
    try:
        data = path.read_bytes()
        text = data.decode()
        found = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    if others := sorted(set(found) - {"token"}):
        raise ConfigError(f"{path}: {others[0]}: only [[token]] tables are known")
    tables = found.get("token", [])
    if not isinstance(tables, list):
        raise ConfigError(f"{path}, line {_line(text, _ONE, 0)}: write [[token]], in double brackets")
    tokens: dict[str, Token] = {}
    for number, table in enumerate(tables):
        where = f"{path}, line {_line(text, _HEAD, number)}"
        try:
            token = _token_of(table)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        if token.id in tokens:
            raise ConfigError(f"{where}: the id {token.id} is there twice")
        tokens[token.id] = token
    return list(tokens.values())


def warnings_about(path: Path) -> list[str]:
    """What people should know about a tokens file; one line each."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return []
    if mode & 0o022:
        return [f"{path} can be written by others, who can let themselves in: chmod 600 {path}"]
    if mode & 0o044:
        return [f"{path} can be read by others: chmod 600 {path}"]
    return []


def _token_of(table: Any) -> Token:
    if not isinstance(table, Mapping):
        raise ConfigError("must be a table of id, name, role and sha256")
    if others := sorted(set(table) - _FIELDS):
        raise ConfigError(f"{short(others[0])}: no such field; there are {', '.join(sorted(_FIELDS))}")
    for field in ("id", "name", "role", "sha256"):
        if field not in table:
            raise ConfigError(f"{field} is missing")
    return Token(
        id=table["id"],
        name=table["name"],
        role=Role.parse(table["role"]),
        sha256=table["sha256"],
        tenant=table.get("tenant"),
        expires_at=_instant(table.get("expires")),
    )


def _instant(value: Any) -> float | None:
    """An RFC 3339 date with its time and zone, as TOML has it or in quotes."""
    if value is None:
        return None
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        if found.tzinfo is None:
            raise ValueError
        return found.timestamp()
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"expires={value!s}: must be a date with time and zone, like 2026-02-14T09:00:00Z") from None


def _line(text: str, pattern: re.Pattern[str], number: int) -> int:
    """The line of the so-manieth match."""
    starts = [match.end() for match in pattern.finditer(text)]
    return text.count("\n", 0, starts[number]) + 1 if number < len(starts) else 1


def _hash(secret: str) -> str:
    """A secret of 128 random bits needs no slow hash: there is nothing to guess."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _quoted(text: str) -> str:
    """A TOML string."""
    return '"' + "".join(one if one.isprintable() and one not in '"\\' else f"\\U{ord(one):08x}" for one in text) + '"'
