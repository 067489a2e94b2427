"""Which kind of failure an error is: the user's rules, then the error's own evidence, its class, and its chain.

The tables are known_errors.py (classes) and known_codes.py (codes and statuses); evidence.py reads an instance. Here
is only the order in which they are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TypeAlias, TypeVar

from msgspec import Struct

from holdfast.clock import SystemClock
from holdfast.errors import ClassifiedError, ConfigError
from holdfast.policy.evidence import ATTRIBUTES, FOR_CLASS, GENERAL, Probe, by_errno, wait_of
from holdfast.policy.foreign import attribute, quietly
from holdfast.policy.known_codes import CERTIFICATE, NETWORK, RATE_LIMITED, SYSTEM, Finding
from holdfast.policy.known_errors import BY_CLASS, BY_NAME, LAST_RESORT
from holdfast.types import Failure, FailureContext, FailureType, Severity

_CLASSES_KEPT = 1_024
_ERRORS_ASKED = 1_000
_CHAIN_LONG = 64
_GROUPS_DEEP = 8
_OWN_LINKS = ("orig", "reason", "cause")
_WATCHED = ATTRIBUTES | {"__getattr__", "__getattribute__", "__dict__", "__cause__", "__context__"}
_UNRECOGNISED = Finding(SYSTEM)

_T = TypeVar("_T")


class _Links(Enum):
    """How far the chain of an error is followed."""

    ALONE = "not at all"
    GIVEN = "`__cause__` and the clients' own links"
    SHOWN = "also `__context__`, unless it is suppressed: what a traceback shows"
    ALL = "also a suppressed `__context__`"


_ALONE, _GIVEN, _SHOWN, _ALL = _Links
ErrorClass: TypeAlias = type[BaseException]


class Rule(Struct, frozen=True):
    """A user's rule: errors that match `on` are of this type.

    `on` is an exception class, a tuple of them, or a predicate; a predicate that raises does not match. With `task` or
    `service`, the rule holds only where the context says the same. Without `severity`, it is the type's own.
    """

    type: FailureType
    on: ErrorClass | tuple[ErrorClass, ...] | Callable[[BaseException], bool]
    task: str | None = None
    service: str | None = None
    severity: Severity | None = None

    def __post_init__(self) -> None:
        _require(isinstance(self.type, FailureType), "type", self.type, "a FailureType")
        _require(_is_matcher(self.on), "on", self.on, "an exception class, a tuple of them, or a function of an error")
        _require(isinstance(self.task, str | None), "task", self.task, "the name of a task, or None")
        _require(isinstance(self.service, str | None), "service", self.service, "the name of a service, or None")
        _require(isinstance(self.severity, Severity | None), "severity", self.severity, "a Severity, or None")

    def matches(self, error: BaseException, context: FailureContext) -> bool:
        """Whether this rule speaks of the error, in that context."""
        if self.task not in {None, context.task} or self.service not in {None, context.service}:
            return False
        if isinstance(self.on, type | tuple):
            return isinstance(error, self.on)
        predicate = self.on
        return quietly(lambda: bool(predicate(error))) is True


class Classifier:
    """`classify` with the user's rules, which win over the built-in ones; the first that matches decides.

    A rule about an error wins also where that error is only the cause of another, unless that is a ClassifiedError.
    """

    __slots__ = ("_now", "_rules")

    def __init__(self, rules: Iterable[Rule] = (), now: Callable[[], float] | None = None) -> None:
        _require(isinstance(rules, Iterable), "rules", rules, "a list of Rule")
        _require(now is None or callable(now), "now", now, "a function to seconds since 1970, or None")
        self._rules = tuple(rules)
        self._now = now
        for rule in self._rules:
            _require(isinstance(rule, Rule), "rules", rule, "a list of Rule")

    def __call__(self, error: BaseException, context: FailureContext | None = None) -> Failure:
        """Say what kind of failure an error is, as `classify` does."""
        return _inquire(error, context, self._rules, self._now or SystemClock.now)

    def timed_by(self, now: Callable[[], float]) -> Classifier:
        """The same rules on another clock, unless it has one of its own already."""
        return self if self._now is not None else Classifier(self._rules, now)


def classify(
    error: BaseException, context: FailureContext | None = None, *, now: Callable[[], float] = SystemClock.now
) -> Failure:
    """Say what kind of failure an error is. Never raises, whatever the error holds.

    For one error: its own word (ClassifiedError), then codes and rate-limit headers, then the HTTP status, then its
    class. The outermost error of the chain that is recognised decides, except that a bad certificate wins over
    NETWORK errors around it. In an exception group a member that is not retriable decides, else one that is rate
    limited, else the first. What nobody recognises is SYSTEM, so it is retried. `now` is wall time in seconds, for
    waits that are given as an instant.
    """
    plan = _plans.get(type(error)) or _plan_for(type(error))
    if (
        plan.is_plain
        and error.__cause__ is None
        and error.__context__ is None
        and (not error.__dict__ or ATTRIBUTES.isdisjoint(error.__dict__))
    ):
        return Failure(plan.type, error, plan.severity)
    return _inquire(error, context, (), now)


def _inquire(
    error: BaseException, context: FailureContext | None, rules: tuple[Rule, ...], now: Callable[[], float]
) -> Failure:
    found = _Inquiry(rules, context or FailureContext(), now).into(error)
    return Failure(found.type, error, found.severity or found.type.severity, found.retry_after)


class _Plan(Struct, frozen=True):
    """What there is to ask of errors of one class."""

    type: FailureType
    severity: Severity
    """These two: what the class says when neither instance nor chain says more."""
    known: Finding | None
    last_resort: Finding | None
    probes: tuple[Probe, ...]
    """Asked of every instance; the general ones only of those that have attributes to ask for."""
    has_attributes: bool
    """Whether instances answer to an attribute of interest that is not in their `__dict__`."""
    is_group: bool
    is_plain: bool
    """Whether an instance without attributes and chain can say no more than its class does."""


_plans: dict[ErrorClass, _Plan] = {}  # only a memory of what _make_plan says, so nobody has to reset it


def _plan_for(error_class: ErrorClass) -> _Plan:
    plan = _plans.get(error_class)
    if plan is None:
        if len(_plans) >= _CLASSES_KEPT:
            _plans.clear()  # classes that are made on the fly must not pile up
        plan = _plans[error_class] = _make_plan(error_class)
    return plan


def _make_plan(error_class: ErrorClass) -> _Plan:
    if not issubclass(error_class, Exception | BaseExceptionGroup):  # an exit or a cancellation: nobody's failure
        return _Plan(SYSTEM, SYSTEM.severity, _UNRECOGNISED, None, (), False, False, True)
    mro = [(base, f"{base.__module__}.{base.__qualname__}") for base in error_class.__mro__]
    known = _first(BY_CLASS.get(base) or BY_NAME.get(name) for base, name in mro)
    last_resort = _first(LAST_RESORT.get(name) for _, name in mro)
    probes = tuple(probe for _, name in mro for probe in FOR_CLASS.get(name, ()))
    if known is None and issubclass(error_class, OSError):
        probes += (by_errno,)  # those known by class may keep other numbers in `errno`, as ssl's and DNS's do
    has_attributes = any(map(_adds_attributes, error_class.__mro__))
    is_group = issubclass(error_class, BaseExceptionGroup)
    is_plain = not (probes or has_attributes or is_group)
    alone = known or last_resort or _UNRECOGNISED
    severity = alone.severity or alone.type.severity
    return _Plan(alone.type, severity, known, last_resort, probes, has_attributes, is_group, is_plain)


def _adds_attributes(base: type) -> bool:
    """Whether a class defines what we would read; Python's own hold nothing for us but `errno`, which is asked for."""
    return base.__module__ != "builtins" and not _WATCHED.isdisjoint(vars(base))


