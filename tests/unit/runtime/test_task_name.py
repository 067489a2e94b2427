"""A task has one name, however and from wherever its file was started."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.runtime.task_name import task_name

TASKS = """
from holdfast.runtime.task_name import task_name

def charge(): ...

name = task_name(charge)

def show():
    print(name)

if __name__ == "__main__":
    import multiprocessing, sys
    print(name)
    if "spawn" in sys.argv:
        process = multiprocessing.get_context("spawn").Process(target=show)
        process.start()
        process.join()
"""


def named() -> None: ...


class Methods:
    def method(self) -> None: ...

    @staticmethod
    def static() -> None: ...

    def __call__(self) -> None: ...


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "tasks.py").write_text(TASKS)
    return tmp_path


def run(*arguments: str, cwd: Path) -> list[str]:
    answer = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return answer.stdout.split()


def test_a_function_goes_by_its_module_and_name() -> None:
    assert task_name(named) == f"{__name__}.named"


def test_a_started_file_has_the_name_that_importing_it_would_give(shop: Path) -> None:
    assert run("shop/tasks.py", cwd=shop) == ["tasks.charge"]
    assert run("tasks.py", cwd=shop / "shop") == ["tasks.charge"]
    assert run(str(shop / "shop" / "tasks.py"), cwd=Path("/")) == ["tasks.charge"]
    assert run("-m", "shop.tasks", cwd=shop) == ["shop.tasks.charge"]
    assert run("-c", "import shop.tasks; shop.tasks.show()", cwd=shop) == ["shop.tasks.charge"]


def test_a_spawned_process_knows_the_task_by_the_same_name(shop: Path) -> None:
    assert run("shop/tasks.py", "spawn", cwd=shop) == ["tasks.charge"] * 2
    assert run("-m", "shop.tasks", "spawn", cwd=shop) == ["shop.tasks.charge"] * 2


def test_code_without_a_file_is_main(tmp_path: Path) -> None:
    assert run("-c", TASKS, cwd=tmp_path) == ["__main__.charge"]


def test_a_nested_function_goes_without_the_word_locals() -> None:
    def inner() -> None: ...

    assert task_name(inner) == f"{__name__}.test_a_nested_function_goes_without_the_word_locals.inner"


def test_a_wrapped_function_keeps_its_name() -> None:
    @functools.wraps(named)
    def wrapper() -> None: ...

    assert task_name(wrapper) == f"{__name__}.named"


@pytest.mark.parametrize(
    "fn",
    [
        Methods.method,
        Methods.static,
        Methods().method,
        Methods(),
        Methods,
        lambda: None,
        functools.partial(named),
        len,
    ],
)
def test_what_has_no_stable_name_must_be_given_one(fn: Any) -> None:
    with pytest.raises(ConfigError, match="name="):
        task_name(fn)


def test_a_function_of_no_module_must_be_given_a_name() -> None:
    namespace: dict[str, Any] = {"__name__": None}
    exec("def made(): ...", namespace)
    with pytest.raises(ConfigError, match="name="):
        task_name(namespace["made"])
