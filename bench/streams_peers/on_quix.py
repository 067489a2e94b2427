"""Quix Streams, in an environment of its own: values are decoded into a dict, as it knows no types."""

from __future__ import annotations

import os
from pathlib import Path

from quixstreams import Application
from streams_tally import Tally


def consume(commit_every: int = 0) -> None:
    """At least once by default; commit_every: a commit after so many messages, otherwise every 5 s, its default."""
    tally = Tally()
    app = Application(
        broker_address=os.environ["STREAMS_ADDRESS"],
        consumer_group=os.environ["STREAMS_GROUP"],
        auto_offset_reset="earliest",
        commit_every=commit_every,
        state_dir=Path(os.environ["STREAMS_FOLDER"]) / "state",
        loglevel="WARNING",
    )
    topic = app.topic(os.environ["STREAMS_TOPIC"], value_deserializer="json")
    app.dataframe(topic).update(lambda order: tally.one())
    app.run()
