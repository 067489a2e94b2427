"""An error put into words: its name, its message, its traceback, and the fingerprint that groups it with its like."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from types import FrameType

VERSION = 1
MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 16_000
_MARGIN = 16_000
_LONGEST_WORD = 5_000
_FRAMES_KEPT = 20
_LIBRARY_FRAMES_KEPT = 5
_GROUPS_DEEP = 16

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIB_FOLDER = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

# Compiled when first used, as hashlib is imported when first used: together they would cost 4 ms at import.
_VARYING = r"""
      "[^"\n]*" | (?<!\w)'[^'\n]*'(?!\w) | `[^`\n]*` | “[^”\n]*” | «[^»\n]*»    # anything quoted
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+                                        # an e-mail address
    | (?<![\w:/])/(?:[\w.@+-]+/)+[\w.@+-]*                                 # a path
    | \b(?=[\w-]*\d)[\w-]{6,}                                             # an id: a UUID, a hash, ord_8f3a9c2b, a date
    | \d+(?:[.,:]\d+)*(?:[eE][+-]?\d+)?                                    # a number, a version, a time
"""


def name_of(error_class: type[BaseException]) -> str:
    """The class's name, with its module unless it is a built-in one."""
    if error_class.__module__ == "builtins":
        return error_class.__qualname__
    return f"{error_class.__module__}.{error_class.__qualname__}"


def message_of(error: BaseException) -> str:
    """`str(error)`, bounded; an error whose `__str__` raises does not take the caller down with it.

    Of a longer text the beginning is kept, without its secrets: half of one would not be known for what it is.
    """
    try:
        text = str(error)
    except Exception:  # the error's own code failed; its class is still worth telling
        return f"<{name_of(type(error))} whose text cannot be had>"
    return text if len(text) <= MESSAGE_LIMIT else _beginning(text, MESSAGE_LIMIT - 1) + "…"


def in_a_line(text: str) -> str:
    """The text as one line of a log, with nothing in it that could steer a terminal."""
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)


def traceback_of(error: BaseException) -> str:
    """The whole traceback with its chain; of a longer one, the beginning and the end are kept, without secrets."""
    import traceback  # noqa: PLC0415 - costs 5 ms at import, and most programs never need it

    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # user code (__str__, __repr__) runs while formatting
        text = "".join(traceback.format_tb(error.__traceback__)) + f"{name_of(type(error))}: {message_of(error)}\n"
    if len(text) <= TRACEBACK_LIMIT:
        return text
    head, tail = TRACEBACK_LIMIT // 4, TRACEBACK_LIMIT * 3 // 4 - 40
    left_out = f"\n  … {len(text) - head - tail:,} characters left out …\n"
    return f"{_beginning(text, head)}{left_out}{_end(text, tail)}"


def _beginning(text: str, most: int) -> str:
    """So much of a text, without what looks like a secret in it: that is left out first, and then the text is cut."""
    from holdfast.redact import redacted_text  # noqa: PLC0415 - only what is cut has to be redacted here

    part = text[: most + _MARGIN]
    if len(part) < len(text) and len(words := part.rsplit(maxsplit=1)) > 1 and len(words[1]) <= _LONGEST_WORD:
        part = words[0]  # the last word may be half of a secret
    return redacted_text(part)[:most]


def _end(text: str, most: int) -> str:
    from holdfast.redact import redacted_text  # noqa: PLC0415

    part = text[-most - _MARGIN :]
    if len(part) < len(text) and len(words := part.split(maxsplit=1)) > 1 and len(words[0]) <= _LONGEST_WORD:
        part = words[1]
    return redacted_text(part)[-most:]


def fingerprint_of(error: BaseException) -> str:
    """A short text that is equal for errors of one cause.

    Made of the exception's class, the frames of user code (file and function, not line numbers) and the message
    without its numbers, ids and quoted parts. An exception group is known by its first member. An exception whose
    attribute `fingerprint_cause` is a text is known by its class and that text alone.
    """
    from hashlib import blake2b  # noqa: PLC0415

    error = _first_member(error)
    cause = getattr(error, "fingerprint_cause", None)
    words = [cause] if isinstance(cause, str) else [*_user_frames(error), _normalised(message_of(error))]
    parts = [name_of(type(error)), *words]
    digest = blake2b("\x1f".join(parts).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
    return f"{VERSION}:{digest}"


def _first_member(error: BaseException) -> BaseException:
    for _ in range(_GROUPS_DEEP):
        if not isinstance(error, BaseExceptionGroup):
            break
        error = error.exceptions[0]
    return error


def _normalised(message: str) -> str:
    return re.sub(_VARYING, "#", message, flags=re.VERBOSE)


def _user_frames(error: BaseException) -> list[str]:
    """Module and function of the innermost frames of user code, outermost first; a few of all code, if none is."""
    every: list[str] = []
    users: list[str] = []
    for frame in _frames(error):
        code = frame.f_code
        line = f"{_module_of(frame)}:{code.co_qualname}"
        if not every or every[-1] != line:
            every.append(line)
        if is_users(code.co_filename) and (not users or users[-1] != line):
            users.append(line)
    return users[-_FRAMES_KEPT:] or every[-_LIBRARY_FRAMES_KEPT:]


def _frames(error: BaseException) -> Iterator[FrameType]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


def _module_of(frame: FrameType) -> str:
    """The module a frame is in, by the name it is imported under: the folder it was deployed to does not matter."""
    name = frame.f_globals.get("__name__")
    if isinstance(name, str) and name not in {"__main__", "__mp_main__"}:
        return name
    return os.path.splitext(os.path.basename(frame.f_code.co_filename))[0]


def is_users(filename: str) -> bool:
    """Whether a file is of the users' own code: neither Holdfast's, nor installed, nor Python's own."""
    if filename.startswith((_OWN_FOLDER, "<frozen")) or any(part in filename for part in _INSTALLED):
        return False
    return not filename.startswith(_STDLIB_FOLDER)
