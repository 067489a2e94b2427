"""What a route asks about whoever calls it: who they are, and whether they may.

The guard has looked at the request before any route sees it, and left what it found in the request's scope.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from starlette.requests import Request
from starlette.types import Scope

from holdfast.ops.api.problems import ProblemError
from holdfast.ops.api.roles import Principal, Role

if TYPE_CHECKING:
    from holdfast.ops.api.guard import Guard

__all__ = [
    "ADDRESS",
    "COOKIE",
    "GUARD",
    "HOST_COOKIE",
    "PRINCIPAL",
    "SCHEME",
    "Principal",
    "Role",
    "SignedIn",
    "address_of",
    "allowed",
    "cookie_name",
    "is_change",
    "is_open",
    "is_public",
    "is_still_allowed",
    "needs",
    "principal_of",
    "sign_in",
    "sign_out_cookie",
    "unknown",
]

PRINCIPAL: Final = "holdfast.principal"
"""Where in the scope the Principal is; None where nobody said who they are."""
ADDRESS: Final = "holdfast.address"
SCHEME: Final = "holdfast.scheme"
GUARD: Final = "holdfast.guard"
COOKIE: Final = "holdfast_session"
"""The cookie of a browser that has signed in."""
HOST_COOKIE: Final = "__Host-holdfast"
"""The same over TLS at the root of a host: browsers let no other host, and nobody without TLS, set one of this name."""
CHALLENGE: Final = 'Bearer realm="holdfast"'

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN: Final = frozenset(
    {"/", "/index.html", "/favicon.svg", "/theme.js", "/openapi.json", "/health/live", "/health/ready"}
)
_ASSETS: Final = "/assets/"
_VALIDATE: Final = re.compile(r"/tasks/.+/validate", re.DOTALL)


def is_public(method: str, path: str) -> bool:
    """Whether it is the same for all, so that no credential is looked at: the page itself, its document, liveness."""
    return method in _READING and (path in _OPEN or path.startswith(_ASSETS))


def is_open(method: str, path: str) -> bool:
    """Whether anybody may ask this: what is public, signing in or out, and who one is. All else needs a principal."""
    return path == "/session" or is_public(method, path)


def is_change(method: str, path: str) -> bool:
    """Whether it changes what is in the store; a read-only API refuses it."""
    if method in _READING or path == "/session":
        return False
    return not (method == "POST" and (path == "/replays/preview" or _VALIDATE.fullmatch(path)))


def principal_of(request: Request) -> Principal:
    """Who is asking; 401 where nobody said."""
    return allowed(request.scope, Role.VIEWER)


def address_of(request: Request) -> str:
    """Where the request came from."""
    found: str = request.scope.get(ADDRESS, "")
    return found


def needs(role: Role | str, *, is_fleet: bool = False) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency of a route: at least this role, or 401 or 403.

    is_fleet: it is about the whole fleet, so a token of one tenant is refused, whatever its role.
    """
    wanted = Role.parse(role)

    async def check(request: Request) -> Principal:
        return allowed(request.scope, wanted, is_fleet=is_fleet)

    return check


def allowed(scope: Scope, role: Role, *, is_fleet: bool = False) -> Principal:
    """The same for a route without dependencies."""
    principal: Principal | None = scope.get(PRINCIPAL)
    if principal is None:
        raise unknown("sign in, or send a token: Authorization: Bearer hf_…")
    if not principal.role.may(role):
        raise ProblemError(403, f"this needs the role {role.value}, and {principal.name} is {principal.role.value}")
    if is_fleet and principal.tenant is not None:
        raise ProblemError(403, "this is about all tenants, and the token is for one of them")
    return principal


def is_still_allowed(request: Request) -> bool:
    """Whether the credential of a request that has been let in holds still: long streams ask now and then."""
    guard: Guard = request.scope[GUARD]
    return guard.is_still_good(request.scope)


class SignedIn(Struct, frozen=True, kw_only=True):
    """Somebody who has shown a good token, and the Set-Cookie header that remembers it."""

    principal: Principal
    cookie: str


def sign_in(request: Request, token: str) -> SignedIn:
    """Sign in with a token; 401 when it is not good, 429 after too many that were not."""
    guard: Guard = request.scope[GUARD]
    principal = guard.sign_in(request.scope, token)
    return SignedIn(principal=principal, cookie=_cookie(request.scope, token))


def sign_out_cookie(request: Request) -> str:
    """The Set-Cookie header that makes a browser forget the token."""
    return _cookie(request.scope, "") + "; Max-Age=0"


def unknown(detail: str) -> ProblemError:
    """401."""
    return ProblemError(401, detail, headers={"WWW-Authenticate": CHALLENGE})


def cookie_name(scope: Scope) -> str:
    """The name of the cookie where this request came to."""
    return HOST_COOKIE if _is_https(scope) and _cookie_path(scope) == "/" else COOKIE


def _cookie(scope: Scope, value: str) -> str:
    """Scripts cannot read it, other sites cannot send it, and where there is TLS it is not sent without."""
    secure = "; Secure" if _is_https(scope) else ""
    return f"{cookie_name(scope)}={value}; Path={_cookie_path(scope)}; HttpOnly; SameSite=Strict{secure}"


def _is_https(scope: Scope) -> bool:
    return bool(scope.get(SCHEME, scope.get("scheme")) == "https")


def _cookie_path(scope: Scope) -> str:
    return _path_value(scope.get("root_path") or "/")


def _path_value(path: str) -> str:
    """A path as a cookie may have it: nothing in it ends the attribute."""
    return "".join(one if one.isascii() and one.isprintable() and one not in ";, " else "" for one in path) or "/"
