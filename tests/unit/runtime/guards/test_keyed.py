"""One thing per key, and what is forgotten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from holdfast.runtime.guards.keyed import Keyed


def test_a_thing_is_made_once_however_many_threads_ask_for_it_first() -> None:
    made: list[str] = []
    keyed = Keyed(lambda key: made.append(key) or object(), lambda thing: False)  # type: ignore[func-returns-value]
    with ThreadPoolExecutor(8) as pool:
        things = set(pool.map(lambda _: id(keyed["one"]), range(200)))
    assert made == ["one"]
    assert len(things) == 1


def test_when_most_are_in_use_a_sweep_is_not_paid_for_by_every_new_key() -> None:
    asked = 0

    def retire(thing: object) -> bool:
        nonlocal asked
        asked += 1
        return False

    keyed = Keyed(lambda key: object(), retire, max_keys=10)
    for number in range(1000):
        keyed[str(number)]
    assert len(keyed) == 1000
    assert asked < 2000
