"""Where the dead letters and the checkpoints of one consumer go, from what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.errors import ConfigError
from holdfast.ports import Clock
from holdfast.ring.checkpoints import Checkpoints, file_checkpoints, store_checkpoints
from holdfast.ring.given_up import Encode, Letters
from holdfast.ring.json_lines import file_letters
from holdfast.ring.letters import inbox_letters

if TYPE_CHECKING:
    from holdfast.app import App

Wanted = bool | str | Path | None
"""True for the app, a path for a file, None for nowhere."""


class Place(Struct, frozen=True):
    """A consumer of a ring, which may have an app."""

    ring: str
    consumer: str
    app: App | None

    def letters(self, wanted: Wanted, encode: Encode | None) -> Letters | None:
        """Where its dead letters go."""
        if wanted is None or wanted is False:
            return None
        if wanted is True:
            app = self._needed_app("dead_letters")
            return inbox_letters(app, ring=self.ring, consumer=self.consumer, encode=encode)
        path = checked_path("dead_letters", wanted)
        return file_letters(path, ring=self.ring, consumer=self.consumer, encode=encode)

    def checkpoints(self, wanted: Wanted, clock: Clock) -> Checkpoints | None:
        """Where it is remembered how far it is."""
        if wanted is None or wanted is False:
            return None
        if wanted is True:
            return store_checkpoints(self._needed_app("checkpoint"), ring=self.ring, consumer=self.consumer)
        path = checked_path("checkpoint", wanted)
        return file_checkpoints(path, ring=self.ring, consumer=self.consumer, clock=clock)

    def _needed_app(self, field: str) -> App:
        if self.app is None:
            raise ConfigError(f"{field}=True: needs Disruptor(app=…); give a path instead to do without one")
        return self.app


def checked_path(field: str, value: object) -> Path:
    """A path; ConfigError for anything else."""
    if isinstance(value, str | Path) and str(value):
        return Path(value)
    raise ConfigError(f"{field}={value!r}: must be a path, True or None")
