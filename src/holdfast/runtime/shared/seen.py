"""What one reader has seen of a store's values, and when it must not go by that any more."""

from __future__ import annotations

from holdfast.ports import Exchanged


class Seen:
    """How far one reader knows the values of a store.

    A store that was set back, by a failover that lost writes or by a backup, gives versions again that were seen
    already, to other changes. So whoever hears of an older version than it knows, or may have another server before it,
    reads all values anew: once, with the next exchange.
    """

    def __init__(self) -> None:
        self.version = 0
        """The newest one that is known, for `Exchange.seen`; 0: all values are asked for."""
        self._era: int | None = None

    def hear(self, asked: int, reply: Exchanged) -> bool:
        """Take note of the answer to an exchange that asked with this version; whether its values are all there are.

        Then what is known and not among them is gone.
        """
        is_past = reply.newest < asked or self._era not in (None, reply.era)
        self._era = reply.era
        if asked == 0 or (self.version > 0 and not is_past):  # a doubt that came meanwhile stays
            self.version = max((value.version for value in reply.values), default=self.version)
        else:
            self.version = 0
        return asked == 0

    def doubt(self) -> None:
        """Something that is known turned out to be wrong: read all values anew."""
        self.version = 0
