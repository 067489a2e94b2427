"""Row 56: forged and repeated notices. A receiver that checks them as the docs say takes none."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

import pytest

from holdfast.alerts import Notice, Seen, Webhook, verify
from holdfast.errors import ConfigError, Invalid
from holdfast.ops.signing import headers_for
from holdfast.policy.notices import AGAIN_S, HOLD_S, KEEP_S, Outbox, refused, taken, told
from holdfast.testing import ManualClock
from tests.faults.report import Report
from tests.receiver import Receiver

STORE = "none"
SECRET = "0123456789abcdef"
OTHER = "fedcba9876543210"
NOW = 1_000_000_000.0
NOTICE = Notice(id="n1", name="a", state="firing", value=1, threshold=0, text="", at=0)
BODY = b'{"id":"n1","name":"a","state":"firing","value":1,"threshold":0,"text":"","at":0}'
GOOD = headers_for("n1", BODY, SECRET.encode(), NOW)
SIGNATURE = GOOD["Holdfast-Signature"]

Forgery = tuple[dict[str, str], bytes]


def signed(id_: str = "n1", body: bytes = BODY, at: str = str(int(NOW))) -> Forgery:
    """Signed with the right secret, as somebody could who has it; what is wrong is in the rest."""
    mac = hmac.new(SECRET.encode(), f"{id_}.{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Holdfast-Id": id_, "Holdfast-Timestamp": at, "Holdfast-Signature": f"v1={mac}"}, body


FORGERIES: dict[str, Forgery] = {
    "no headers": ({}, BODY),
    "no signature": ({name: value for name, value in GOOD.items() if name != "Holdfast-Signature"}, BODY),
    "empty signature": (GOOD | {"Holdfast-Signature": ""}, BODY),
    "empty version": (GOOD | {"Holdfast-Signature": "v1="}, BODY),
    "another version": (GOOD | {"Holdfast-Signature": SIGNATURE.replace("v1", "v0")}, BODY),
    "no version": (GOOD | {"Holdfast-Signature": SIGNATURE[3:]}, BODY),
    "first half": (GOOD | {"Holdfast-Signature": SIGNATURE[:35]}, BODY),
    "one digit off": (GOOD | {"Holdfast-Signature": SIGNATURE[:-1] + ("0" if SIGNATURE[-1] != "0" else "1")}, BODY),
    "not ASCII": (GOOD | {"Holdfast-Signature": "v1=é\ud800"}, BODY),
    "another secret": (headers_for("n1", BODY, OTHER.encode(), NOW), BODY),
    "another body": (GOOD, BODY.replace(b"firing", b"resolved")),
    "longer body": (GOOD, BODY + b" "),
    "another id": (GOOD | {"Holdfast-Id": "n2"}, BODY),
    "no id": ({name: value for name, value in GOOD.items() if name != "Holdfast-Id"}, BODY),
    "newer timestamp": (GOOD | {"Holdfast-Timestamp": str(int(NOW) + 1)}, BODY),
    "old timestamp": signed(at=str(int(NOW) - 301)),
    "timestamp ahead": signed(at=str(int(NOW) + 301)),
    "no timestamp": signed(at=""),
    "timestamp as text": signed(at="now"),
    "timestamp NaN": signed(at="nan"),
    "timestamp in other digits": signed(at="\u0661" + "\u0660" * 9),
    "negative timestamp": signed(at="-5"),
    "timestamp beyond numbers": signed(at="9" * 400),
    "parts moved": signed(id_=f"n1.{int(NOW)}", at=str(int(NOW))),
    "id of another body": signed(id_="n2"),
    "no JSON": signed(body=b"{"),
    "no notice": signed(body=b'{"id":"n1"}'),
    "deep JSON": signed(body=b"[" * 100_000),
}


def test_the_real_one_is_taken() -> None:
    assert verify(GOOD, BODY, SECRET, NOW) == NOTICE
    assert verify({name.upper(): value for name, value in GOOD.items()}, BODY, SECRET.encode(), NOW) == NOTICE
    assert verify(*signed(), SECRET, NOW) == NOTICE


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=list(FORGERIES))
def test_a_forgery_is_refused(forgery: Forgery, report: Report) -> None:
    with pytest.raises(Invalid):
        verify(*forgery, SECRET, NOW)
    report("forged and old webhook requests", injected=1, note="refused")


@pytest.mark.parametrize("apart_s", [-301.0, -300.0, 0.0, 300.0, 301.0])
def test_a_timestamp_holds_for_the_tolerance_to_both_sides(apart_s: float) -> None:
    if abs(apart_s) <= 300:
        assert verify(GOOD, BODY, SECRET, NOW + apart_s) == NOTICE
    else:
        with pytest.raises(Invalid, match="timestamp"):
            verify(GOOD, BODY, SECRET, NOW + apart_s)


def test_while_a_secret_is_replaced_both_are_taken() -> None:
    assert verify(GOOD, BODY, [OTHER, SECRET], NOW) == NOTICE
    both = GOOD | {"Holdfast-Signature": f"v1={'0' * 64}, {SIGNATURE}"}
    assert verify(both, BODY, SECRET, NOW) == NOTICE


@pytest.mark.parametrize(
    "call",
    [
        lambda: verify(GOOD, BODY, "", NOW),
        lambda: verify(GOOD, BODY, [], NOW),
        lambda: verify(GOOD, BODY, SECRET, NOW, tolerance_s=0),
        lambda: Seen(tolerance_s=-1),
    ],
)
def test_a_receiver_that_would_take_anything_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        call()


def test_what_was_compared_gives_no_time_away(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    verify(GOOD, BODY, [SECRET, OTHER], NOW)
    assert len(compared) == 2, "with every secret, also after one was right"


def test_an_id_is_new_once(clock: ManualClock) -> None:
    seen = Seen(clock=clock)
    assert [seen.is_new("n1") for _ in range(3)] == [True, False, False]
    assert seen.is_new("n2")
    clock.advance(KEEP_S + 600)
    assert not seen.is_new("n1"), "it may have been sent for so long, and its signature still holds"
    clock.advance(1)
    assert seen.is_new("n2"), "by now the timestamp is refused, and the memory stays small"
    assert not seen.is_new("n1"), "it came again, and is remembered for as long anew"


def test_an_id_is_known_for_as_long_as_its_notice_is_tried(clock: ManualClock) -> None:
    seen, outbox, taken_as_new = Seen(clock=clock), told(Outbox(), NOTICE, ["t"], "me", 0.0), 0
    began_s = clock.monotonic()
    while outbox.pending:
        taken_as_new += seen.is_new(NOTICE.id)
        clock.advance(0.75 * HOLD_S)  # as long as a send may take
        outbox = refused(outbox, "t", "me", clock.monotonic() - began_s)
        clock.advance(AGAIN_S)
        outbox, _ = taken(outbox, ["t"], "me", clock.monotonic() - began_s)
    assert taken_as_new == 1
    assert clock.monotonic() - began_s > 600


async def test_captured_requests_are_worth_nothing(clock: ManualClock, report: Report) -> None:
    sent, tried = 20, 0
    with Receiver() as receiver:
        hook = Webhook(receiver.url(), SECRET, allow=("127.0.0.0/8",), clock=clock)
        for number in range(sent):
            await hook.deliver(Notice(id=f"n{number}", name="a", state="firing", value=1, threshold=0, text="", at=0))
    seen, accepted, forged = Seen(clock=clock), 0, 0
    for _ in range(400):
        for asked in receiver.asked:
            tried += 1
            try:
                accepted += seen.is_new(verify(asked.headers, asked.body, SECRET, clock.now()).id)
            except Invalid:
                forged += 1
        clock.advance(3)
    assert accepted == sent
    assert forged > 0
    report(
        "webhook requests captured and sent again",
        injected=tried,
        note=f"accepted beyond the {sent} that were sent {accepted - sent}",
    )
