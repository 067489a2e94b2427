"""What goes wrong with a request, as errors of ours whose causes come from a closed set."""

from __future__ import annotations

import errno
import ssl
from typing import Final

from holdfast.crawl.connecting import NotAllowed
from holdfast.crawl.extras import wanted
from holdfast.errors import FetchFailed, PageError, PageRefused

with wanted():
    import aiohttp

_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""This machine is short of something, for which no site is to blame."""
_CODES: Final = {
    errno.ECONNREFUSED: "connection refused",
    errno.ETIMEDOUT: "time limit",
    errno.EHOSTUNREACH: "no route",
    errno.ENETUNREACH: "no route",
    errno.EHOSTDOWN: "no route",
}
_CERTIFICATES: Final = {
    9: "certificate not valid yet",
    10: "certificate expired",
    62: "certificate of another name",
    64: "certificate of another name",
}
"""By OpenSSL's codes; all others are of authorities that nobody here trusts."""


def page_error(error: Exception, url: str) -> PageError:
    """The error of ours for one that a request to this URL ended with.

    An OSError that says that this machine has no files, memory or ports left is raised as it is: no breaker may
    count it.
    """
    if isinstance(error, PageError):
        return error
    below = _below(error)
    if isinstance(below, NotAllowed):
        return refused(url, "address not allowed", str(below))
    if isinstance(error, aiohttp.InvalidURL):
        return refused(url, "no usable address", str(error))
    if isinstance(below, ssl.SSLCertVerificationError):
        what = _CERTIFICATES.get(below.verify_code, "certificate not trusted")
        return _failed(url, f"TLS: {what}", below.verify_message or str(below), is_permanent=True)
    if isinstance(below, OSError) and below.errno in _OURS:
        raise below
    return _failed(url, _cause(error, below), str(error) or type(error).__name__)


def refused(url: str, cause: str, what: str) -> PageRefused:
    """A page that breaks a rule of ours."""
    return PageRefused(f"{url}: {_line(what)}", url=url, cause=f"{_domain(url)}: {cause}")


def _failed(url: str, cause: str, what: str, *, is_permanent: bool = False) -> FetchFailed:
    return FetchFailed(
        f"{url}: {cause}: {_line(what)}", url=url, cause=f"{_domain(url)}: {cause}", is_permanent=is_permanent
    )


def _below(error: BaseException) -> BaseException:
    """The system's own error, where aiohttp has put one of its kind around it."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error
    return error


def _cause(error: Exception, below: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "time limit"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no address"
    if isinstance(below, ssl.SSLError):
        return "TLS: handshake failed"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "truncated"
    if isinstance(error, aiohttp.ClientResponseError):
        return "not HTTP"
    code = below.errno if isinstance(below, OSError) else None
    return _CODES.get(code, "connection reset") if code is not None else "connection reset"


def _domain(url: str) -> str:
    """As `domain_of`, but of anything: what is refused need not be a URL."""
    parts = url.split("/", 3)
    return parts[2] if len(parts) > 2 else "nowhere"


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
