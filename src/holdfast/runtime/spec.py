"""A task as the runtime sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from holdfast.policy.breaker import BreakerConfig
from holdfast.policy.budget import BudgetConfig
from holdfast.policy.limiter import Rate
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Delivery
from holdfast.runtime.payload import Arguments
from holdfast.runtime.shared.names import limit_gate
from holdfast.types import Failure, FailureContext, NewJob

Scope = Literal["task", "tenant", "user", "project"]


class Given(Protocol):
    """How a function gets its arguments from what is delivered, such as a message."""

    def of(self, delivery: Any, /) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of one run; Invalid where they are not what the function takes."""

    def pack(self, delivery: Any, /) -> Delivery:
        """The same delivery as another process can be handed it."""

    def unpack(self, delivery: Delivery, /) -> Any:
        """What was packed, in that process."""

    def pack_outputs(self, delivery: Any, /) -> bytes:
        """What the function has sent there."""

    def take_outputs(self, delivery: Any, outputs: bytes, /) -> None:
        """The same, back in the worker."""


class TaskSpec(Struct, frozen=True, kw_only=True, eq=False):
    """Everything that is needed to run a task and to judge what comes of it."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    takes_context: bool
    arguments: Arguments
    """What a stored payload looks like."""
    queue: str
    priority: int
    retry: RetryPolicy
    breaker: str | None
    """The breaker key; None is no breaker. With a scope, the first part of the key: see `breaker_of`."""
    breaker_config: BreakerConfig
    rates: Mapping[Scope, Rate]
    budget: str | None
    budget_config: BudgetConfig
    timeout_s: float | None
    is_isolated: bool
    waits_for_breaker: bool
    """Whether its jobs wait while the breaker is open; otherwise they are given up."""
    has_dead_letters: bool
    dead_letter_keep_s: float
    result_keep_s: float
    classify: Callable[[BaseException, FailureContext | None], Failure]
    context: FailureContext
    given: Given | None = None
    """How a run gets its arguments, where that is not by its payload."""
    in_flight: int | None = None
    """At most so many of its jobs are with one worker at a time; None is as many as it has room for."""
    breaker_scope: Scope | None = None
    """With one, each of its values has a breaker of its own, made when it is first met."""
    is_snooze_success: bool = True
    """Whether a run that returns Snooze or Discard is a success to its breaker; a page that waits has asked nobody."""

    def call_of(self, delivery: Delivery) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of one run, without its context; Invalid where they are not what the function takes."""
        return self.arguments.decode(delivery.payload) if self.given is None else self.given.of(delivery)

    def is_counted(self, failure: Failure) -> bool:
        """Whether its breaker counts a failure of this type."""
        return self.breaker is not None and failure.type in self.breaker_config.failure_types


def breaker_of(spec: TaskSpec, of: Delivery | NewJob) -> str | None:
    """The breaker key for one job: the task's, or with a scope `<task's>/<value>`."""
    scope = spec.breaker_scope
    return spec.breaker if scope is None or spec.breaker is None else f"{spec.breaker}/{getattr(of, scope)}"


def limit_gates(spec: TaskSpec, of: Delivery | NewJob) -> tuple[str, ...]:
    """The gates of a task's rate limits for one job."""
    return tuple(
        limit_gate(spec.name) if scope == "task" else limit_gate(spec.name, scope, str(getattr(of, scope)))
        for scope in spec.rates
    )
