"""What every request passes before a route sees it: Host, credentials, limits, Origin, body; what every answer gets."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.clock import SystemClock
from holdfast.ops.api.access import (
    ADDRESS,
    GUARD,
    PRINCIPAL,
    SCHEME,
    cookie_name,
    is_change,
    is_open,
    is_public,
    unknown,
)
from holdfast.ops.api.audit import AUDIT, AuditTrail
from holdfast.ops.api.bodies import Bodies, Gone, read_again
from holdfast.ops.api.limits import BadBody, Buckets, Places, caller_key, check_json
from holdfast.ops.api.origins import host_of, is_same_origin
from holdfast.ops.api.problems import ProblemError, problem, unexpected
from holdfast.ops.api.roles import LOCAL, Principal
from holdfast.ops.api.settings import LOOPBACK_NAMES, ApiSettings, rate_of
from holdfast.ops.api.tokens import BadToken, TokenFile, Tokens

if TYPE_CHECKING:
    from holdfast.ports import Clock

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The page's content security policy: its own files and nothing else."""
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What every answer has."""

_RAW_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
_NO_STORE: Final = (b"cache-control", b"no-store")
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOKED_AT: Final = frozenset(
    b"host origin authorization cookie content-type content-length transfer-encoding sec-fetch-site sec-fetch-mode "
    b"forwarded via x-real-ip x-forwarded-for x-forwarded-host x-forwarded-proto".split()
)
_BY_PROXIES: Final = ("forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")
_MAX_COOKIES: Final = 20
_SESSION: Final = "/session"
_SESSION_BODY: Final = 1024
_SESSION_BODY_S: Final = 3.0
"""Whoever signs in is not known yet, and a token is short."""
_STRANGERS_EACH: Final = 16
_STRANGERS_BYTES: Final = 1_048_576
"""Bodies on their way of people who are not known: of one address, and in all."""
_EVENTS: Final = "/events"
_LEAST_STREAMS: Final = 20
_LARGE_BODY: Final = 65_536
"""Bytes from which on a body is looked through on a thread, so that others are answered meanwhile."""
_NO_TOKENS: Final = "this server has no tokens, so it answers to this machine alone; give it some: holdfast token new"

Headers = dict[str, list[str]]


class Guard:
    """ASGI middleware; see the module. `trail` remembers who was refused and what was done."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ApiSettings,
        *,
        trail: AuditTrail | None = None,
        clock: Clock | None = None,
        bodies: Bodies | None = None,
    ) -> None:
        self._app = app
        self._settings = settings
        self._trail = trail or AuditTrail()
        self._clock = clock or SystemClock()
        self._bodies = bodies or Bodies(self._clock)
        self._tokens = settings.tokens if isinstance(settings.tokens, TokenFile) else Tokens(settings.tokens)
        self._hosts = LOOPBACK_NAMES | set(settings.hosts)
        self._reads = Buckets(rate_of("read_rate", settings.read_rate))
        self._changes = Buckets(rate_of("rate", settings.rate))
        self._submits = Buckets(rate_of("submit_rate", settings.submit_rate))
        self._wrong = Buckets(rate_of("login_rate", settings.login_rate))
        self._sign_ins = Buckets(rate_of("login_rate", settings.login_rate))
        self._strangers = Places(each=_STRANGERS_EACH, all_together=_STRANGERS_BYTES)
        self._streams = Places(each=max(_LEAST_STREAMS, settings.max_clients // 5))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse it, or let it through."""
        if scope["type"] == "websocket":  # there are none
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        method: str = scope["method"]
        path = _path(scope)
        scope[GUARD], scope[AUDIT] = self, self._trail
        scope[PRINCIPAL] = None
        scope[ADDRESS], scope[SCHEME] = self._place(scope, headers)
        send = self._dressed(scope, path, headers, send)
        try:
            self._check(scope, headers, method, path)
            if method not in _READING:
                receive = await self._with_body(scope, headers, path, receive)
        except ProblemError as error:
            answer = problem(error.status, error.detail, retry_after=error.retry_after, headers=error.headers)
            await answer(scope, receive, send)
        except Gone:
            return
        else:
            if path == _EVENTS:
                await self._pass_stream(scope, receive, send)
            else:
                await self._pass(scope, receive, send)

    async def _pass_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The same for one that lasts: nobody may take the places of all others. This machine alone has nobody else."""
        principal = scope[PRINCIPAL]
        if principal is LOCAL:
            await self._pass(scope, receive, send)
            return
        with self._streams.taken(_caller(principal, scope[ADDRESS])) as is_taken:
            if is_taken:
                await self._pass(scope, receive, send)
                return
        await problem(429, "this token listens too often already", retry_after=5.0)(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """To the routes. What they break with is answered here, so that this answer has its headers too."""
        is_begun = False

        async def noted(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            if is_begun:
                raise
            await unexpected(error, f"{scope['method']} {_path(scope)}")(scope, receive, send)

    def sign_in(self, scope: Scope, text: str) -> Principal:
        """Whom a token stands for; 401 when it is not good, 429 after too many that were not."""
        try:
            return self._tokens.find(text, self._clock.now()).principal
        except BadToken as error:
            wait_s = self._wrong.take(caller_key(scope[ADDRESS]), self._clock.monotonic())
            if wait_s > 0.0:
                raise ProblemError(429, "too many wrong tokens from this address", retry_after=wait_s) from None
            raise unknown(str(error)) from None

    def is_still_good(self, scope: Scope) -> bool:
        """Whether the credential of a request that was let in still stands for the same principal."""
        if not self._settings.has_tokens:
            return True  # nothing can be taken back
        headers = _headers(scope)
        for text in [_bearer(headers)] if "authorization" in headers else _sessions(scope, headers):
            try:
                if self._tokens.find(text, self._clock.now()).principal == scope[PRINCIPAL]:
                    return True
            except BadToken:
                continue
        return False

    # ---------------------------------------------------------------- in the order in which it is asked

    def _check(self, scope: Scope, headers: Headers, method: str, path: str) -> None:
        host = self._check_host(headers)
        if is_public(method, path):
            principal, is_bearer = None, False
        else:
            principal, is_bearer = self._principal(scope, headers, is_open(method, path))
        scope[PRINCIPAL] = principal
        self._check_rate(principal, scope[ADDRESS], method, path)
        if principal is None and not (is_open(method, path) and self._can_sign_in(method, path)):
            is_closed = self._settings.is_loopback and not self._settings.has_tokens
            raise unknown(
                _NO_TOKENS if is_closed else "sign in, or send a token in the header Authorization, after Bearer"
            )
        if not is_bearer:
            if not is_same_origin(method, headers, host, scope[SCHEME]):
                raise ProblemError(403, "this came from the page of another site")
            if _is_unsaid(scope, headers):
                raise ProblemError(403, "a change by cookie needs the header Origin, or a token in Authorization")
        if self._settings.read_only and is_change(method, path):
            raise ProblemError(403, "this API is read-only")

    def _can_sign_in(self, method: str, path: str) -> bool:
        """Whoever asks who they are is told to sign in only where that can be done."""
        return self._settings.has_tokens or path != _SESSION or method not in _READING

    def _check_host(self, headers: Headers) -> str:
        """Another name in Host than ours is a page of somebody else whose name leads here: DNS rebinding."""
        forwarded = headers.get("x-forwarded-host") if self._settings.trusts_proxy else None
        named = [forwarded[-1].rpartition(",")[2].strip()] if forwarded else headers.get("host", [])
        host = host_of(named[0]) if len(named) == 1 else None
        if host is None:
            raise ProblemError(400, "one Host header is needed, with a name and perhaps a port")
        if host not in self._hosts:
            raise ProblemError(421, "this server does not go by that name; holdfast serve --allow-host adds one")
        return named[0]

    def _principal(self, scope: Scope, headers: Headers, is_open_path: bool) -> tuple[Principal | None, bool]:
        """Who is asking, and whether it is by a header that no other site can make a browser send."""
        if "authorization" in headers:
            if not self._settings.has_tokens:
                return self._local(scope, headers), False
            return self.sign_in(scope, _bearer(headers)), True
        if not self._settings.has_tokens:
            return self._local(scope, headers), False
        if cookies := _sessions(scope, headers):
            return self._by_cookie(scope, cookies, is_open_path), False
        return None, False

    def _by_cookie(self, scope: Scope, cookies: list[str], is_open_path: bool) -> Principal | None:
        """By the first cookie that is good: another server of this host name may have set one beside ours."""
        for text in cookies[:-1]:
            try:
                return self._tokens.find(text, self._clock.now()).principal
            except BadToken:
                continue
        try:
            return self.sign_in(scope, cookies[-1])
        except ProblemError:
            if is_open_path:  # the page must load, and signing in again must work, with a cookie that has expired
                return None
            raise

    def _local(self, scope: Scope, headers: Headers) -> Principal | None:
        """Without tokens: whoever is on this machine, and did not come through a proxy on it."""
        if not self._settings.is_loopback or not _is_loopback(scope[ADDRESS]):
            return None
        if not self._settings.trusts_proxy and any(name in headers for name in _BY_PROXIES):
            return None
        return LOCAL

    def _check_rate(self, principal: Principal | None, address: str, method: str, path: str) -> None:
        key = _caller(principal, address)
        if method == "POST" and path == _SESSION:
            buckets, key = self._sign_ins, caller_key(address)
        elif not is_change(method, path):
            buckets = self._reads
        elif path == "/jobs":
            buckets = self._submits
        else:
            buckets = self._changes
        wait_s = buckets.take(key, self._clock.monotonic())
        if wait_s > 0.0:
            raise ProblemError(429, "too many requests", retry_after=wait_s)

    async def _with_body(self, scope: Scope, headers: Headers, path: str, receive: Receive) -> Receive:
        """The body, read here: whole, in time, no larger than allowed, and JSON that means one thing."""
        limit, within_s = self._settings.max_body, self._settings.body_s
        if path == _SESSION:
            limit, within_s = min(limit, _SESSION_BODY), min(within_s, _SESSION_BODY_S)
        size = headers.get("content-length", ["0"])[0]
        if size.isdecimal() and int(size) > limit:
            raise ProblemError(413, f"the body is larger than {limit} bytes")
        if "transfer-encoding" not in headers and not size.strip("0"):
            return receive
        kind = headers.get("content-type", [""])[0].partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ProblemError(415, "the body must be application/json")
        if scope[PRINCIPAL] is None:
            with self._strangers.taken(caller_key(scope[ADDRESS]), limit) as is_taken:
                if not is_taken:
                    raise ProblemError(429, "too many are signing in at this moment", retry_after=within_s)
                body = await self._bodies.read(receive, limit, within_s)
        else:
            body = await self._bodies.read(receive, limit, within_s)
        try:
            if len(body) > _LARGE_BODY:
                await asyncio.to_thread(check_json, body)
            elif body:
                check_json(body)
        except BadBody as error:
            raise ProblemError(422, str(error)) from None
        return read_again(body, receive)

    # ---------------------------------------------------------------- out

    def _dressed(self, scope: Scope, path: str, headers: Headers, send: Send) -> Send:
        """Every answer gets the security headers; one that refuses a change, or a credential, is written down."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message.get("headers", [])
                message["headers"] = [*given, *_RAW_HEADERS]
                if not any(name.lower() == b"cache-control" for name, _ in given):
                    message["headers"].append(_NO_STORE)
                if message["status"] in {401, 403} and (
                    scope["method"] not in _READING or "authorization" in headers or _sessions(scope, headers)
                ):
                    self._trail.refused(scope, path, message["status"])
            await send(message)

        return sent

    def _place(self, scope: Scope, headers: Headers) -> tuple[str, str]:
        """The address and scheme of the caller: as the connection has it, or as a trusted proxy says."""
        client = scope.get("client")
        address = str(client[0]) if client else ""
        scheme = str(scope.get("scheme", "http"))
        if self._settings.trusts_proxy:
            if "x-forwarded-for" in headers:
                address = headers["x-forwarded-for"][-1].rpartition(",")[2].strip()
            if "x-forwarded-proto" in headers:
                scheme = headers["x-forwarded-proto"][-1].rpartition(",")[2].strip().lower()
        return address, scheme


def _path(scope: Scope) -> str:
    """The path below where the API is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path or "/"


def _headers(scope: Scope) -> Headers:
    """The headers that are looked at here, each with all its values."""
    found: Headers = {}
    for name, value in scope["headers"]:
        if name in _LOOKED_AT:
            found.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    return found


def _bearer(headers: Headers) -> str:
    """The token in the header Authorization; empty where there is none, or more than one."""
    given = headers["authorization"]
    scheme, _, text = given[0].partition(" ")
    return text.strip() if len(given) == 1 and scheme.lower() == "bearer" else ""


def _caller(principal: Principal | None, address: str) -> str:
    """Whoever is limited by themselves: a token, or where none is asked for an address."""
    return f"token {principal.token_id}" if principal is not None and principal.token_id else caller_key(address)


def _sessions(scope: Scope, headers: Headers) -> list[str]:
    """The values of our cookie; more than a few are somebody's play."""
    ours = cookie_name(scope)
    found = []
    for line in headers.get("cookie", ()):
        for pair in line.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == ours:
                found.append(value.strip('"'))
    return found[:_MAX_COOKIES]


def _is_unsaid(scope: Scope, headers: Headers) -> bool:
    """Whether a cookie came without a word about the page that sent it; every browser of today says one."""
    is_said = "origin" in headers or "sec-fetch-site" in headers
    return scope["method"] not in _READING and not is_said and bool(_sessions(scope, headers))


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool(found.is_loopback or (mapped is not None and mapped.is_loopback))
