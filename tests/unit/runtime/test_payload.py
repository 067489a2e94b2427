"""Arguments survive the way through JSON with their types, or are refused in a line that says which and why."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, TypedDict, Unpack
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from holdfast.errors import ConfigError, Invalid
from holdfast.runtime.payload import Arguments, decode_result, encode_result, merged

if TYPE_CHECKING:
    from somewhere import Elsewhere  # type: ignore[import-not-found]

OrderId = NewType("OrderId", int)
Cents = Annotated[int, msgspec.Meta(ge=0)]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Mode(StrEnum):
    FAST = "fast"


class Place(NamedTuple):
    x: int
    y: float


class Line(msgspec.Struct):
    sku: str
    price: float | None = None


class PricedLine(Line):
    price: float | None = 1.0


@dataclass
class Order:
    id: int
    lines: list[Line] = field(default_factory=list)
    note: Any = None


@dataclass(eq=False)
class Incomparable:
    size: float


@dataclass
class Express(Order):
    hours: int = 1


class Address(TypedDict, total=False):
    street: str
    number: int


class Customer(pydantic.BaseModel):
    name: str
    born: date | None = None
    score: float | None = None
    tags: set[str] = set()


class Member(Customer):
    since: int = 0


class StrictCustomer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    born: date = pydantic.Field(alias="dateOfBirth")


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr


class Tree(msgspec.Struct):
    children: list[Tree] = []


class Connection:
    """Cannot be stored."""


class Name(str):
    __slots__ = ()


def charge(order_id: int, cents: int, note: str = "") -> str:
    return f"{order_id} {cents} {note}"


def anything(value, other=None):  # type: ignore[no-untyped-def]
    return value, other


untyped: Callable[..., Any] = anything


def arguments_of(fn: Callable[..., Any], **options: Any) -> Arguments:
    return Arguments(fn, skip_first=False, **options)


def annotated(annotation: Any) -> Arguments:
    """Of a function with one parameter, `value`, of this type."""

    def take(value: Any) -> None: ...

    take.__annotations__ = {"value": annotation}
    return arguments_of(take)


def there_and_back(arguments: Arguments, value: Any) -> Any:
    args, kwargs = arguments.decode(arguments.encode((value,), {}))
    assert kwargs == {}
    assert len(args) == 1
    return args[0]


# ---------------------------------------------------------------- by name


def test_arguments_are_stored_by_name_and_defaults_are_left_out() -> None:
    arguments = arguments_of(charge)
    assert arguments.encode((42,), {"cents": 1999}) == b'{"order_id":42,"cents":1999}'
    assert arguments.encode((42, 1999, "x"), {}) == b'{"order_id":42,"cents":1999,"note":"x"}'


def test_what_was_decoded_calls_the_function() -> None:
    args, kwargs = arguments_of(charge).decode(b'{"note":"x","cents":1,"order_id":2}')
    assert charge(*args, **kwargs) == "2 1 x"


def test_a_default_given_out_loud_is_stored() -> None:
    assert arguments_of(untyped).encode((1, None), {}) == b'{"value":1,"other":null}'


def test_the_context_is_no_part_of_the_payload() -> None:
    def task(job: Elsewhere, order_id: int) -> None: ...

    arguments = Arguments(task, skip_first=True)
    assert arguments.encode((1,), {}) == b'{"order_id":1}'
    assert arguments.decode(b'{"order_id":1}') == ((1,), {})
    with pytest.raises(Invalid, match="has no argument 'job'"):
        arguments.encode((1,), {"job": 2})


def test_a_task_without_a_parameter_for_its_context_is_refused_at_once() -> None:
    def task(*, job: int) -> None: ...

    with pytest.raises(ConfigError, match="no first parameter for its context"):
        Arguments(task, skip_first=True)


def test_a_builtin_without_a_signature_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="no signature"):
        arguments_of(dict.update)


EVERY_KIND = b'{"a":1,"b":2,"c":3,"rest":[4,5],"d":6,"others":{"a":7,"z":8}}'


def every_kind(a: int, b: int = 0, /, c: int = 0, *rest: int, d: int, e: int = 0, **others: int) -> tuple[Any, ...]:
    return a, b, c, rest, d, e, others


def test_every_kind_of_parameter_goes_under_its_own_name() -> None:
    arguments = arguments_of(every_kind)
    assert arguments.encode((1, 2, 3, 4, 5), {"d": 6, "a": 7, "z": 8}) == EVERY_KIND
    args, kwargs = arguments.decode(EVERY_KIND)
    assert every_kind(*args, **kwargs) == (1, 2, 3, (4, 5), 6, 0, {"a": 7, "z": 8})


def test_gaps_are_filled_with_the_functions_own_defaults() -> None:
    def task(a: int = 1, b: int = 2, /, c: int = 3, d: int = 4, *rest: int) -> tuple[Any, ...]:
        return a, b, c, d, rest

    arguments = arguments_of(task)
    for payload, expected in {
        b"{}": (1, 2, 3, 4, ()),
        b'{"b":9}': (1, 9, 3, 4, ()),
        b'{"d":9}': (1, 2, 3, 9, ()),
        b'{"b":8,"d":9}': (1, 8, 3, 9, ()),
        b'{"rest":[9]}': (1, 2, 3, 4, (9,)),
        b'{"c":8,"rest":[]}': (1, 2, 8, 4, ()),
    }.items():
        args, kwargs = arguments.decode(payload)
        assert task(*args, **kwargs) == expected, payload


def test_a_gap_between_arguments_that_go_by_position_only_is_filled() -> None:
    def task(a: int = 1, b: int = 2, c: int = 3, /, d: int = 4) -> tuple[int, ...]:
        return a, b, c, d

    args, kwargs = arguments_of(task).decode(b'{"a":8,"c":9}')
    assert task(*args, **kwargs) == (8, 2, 9, 4)


def test_a_mutable_default_stays_the_functions_own() -> None:
    def task(a: int = 1, items: list[int] = [], /, *rest: int) -> list[int]:  # noqa: B006
        items.append(a)
        return items

    arguments = arguments_of(task)
    own: Any = task.__defaults__
    assert arguments.decode(b'{"a":5}') == ((5,), {})
    args, kwargs = arguments.decode(b'{"a":5,"rest":[1]}')
    assert task(*args, **kwargs) is own[1]


def test_parameters_may_have_the_names_that_records_need_for_themselves() -> None:
    def task(self: int, cls: int, p0: int, __struct_fields__: int, name: str, args: int, kwargs: int) -> None: ...

    arguments = arguments_of(task)
    values = (1, 2, 3, 4, "5", 6, 7)
    assert arguments.decode(arguments.encode(values, {})) == (values, {})


def test_typed_keywords_are_checked_one_by_one() -> None:
    def task(**address: Unpack[Address]) -> None: ...

    arguments = arguments_of(task)
    assert arguments.decode(arguments.encode((), {"number": 5})) == ((), {"number": 5})
    with pytest.raises(Invalid, match=r"argument 'address', at address\.number: Expected int, got str"):
        arguments.encode((), {"number": "5"})


@pytest.mark.parametrize(
    ("args", "kwargs", "line"),
    [
        ((), {"cents": 1}, "charge() is missing the argument 'order_id'"),
        ((), {}, "charge() is missing the arguments 'order_id' and 'cents'"),
        ((1, 2, "", 4), {}, "charge() takes 3 arguments by position, but 4 were given"),
        ((1,), {"order_id": 1, "cents": 2}, "charge() was given the argument 'order_id' twice"),
        ((1,), {"cent": 2}, "charge() has no argument 'cent'"),
        ((1,), {"cents": "19.99"}, "charge(): argument 'cents': expected int, got str '19.99'"),
        ((1,), {"cents": 1.0}, "charge(): argument 'cents': expected int, got float 1.0"),
        ((1,), {"cents": True}, "charge(): argument 'cents': expected int, got bool True"),
        ((1,), {"cents": None}, "charge(): argument 'cents': expected int, got null None"),
        ((1, 2), {"note": UUID(int=5)}, "charge(): argument 'note': expected str, got uuid"),
        ((1, 2), {"note": b"x"}, "charge(): argument 'note': expected str, got bytes"),
    ],
)
def test_a_mistaken_call_is_refused_in_one_line(args: tuple[Any, ...], kwargs: dict[str, Any], line: str) -> None:
    with pytest.raises(Invalid) as caught:
        arguments_of(charge).encode(args, kwargs)
    assert str(caught.value) == line


def test_a_positional_only_argument_by_name_is_refused() -> None:
    def task(a: int, /) -> None: ...

    with pytest.raises(Invalid, match=r"task\(\) takes the argument 'a' by position only"):
        arguments_of(task).encode((), {"a": 1})


def test_the_line_neither_prints_huge_values_nor_secrets() -> None:
    def login(password: int) -> None: ...

    with pytest.raises(Invalid) as caught:
        arguments_of(charge).encode((1, "x" * 1_000_000), {})
    assert len(str(caught.value)) < 200
    with pytest.raises(Invalid) as caught:
        arguments_of(login).encode(("hunter2",), {})
    assert str(caught.value) == "login(): argument 'password': expected int, got str"


def test_a_mismatch_within_says_where() -> None:
    with pytest.raises(Invalid) as caught:
        annotated(list[Line]).encode(([{"sku": "a"}, {"sku": 5}],), {})
    assert str(caught.value) == "take(): argument 'value', at value[1].sku: Expected str, got int"
    with pytest.raises(Invalid, match=r"argument 'value'.*, in a key: Expected int, got str"):
        annotated(dict[int, int]).encode(({"x": 1},), {})


@pytest.mark.parametrize(
    ("annotation", "value", "line"),
    [
        (Cents, -1, "expected int >= 0, got int -1"),
        (Literal["a", "b"], "c", "expected Literal['a', 'b'], got 'c'"),
        (Colour, "green", "expected Colour ('red', 'blue'), got 'green'"),
        (int | None, "x", "expected int | null, got str 'x'"),
        (Customer, {"born": "never"}, "name: Field required; born: Input should be a valid date"),
    ],
)
def test_the_line_says_what_was_expected(annotation: Any, value: Any, line: str) -> None:
    with pytest.raises(Invalid) as caught:
        annotated(annotation).encode((value,), {})
    assert str(caught.value).startswith(f"take(): argument 'value': {line}")
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- there and back


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 2**63),
        (int, -(2**200)),
        (float, 0.1),
        (float, -0.0),
        (str, "NUL \0, emoji 😀, \u2028"),
        (bytes, b"\0\xff"),
        (bool, True),
        (None, None),
        (OrderId, OrderId(5)),
        (Cents, 0),
        (int | None, None),
        (float | None, None),
        (int | str | None, "5"),
        (int | float, 1.0),
        (Literal["a", 1], 1),
        (Colour, Colour.RED),
        (Level, Level.LOW),
        (dict[Colour, int], {Colour.RED: 1}),
        (dict[int, str], {1: "a"}),
        (tuple[int, ...], (1, 2)),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (frozenset[str], frozenset({"a"})),
        (Sequence[int], [1, 2]),
        (list[set[tuple[int, str]]], [{(1, "a")}]),
        (Place, Place(1, 2.5)),
        (datetime, datetime(2030, 1, 2, 3, 4, 5, 6)),
        (datetime, datetime(2030, 1, 2, tzinfo=UTC)),
        (datetime, datetime(2030, 1, 2, tzinfo=timezone(timedelta(hours=-5, minutes=-30)))),
        (date, date(2030, 1, 2)),
        (time, time(3, 4, 5)),
        (timedelta, timedelta(days=-1, microseconds=1)),
        (Decimal, Decimal("1.10")),
        (UUID, UUID(int=5)),
        (Line, Line("a", 1.5)),
        (Order, Order(1, [Line("a")], {"deep": [1, None]})),
        (Address, {"street": "x"}),
        (Customer, Customer(name="Ada", born=date(1815, 12, 10), tags={"x", "y"})),
        (StrictCustomer, StrictCustomer(dateOfBirth=date(1815, 12, 10))),
        (Customer | None, Customer(name="Ada")),
        (dict[str, list[Customer]], {"all": [Customer(name="Ada")]}),
        (object, [1, "a"]),
        (dict[str, object], {"a": [None]}),
        (Any, {"a": [1, 2.5, None, True, "x", {}], "": []}),
    ],
)
def test_a_typed_value_comes_back_equal_and_of_its_type(annotation: Any, value: Any) -> None:
    back = there_and_back(annotated(annotation), value)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value) or isinstance(value, set | frozenset | list | Customer | datetime)


def test_an_instant_survives_also_in_the_repeated_hour() -> None:
    moment = datetime(2020, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    assert there_and_back(annotated(datetime), moment).astimezone(UTC) == moment.astimezone(UTC)


def test_a_dict_for_a_record_is_converted_and_checked() -> None:
    assert there_and_back(annotated(Line), {"sku": "a"}) == Line("a")
    assert there_and_back(annotated(Customer), {"name": "Ada"}) == Customer(name="Ada")
    assert there_and_back(annotated(Order), {"id": 1, "lines": [{"sku": "a"}]}) == Order(1, [Line("a")])


def test_a_record_that_cannot_be_compared_is_compared_by_its_fields() -> None:
    assert there_and_back(annotated(Incomparable), Incomparable(2.5)).size == 2.5
    with pytest.raises(Invalid, match="argument 'value'"):
        annotated(Incomparable).encode((Incomparable(math.nan),), {})


@pytest.mark.parametrize("value", [Name("x"), Mode.FAST, Level.LOW, OrderedDict(a=1)])
def test_subclasses_of_plain_types_come_back_as_their_equals(value: Any) -> None:
    assert there_and_back(arguments_of(untyped), value) == value
    assert there_and_back(annotated(str), Name("x")) == "x"


def test_an_untyped_tuple_comes_back_as_a_list() -> None:
    assert there_and_back(arguments_of(untyped), (1, ("a",))) == [1, ["a"]]


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def contains_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("annotation", "value", "line"),
    [
        (Any, math.nan, "nan cannot be stored as JSON"),
        (float, math.inf, "inf cannot be stored as JSON"),
        (list[float], [1.0, math.nan], "nan cannot be stored as JSON"),
        (float | None, -math.inf, "-inf cannot be stored as JSON"),
        (list[float | None], [1.0, math.nan], "nan cannot be stored as JSON"),
        (Line, Line("a", math.nan), "nan cannot be stored as JSON"),
        (Customer, Customer(name="Ada", score=math.nan), "nan cannot be stored as JSON"),
        (Any, "\ud800", "lone surrogate"),
        (str, "\ud800", "lone surrogate"),
        (Any, {"\ud800": 1}, "lone surrogate"),
        (Any, {1, 2}, "set would come back as list; annotate it with its type"),
        (Any, [frozenset()], "frozenset would come back as list"),
        (Any, Place(1, 2.0), "Place would come back as list"),
        (Any, datetime(2030, 1, 1), "datetime would come back as str"),
        (Any, UUID(int=1), "UUID would come back as str"),
        (Any, b"x", "bytes would come back as str"),
        (Any, Decimal(1), "Decimal would come back as str"),
        (Any, Colour.RED, "Colour would come back as str"),
        (Any, Line("a"), "Line would come back as dict"),
        (Any, Customer(name="Ada"), "Customer would come back as dict"),
        (Order, Order(1, note={1}), "set would come back as list"),
        (Order, Express(1), "expected Order, got Express"),
        (Line, PricedLine("a"), "expected Line, got PricedLine"),
        (Customer, Member(name="Ada"), "Member would come back as Customer"),
        (list[int], {"a": 1}, "expected list[int], got object"),
        (Order, Order("x"), "at value.id: Expected int, got str"),  # type: ignore[arg-type]
        (Login, Login(password=pydantic.SecretStr("x")), "SecretStr would come back as SecretStr, but another one"),
        (Any, {1: "a"}, "the key 1 would come back as text"),
        (Any, {"a": {None: 1}}, "a dict with NoneType keys cannot be stored as JSON"),
        (Any, {(1, 2): "a"}, "a dict with tuple keys cannot be stored as JSON"),
        (Any, {1: "a", "1": "b"}, "some of its keys would be lost"),
        (dict[int | str, str], {1: "a"}, "the key 1 would come back as text"),
        (Any, [10**5000], "Exceeds the limit"),
        (Any, Connection(), "Connection cannot be stored as JSON"),
        (Any, [object()], "object cannot be stored as JSON"),
        (Any, len, "builtin_function_or_method cannot be stored as JSON"),
        (Any, nested(100_000), "nested deeper than 200 levels, or contains itself"),
        (Any, nested(300), "nested deeper than 200 levels, or contains itself"),
        (list[Any], nested(100_000), "nested deeper than 200 levels, or contains itself"),
        (Any, contains_itself(), "nested deeper than 200 levels, or contains itself"),
        (datetime, datetime(2030, 1, 1, tzinfo=timezone(timedelta(seconds=30))), "datetime would come back"),
    ],
)
def test_what_would_not_come_back_is_refused(annotation: Any, value: Any, line: str) -> None:
    arguments = annotated(annotation)
    with pytest.raises(Invalid) as caught:
        arguments.encode((value,), {})
    assert str(caught.value).startswith("take(): argument 'value'")
    assert line in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_depth_that_may_be_stored_can_be_read_by_a_deep_stack() -> None:
    payload = arguments_of(untyped).encode((nested(199),), {})
    assert arguments_of(untyped).decode(payload) == ((nested(199),), {})


def test_too_large_arguments_are_refused_with_both_sizes() -> None:
    arguments = arguments_of(charge, max_bytes=100)
    assert len(arguments.encode((1, 2, "x" * 66), {})) == 100
    with pytest.raises(Invalid, match=r"charge\(\): the arguments take 1,034 bytes as JSON, and at most 100"):
        arguments.encode((1, 2, "x" * 1000), {})
    with pytest.raises(Invalid, match="at most 1,048,576"):
        arguments_of(charge).encode((1, 2, "x" * 1_048_576), {})


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("payload", "line"),
    [
        (b'{"order_id":1}', "charge() is missing the argument 'cents'"),
        (b'{"order_id":1,"cents":2,"x":3}', "charge() has no argument 'x'"),
        (b'{"order_id":1,"cents":"2"}', "charge(): argument 'cents': expected int, got str '2'"),
        (b"[1,2]", "charge() cannot be called with this payload: Expected object, got array"),
        (b"null", "charge() cannot be called with this payload: Expected object, got null"),
        (b"", "charge() cannot be called with this payload: Input data was truncated"),
        (b'{"order_id":1,', "charge() cannot be called with this payload: Input data was truncated"),
        (b'{"order_id":1,"cents":2,"note":"\xff"}', "charge() cannot be called with this payload: "),
        (b'{"order_id":1e400,"cents":2}', "charge(): argument 'order_id': "),
        pytest.param(b'{"order_id":1,"cents":' + b"[" * 100_000, "charge(): argument 'cents': ", id="deep"),
    ],
)
def test_a_payload_that_will_not_do_is_refused_in_one_line(payload: bytes, line: str) -> None:
    with pytest.raises(Invalid) as caught:
        arguments_of(charge).decode(payload)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_a_payload_that_is_too_deep_is_refused() -> None:
    with pytest.raises(Invalid, match="nested deeper"):
        arguments_of(untyped).decode(b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_of_two_equal_keys_the_last_counts() -> None:
    assert arguments_of(charge).decode(b'{"order_id":1,"cents":2,"cents":3}') == ((1, 3), {})


# ---------------------------------------------------------------- annotations


def test_an_annotation_may_name_what_is_defined_further_down() -> None:
    arguments = arguments_of(uses_later)
    assert there_and_back(arguments, Later(5)) == Later(5)


def uses_later(value: Later) -> None: ...


class Later(msgspec.Struct):
    size: int


def test_an_annotation_may_name_what_the_function_closes_over() -> None:
    class Local(msgspec.Struct):
        size: int

    def task(value: Local) -> None:
        assert isinstance(value, Local)

    assert there_and_back(arguments_of(task), Local(5)) == Local(5)


def test_the_return_annotation_and_the_contexts_are_never_looked_up() -> None:
    def task(value: int) -> Elsewhere: ...

    assert there_and_back(arguments_of(task), 5) == 5


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    def task(fine: int, value: list[Elsewhere]) -> None: ...

    arguments = arguments_of(task)
    with pytest.raises(ConfigError, match=r"task\(\): parameter 'value'.*'list\[Elsewhere\]'.*TYPE_CHECKING"):
        arguments.encode((1, 2), {})
    with pytest.raises(ConfigError, match="parameter 'value'"):
        arguments.decode(b"{}")


@pytest.mark.parametrize(
    ("annotation", "line"),
    [
        (Connection, "Connection cannot be stored as JSON; pass an id"),
        (dict[str, list[Connection | None]], "Connection cannot be stored as JSON; pass an id"),
        (Callable[[], None], "Callable cannot be stored as JSON"),
        (complex, "complex cannot be stored as JSON"),
        (Line | Order, "more than one dict-like type"),
        (str | datetime, "more than one str-like type"),
        (5, "5 cannot be read from JSON"),
        ("5 +", "cannot be resolved"),
    ],
)
def test_an_annotation_that_cannot_work_is_refused_at_the_first_use(annotation: Any, line: str) -> None:
    arguments = annotated(annotation)
    with pytest.raises(ConfigError) as caught:
        arguments.check()
    assert str(caught.value).startswith("take(): parameter 'value'")
    assert line in str(caught.value)


def test_a_recursive_type_is_followed_to_its_end() -> None:
    assert there_and_back(annotated(Tree), Tree([Tree(), Tree([Tree()])])) == Tree([Tree(), Tree([Tree()])])


# ---------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (None, Any),
        ({"a": [1, 2.5, None]}, Any),
        ({1, 2}, set[int]),
        (Order(1, [Line("a", None)]), Order),
        (Customer(name="Ada"), Customer),
        (datetime(2030, 1, 1, tzinfo=UTC), datetime),
        (5, Annotated[int, []]),
    ],
)
def test_a_result_comes_back_as_its_annotation_has_it(value: Any, annotation: Any) -> None:
    assert decode_result(encode_result(value), annotation) == value


def test_a_result_without_an_annotation_is_read_as_json() -> None:
    assert decode_result(encode_result(Order(1, [Line("a")]))) == {
        "id": 1,
        "lines": [{"sku": "a", "price": None}],
        "note": None,
    }


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (math.nan, "the result (float) cannot be stored: nan cannot be stored as JSON"),
        ({"a": (1, -math.inf)}, "the result (dict) cannot be stored: -inf cannot be stored as JSON"),
        (Line("a", math.nan), "the result (Line) cannot be stored: nan cannot be stored as JSON"),
        (Customer(name="x", score=math.nan), "the result (Customer) cannot be stored: nan cannot be stored as JSON"),
        (Connection(), "the result (Connection) cannot be stored: Connection cannot be stored as JSON"),
        ("\ud800", "the result (str) cannot be stored: its text has a lone surrogate"),
        (nested(300), "the result (list) cannot be stored: it is nested deeper than 200 levels"),
        (contains_itself(), "the result (list) cannot be stored: it is nested deeper than 200 levels"),
        (["x" * 2_000_000], "the contents of the result take 2,000,004 bytes as JSON, and at most 1,048,576"),
    ],
)
def test_a_result_that_cannot_be_stored_is_refused(value: Any, line: str) -> None:
    with pytest.raises(Invalid) as caught:
        encode_result(value)
    assert str(caught.value).startswith(line)


def test_a_result_that_is_something_else_is_refused() -> None:
    with pytest.raises(Invalid, match="the result is not int: Expected int, got str"):
        decode_result(b'"x"', int)
    with pytest.raises(Invalid, match="the result is not"):
        decode_result(b"")
    with pytest.raises(ConfigError, match="Connection cannot be stored"):
        decode_result(b"1", Connection)


# ---------------------------------------------------------------- edits


@pytest.mark.parametrize(
    ("payload", "patch", "expected"),
    [
        # The examples of RFC 7396, appendix A, whose outcome is an object.
        (b'{"a":"b"}', b'{"a":"c"}', b'{"a":"c"}'),
        (b'{"a":"b"}', b'{"b":"c"}', b'{"a":"b","b":"c"}'),
        (b'{"a":"b"}', b'{"a":null}', b"{}"),
        (b'{"a":"b","b":"c"}', b'{"a":null}', b'{"b":"c"}'),
        (b'{"a":["b"]}', b'{"a":"c"}', b'{"a":"c"}'),
        (b'{"a":"c"}', b'{"a":["b"]}', b'{"a":["b"]}'),
        (b'{"a":{"b":"c"}}', b'{"a":{"b":"d","c":null}}', b'{"a":{"b":"d"}}'),
        (b'{"a":[{"b":"c"}]}', b'{"a":[1]}', b'{"a":[1]}'),
        (b'{"e":null}', b'{"a":1}', b'{"e":null,"a":1}'),
        (b"{}", b'{"a":{"bb":{"ccc":null}}}', b'{"a":{"bb":{}}}'),
        # And numbers stay as they were written.
        (b'{"a":1.5e1}', b'{"b":1e-99999999999999999999}', b'{"a":1.5e1,"b":1e-99999999999999999999}'),
        (b'{"a":1.10,"b":123456789012345678901234567890}', b'{"c":0.30}', None),
    ],
)
def test_a_merge_patch_edits_a_payload(payload: bytes, patch: bytes, expected: bytes | None) -> None:
    assert merged(payload, patch) == (expected or b'{"a":1.10,"b":123456789012345678901234567890,"c":0.30}')


@pytest.mark.parametrize(
    ("payload", "patch", "line"),
    [
        (b"[]", b"{}", "the payload must be a JSON object of arguments by name, not list"),
        (b"{}", b'"x"', "the patch must be a JSON object of arguments by name, not str"),
        (b"{}", b"{", "the patch is not JSON: Input data was truncated"),
        pytest.param(b"{}", b'{"a":' * 100_000, "the patch is not JSON: it is nested deeper", id="deep"),
        pytest.param(
            b"{}", b'{"a":"%s"}' % (b"x" * 2_000_000), "the edited arguments take 2,000,008 bytes", id="large"
        ),
    ],
)
def test_an_edit_that_cannot_be_made_is_refused(payload: bytes, patch: bytes, line: str) -> None:
    with pytest.raises(Invalid) as caught:
        merged(payload, patch)
    assert str(caught.value).startswith(line)
