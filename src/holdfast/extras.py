"""What to type where the packages of an extra are missing: one line, the same wherever it is said."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """The line to type, from an index and in a checkout, as nothing is published yet."""
    return f"pip install 'holdfast[{extra}]', or in a checkout pip install '.[{extra}]'"
