"""Lags and replays of DLQ topics on real servers, without a worker."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import App
from holdfast.runtime.streams.letters import letter_id
from holdfast.runtime.streams.passage import from_retry, to_dlq
from holdfast.types import Attempt, Change, Message, Outgoing


@pytest.fixture(params=["kafka", "redis", "redis, sharded"])
def url(request: pytest.FixtureRequest) -> str:
    """A stream's URL, whose topic is `orders-…`."""
    if request.param == "kafka":
        found: str = request.getfixturevalue("kafka_topic").url
        return found
    server: str = request.getfixturevalue("redis_url").partition("?")[0].rpartition("/")[0]
    shards = "?shards=2" if "sharded" in request.param else ""
    return f"{server}/orders-{request.param.replace(', ', '-')}{shards}"


def app_with(url: str) -> App:
    app = App("memory://")

    @app.stream(url, group="billing", name="bill")
    async def bill(order: dict[str, Any]) -> None:
        del order

    return app


async def test_lags_and_dlq_topics_need_no_worker(url: str) -> None:
    app = app_with(url)
    spec = app.stream_specs["bill"]
    topic, dlq, retry = spec.topic, f"{spec.topic}.dlq", f"{spec.topic}.billing.retry.0"
    attempt = Attempt(number=1, started_at=1.0, ended_at=2.0, worker="w", outcome=Change.BURY, error_name="E")
    orders = [Message(topic, 0, n, b"%d" % n if n else None, b'{"n": %d}' % n, (("own", b"x"),), 3.5) for n in range(4)]
    async with app.streams.source_of(spec) as source:
        await source.send([Outgoing(topic, b"{}", b"%d" % n) for n in range(5)])
        await source.ensure([dlq], like=topic)
        await source.send(
            [
                to_dlq(
                    one, topic=dlq, group="billing", attempt=attempt, retry_count=3, letter_id=letter_id("billing", one)
                )
                for one in orders
            ]
        )
    (lag,) = await app.streams.alag()
    assert (lag.error, lag.lag) == ("", 5)
    first = await app.dead_letters.areplay_topic(dlq, limit=1)
    assert (first.found, first.sent) == (4, 1)
    rest = await app.dead_letters.areplay_topic(dlq)
    assert (rest.found, rest.sent, rest.foreign) == (3, 3, 0)
    assert (await app.dead_letters.areplay_topic("bill")).found == 0
    async with app.streams.source_of(spec) as source:
        carried = [from_retry(one).message async for batch in source.read(retry) for one in batch]
    assert sorted(carried, key=lambda one: one.offset) == orders
    (lag,) = await app.streams.alag()
    assert lag.lag == 9, "what waits for its retry is not finished either"
    await app.aclose()


@pytest.mark.parametrize("url", ["kafka://127.0.0.1:1/orders", "redis://127.0.0.1:1/orders"])
async def test_a_server_that_is_away_is_one_line_within_the_limit(url: str) -> None:
    app = app_with(url)
    (lag,) = await app.streams.alag(timeout=0.5)
    assert lag.lag is None
    assert lag.error
    assert "\n" not in lag.error
    assert "127.0.0.1:1" in lag.error
    await app.aclose()