def _is_mute(error: BaseException, plan: _Plan) -> bool:
    """Whether an instance has none of the attributes that are ever read; most have none, and reading is slow."""
    return not plan.has_attributes and ATTRIBUTES.isdisjoint(error.__dict__)


class _Inquiry(Struct):
    """One error looked into, with all that hangs on it."""

    rules: tuple[Rule, ...]
    context: FailureContext
    now: Callable[[], float]
    errors_left: int = _ERRORS_ASKED

    def into(self, error: BaseException, depth: int = 0) -> Finding:
        """What the user's rules say, or else the outermost recognised error of the chain."""
        if self.rules and (ruled := self._by_rule(error, _GIVEN)) is not None:
            return ruled
        last_resort = None
        for link in self._chain(error, _SHOWN):
            plan = _plan_for(type(link))
            if self.rules and (ruled := self._by_rule(link, _ALONE)) is not None:
                return ruled
            found = self._into_group(link, depth) if plan.is_group else self._into_one(link, plan)
            if found is not None:
                return CERTIFICATE if found.type is NETWORK and self._hides_certificate(link) else found
            last_resort = last_resort or plan.last_resort
        return last_resort or _UNRECOGNISED

    def _by_rule(self, error: BaseException, links: _Links) -> Finding | None:
        for link in self._chain(error, links):
            for rule in self.rules:
                if rule.matches(link, self.context):
                    return self._with_wait(Finding(rule.type, rule.severity), link, _plan_for(type(link)))
            if isinstance(link, ClassifiedError):  # it says its own type, and its cause does not know better
                return None
        return None

    def _into_one(self, error: BaseException, plan: _Plan) -> Finding | None:
        probes = plan.probes if _is_mute(error, plan) else plan.probes + GENERAL
        found = _first(quietly(probe, error) for probe in probes) or plan.known
        return None if found is None else self._with_wait(found, error, plan)

    def _into_group(self, group: BaseException, depth: int) -> Finding | None:
        if depth == _GROUPS_DEEP:
            return None
        members = attribute(group, "exceptions") or ()
        found = [self.into(member, depth + 1) for member in members if self.errors_left > 0]
        if not found:
            return None
        decisive = (
            _first(it for it in found if not it.type.is_retriable)
            or _first(it for it in found if it.type is RATE_LIMITED)
            or found[0]
        )
        longest = max((it.retry_after for it in found if it.retry_after is not None), default=None)
        return decisive._replace(retry_after=longest)

    def _with_wait(self, found: Finding, error: BaseException, plan: _Plan) -> Finding:
        if not found.type.is_retriable or _is_mute(error, plan):
            return found
        return Finding(found.type, found.severity, quietly(wait_of, error, self.now))

    def _hides_certificate(self, error: BaseException) -> bool:
        """Whether a bad certificate is behind an error; httpcore suppresses the context that tells."""
        chain = self._chain(error, _ALL)
        return any(_plan_for(type(link)).known is CERTIFICATE for link in chain)

    def _chain(self, error: BaseException, links: _Links) -> Iterator[BaseException]:
        """The error and all it is linked to, outermost first, each once."""
        chain = [error]
        for link in chain:
            if self.errors_left == 0 or len(chain) > _CHAIN_LONG:
                return
            self.errors_left -= 1
            yield link
            for inner in _linked(link, links):
                if not any(inner is met for met in chain):
                    chain.append(inner)


def _linked(error: BaseException, links: _Links) -> Iterator[BaseException]:
    """What an error was made of, as far as the links are followed."""
    names: tuple[str, ...] = ()
    if links is not _ALONE:
        names = ("__cause__",) if _is_mute(error, _plan_for(type(error))) else (*_OWN_LINKS, "__cause__")
    if links is _ALL or (links is _SHOWN and not attribute(error, "__suppress_context__")):
        names += ("__context__",)
    linked = (attribute(error, name) for name in names)
    return (link for link in linked if isinstance(link, BaseException))


def _first(found: Iterable[_T | None]) -> _T | None:
    return next((it for it in found if it is not None), None)


def _is_matcher(on: object) -> bool:
    if isinstance(on, tuple):
        return bool(on) and all(_is_error_class(it) for it in on)
    return _is_error_class(on) if isinstance(on, type) else callable(on)


def _is_error_class(it: object) -> bool:
    return isinstance(it, type) and issubclass(it, BaseException)


def _require(is_right: bool, name: str, value: object, right: str) -> None:
    if not is_right:
        raise ConfigError(f"{name}={value!r}: must be {right}")
