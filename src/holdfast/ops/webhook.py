"""Webhook: notices as signed POST requests, under a policy of their own, and never into an inner network."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from holdfast.addresses import AddressGuard, Resolve, networks, place_of, resolve
from holdfast.clock import SystemClock
from holdfast.errors import ConfigError, Permanent, RateLimited, Transient
from holdfast.fingerprint import in_a_line
from holdfast.ops.request import Answer, Request
from holdfast.ops.signing import checked_secret, headers_for
from holdfast.policy import bounds
from holdfast.policy.backoff import Backoff
from holdfast.policy.known_codes import meaning_of_status
from holdfast.policy.notices import Notice
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Clock
from holdfast.redact import redacted_text
from holdfast.runtime.aside import aside
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.guards.policy import Policy
from holdfast.types import FailureType

if TYPE_CHECKING:
    from holdfast.runtime.alerts import Target

TOTAL_S: Final = 60.0
"""For how long a notice is tried at once; an alert that could not be told comes again later."""
_RETRY: Final = RetryPolicy(
    max_retries=3,
    initial_delay=1.0,
    max_delay=10.0,
    total_timeout=TOTAL_S,
    per_failure={FailureType.RATE_LIMITED: Backoff(initial_delay=5.0, max_delay=30.0)},
)
_SHOWN: Final = 200
_TOO_MANY: Final = 429

_encode = msgspec.json.Encoder().encode


class Webhook:
    """Sends notices to a URL: one POST of JSON each, which the receiver checks with `verify`.

    url: http or https, without a user name. secret: what requests are signed with, at least 16 characters.
    timeout: seconds for one request, from the look-up of the name to the end of the answer [10].
    allow: networks that may be connected to though they are not public, such as ("10.0.0.0/8",). Loopback, private,
        link-local, shared, multicast and reserved addresses are refused otherwise, at the time of the connection.
    tls: the context for https [the machine's certificates].
    resolve: from a host and a port to addresses [the machine's resolver].

    Redirects are not followed, proxies of the environment are not used, and of an answer 64 kB are read. A failure that
    can heal is tried again, three times within a minute; after five in a row the host is left alone for 30 s.
    """

    def __init__(
        self,
        url: str,
        secret: str | bytes,
        *,
        timeout: float = 10.0,
        allow: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
        resolve: Resolve = resolve,
        clock: Clock | None = None,
    ) -> None:
        self._place = place_of("url", url)
        self.key: Final = f"webhook {self._place.host} {sha256(url.encode()).hexdigest()[:16]}"
        """The same for the same URL, without what may be secret in it."""
        self._key = checked_secret(secret)
        self._clock: Clock = clock or SystemClock()
        self._guard = AddressGuard(networks("allow", allow), resolve)
        self._tls = tls
        if self._guard.refuses_literal(self._place.host):
            raise ConfigError(f"url: {self._place.host} may not be connected to; allow=(…) names what may be")
        self._timeout_s = bounds.length("timeout", timeout, above=0.0)
        self._policy = Policy(
            retry=_RETRY,
            breaker=CircuitBreaker(self._place.host, clock=self._clock),
            timeout=self._timeout_s,
            clock=self._clock,
        )

    async def deliver(self, notice: Notice) -> None:
        """Send it; raises what the last try came to, or CircuitOpenError while the host is left alone."""
        body = _encode(replace(notice, name=redacted_text(notice.name), text=redacted_text(notice.text)))
        await self._policy.acall(self._post, notice.id, body)

    async def _post(self, id: str, body: bytes) -> None:  # noqa: A002
        headers = {"Content-Type": "application/json", **headers_for(id, body, self._key, self._clock.now())}
        request = Request(
            self._place,
            method="POST",
            body=body,
            headers=headers,
            guard=self._guard,
            context=self._tls,
            idle_s=self._timeout_s,
        )
        try:
            answer = await asyncio.wrap_future(aside(request.send, f"holdfast-webhook-{id}"))
        finally:
            request.cut()  # the time limit ends this coroutine alone, and the thread must not outlive it
        self._judge(answer)

    def _judge(self, answer: Answer) -> None:
        if 200 <= answer.status < 300:
            return
        said = in_a_line(redacted_text(answer.body[:_SHOWN].decode("utf-8", "replace")))
        text = f"{self._place.shown} answered {answer.status}: {said}"
        if answer.status == _TOO_MANY:
            raise RateLimited(text, retry_after=answer.headers.get("retry-after"))
        if answer.status < 400:
            raise Permanent(f"{self._place.shown} answered {answer.status}; redirects are not followed")
        if meaning_of_status(answer.status).type.is_retriable:
            raise Transient(text, retry_after=answer.headers.get("retry-after"))
        raise Permanent(text)

    def __repr__(self) -> str:
        return f"Webhook({self._place.shown})"


if TYPE_CHECKING:
    _contract: type[Target] = Webhook
