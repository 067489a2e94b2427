"""What an installation of Holdfast with every extra is made of, as a CycloneDX document: `python -m tests.sbom`.

It is read from the metadata of the packages that are installed here, so `make sbom` says what was tested.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any, Final

from packaging.requirements import Requirement

ROOT: Final = "holdfast"
EXTRA: Final = "all"


def document() -> dict[str, Any]:
    """The whole of it."""
    found = dict(_closure())
    parts = [_component(one) for name, (one, _) in sorted(found.items()) if name != ROOT]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(found[ROOT][0]) | {"type": "library"}},
        "components": parts,
        "dependencies": [
            {"ref": _ref(one), "dependsOn": sorted(_ref(found[name][0]) for name in needs if name in found)}
            for _, (one, needs) in sorted(found.items())
        ],
    }


def _closure() -> Iterator[tuple[str, tuple[Distribution, list[str]]]]:
    """Every package that is needed and installed, by its name, with what it needs itself."""
    seen: set[tuple[str, str]] = set()
    needs: dict[str, set[str]] = {}
    open_ends = [(ROOT, EXTRA)]
    while open_ends:
        name, extra = open_ends.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            found = distribution(name)
        except PackageNotFoundError:  # of an extra that is not installed here
            continue
        for wanted in _wanted(found, extra):
            needs.setdefault(name, set()).add(_plain(wanted.name))
            open_ends += [(_plain(wanted.name), one) for one in ("", *wanted.extras)]
        needs.setdefault(name, set())
    for name, others in needs.items():
        yield name, (distribution(name), sorted(others - {name}))


def _wanted(found: Distribution, extra: str) -> Iterator[Requirement]:
    for line in found.requires or ():
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
            yield wanted


def _component(found: Distribution) -> dict[str, Any]:
    about: Mapping[str, Any] = found.metadata.json
    texts = [about.get("license_expression"), about.get("license")]
    names = [text for text in texts if isinstance(text, str) and 0 < len(text) < 100 and "\n" not in text]
    part = {"type": "library", "bom-ref": _ref(found), "name": _plain(found.name), "version": found.version}
    part["purl"] = _ref(found)
    return part | ({"licenses": [{"license": {"name": names[0]}}]} if names else {})


def _ref(found: Distribution) -> str:
    return f"pkg:pypi/{_plain(found.name)}@{found.version}"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=2)
    print()
