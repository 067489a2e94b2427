"""What errors of the server become."""

from __future__ import annotations

import pytest
from redis import exceptions

from holdfast.errors import SourceAway, SourceError
from holdfast.streams.redis_streams.faults import NoGroup, is_for_another, translated


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (exceptions.OutOfMemoryError("command not allowed"), SourceAway, "memory is full"),
        (exceptions.ResponseError("ERR Error running script: @user_script: 1: -OOM command"), SourceAway, "memory"),
        (exceptions.BusyLoadingError("Redis is loading"), SourceAway, "reading its data"),
        (exceptions.ReadOnlyError("You can't write"), SourceAway, "replica"),
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file"), SourceAway, "disk"),
        (exceptions.AuthenticationError("invalid username-password pair"), SourceError, "password is wrong"),
        (exceptions.AuthenticationError("Authentication required."), SourceError, "wants a password"),
        (exceptions.NoPermissionError("no permissions"), SourceError, "may not do that"),
        (exceptions.ResponseError("WRONGTYPE Operation against a key"), SourceError, "no stream"),
        (exceptions.ResponseError("DB index is out of range"), SourceError, "no database"),
        (exceptions.ClusterCrossSlotError("Keys in request"), SourceError, "{orders}"),
        (exceptions.ResponseError("NOGROUP No such key 'o'"), NoGroup, "is made again"),
        (exceptions.ResponseError("UNBLOCKED the stream key no longer exists"), NoGroup, "is made again"),
        (exceptions.TimeoutError("Timeout reading from socket"), SourceAway, "no answer in time"),
        (exceptions.ConnectionError("refused"), SourceAway, "cannot be reached (refused)"),
        (OSError(32, "Broken pipe"), SourceAway, "cannot be reached"),
        (exceptions.ResponseError("ERR of\nno kind"), SourceError, "ResponseError: ERR of no kind"),
    ],
)
def test_an_error_says_what_would_help_and_whether_waiting_does(
    error: Exception, kind: type[SourceError], says: str
) -> None:
    told = translated(error, "redis://host/orders")
    assert type(told) is kind
    assert says in str(told)
    assert str(told).startswith("redis://host/orders: ")
    assert "\n" not in str(told)


def test_after_a_failover_another_server_may_take_it() -> None:
    assert is_for_another(exceptions.ReadOnlyError("x"))
    assert is_for_another(exceptions.MovedError("1 127.0.0.1:1"))
    assert not is_for_another(exceptions.BusyLoadingError("x"))
