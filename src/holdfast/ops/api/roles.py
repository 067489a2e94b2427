"""Who is asking, and what a role may do."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from holdfast.errors import ConfigError


class Role(StrEnum):
    """What somebody may do; each may do all that the ones before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @classmethod
    def parse(cls, text: object) -> Role:
        """A role by its name; ConfigError when there is none of it."""
        try:
            return cls(text)  # type: ignore[arg-type]
        except ValueError:
            raise ConfigError(f"role={text!r}: must be one of {', '.join(cls)}") from None

    def may(self, wanted: Role) -> bool:
        """Whether it may do what the wanted one may."""
        return _RANKS[self] >= _RANKS[wanted]


_RANKS: Final = {role: rank for rank, role in enumerate(Role)}


class Principal(Struct, frozen=True, kw_only=True):
    """Who is asking. With a tenant, only what is that tenant's is theirs to see.

    token_id: the id of their token, which unlike the name no other has; empty where none was asked for.
    """

    name: str
    role: Role
    tenant: str | None = None
    token_id: str = ""


LOCAL: Final = Principal(name="local", role=Role.ADMIN)
"""Whoever asks from this machine, where no tokens are asked for."""
