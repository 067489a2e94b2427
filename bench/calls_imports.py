"""What `import holdfast` costs: fresh interpreters, and what they have loaded afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from statistics import median
from time import perf_counter

BASE_PACKAGES = {"apsw", "click", "msgspec", "rich"}

_IMPORT_ALONE = """
from time import perf_counter
began = perf_counter()
import holdfast
print(perf_counter() - began)
"""
_LOADED = "import json, sys; before = {{*sys.modules}}; import {}; print(json.dumps([*{{*sys.modules}} - before]))"


@dataclass(frozen=True, slots=True)
class ImportCost:
    """Milliseconds, best and median: of whole interpreters from start to exit, and of the import statement alone."""

    bare_best: float
    bare_median: float
    whole_best: float
    whole_median: float
    alone_best: float
    alone_median: float
    third_party: list[str]
    """Packages loaded with holdfast that are neither Python's, nor base ones, nor loaded by those."""


def measure_import(repeats: int) -> ImportCost:
    """Time fresh interpreters in turn: one that does nothing, one that imports holdfast, one that times the import."""
    bare: list[float] = []
    whole: list[float] = []
    alone: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        python = _Interpreter(folder)
        for _ in range(repeats):
            bare.append(python.timed("pass"))
            whole.append(python.timed("import holdfast"))
            alone.append(float(python.run(_IMPORT_ALONE)) * 1e3)
        third_party = _third_party(python)
    return ImportCost(min(bare), median(bare), min(whole), median(whole), min(alone), median(alone), third_party)


class _Interpreter:
    """Fresh interpreters with bytecode at hand, as an installed package has it, whatever this checkout keeps."""

    def __init__(self, folder: str) -> None:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._environment = kept | {"PYTHONPYCACHEPREFIX": folder}
        self.run("import holdfast")  # writes the bytecode, once

    def timed(self, code: str) -> float:
        began = perf_counter()
        self.run(code)
        return (perf_counter() - began) * 1e3

    def run(self, code: str) -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=self._environment).stdout


def _third_party(python: _Interpreter) -> list[str]:
    """What is there by holdfast's doing: msgspec, say, takes typing_extensions along where that is installed."""
    found = _loaded(python, "holdfast")
    base = found & BASE_PACKAGES
    for package in sorted(base):
        base |= _loaded(python, package)
    return sorted(found - base - {"holdfast"})


def _loaded(python: _Interpreter, package: str) -> set[str]:
    modules: list[str] = json.loads(python.run(_LOADED.format(package)))
    return {module.partition(".")[0] for module in modules} - sys.stdlib_module_names
