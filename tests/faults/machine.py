"""What a run was made on: the versions that its figures depend on, and nothing that would tell whose machine it was."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime

import apsw

from tests.faults.workers import ROOT
from tests.kafka_server import JARS
from tests.servers import find_program


def made_on(now: float) -> str:
    """When, and on what; nothing that tells one machine from another of its kind."""
    kernel = re.match(r"[\d.]*\d", platform.release())
    kafka = [jar.stem.rpartition("-")[2] for jar in JARS.glob("kafka-clients-*.jar")]
    servers = {
        "SQLite": apsw.sqlite_lib_version(),
        "PostgreSQL": _version_of("postgres"),
        "Redis": _version_of("redis-server"),
        "Kafka": kafka[0] if kafka else "",
    }
    told = ", ".join(f"{name} {version}" for name, version in servers.items() if version)
    day = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M UTC")
    system = f"{platform.system()} {kernel[0] if kernel else ''} on {os.cpu_count()} cores"
    return f"{day}{_source()} with Python {platform.python_version()}, {system}, {told}"


def _source() -> str:
    """Of which state of `src`, by its name in git, which no other commit of the same state changes."""
    name = _said_by("git", "rev-parse", "--short=10", "HEAD:src")
    if not name:  # no checkout
        return ""
    is_changed = bool(_said_by("git", "status", "--porcelain", "src"))
    return f" of `src` {name}{', changed since,' if is_changed else ''} (`git rev-parse HEAD:src`)"


def _version_of(name: str) -> str:
    """What a server says of itself, or nothing where there is none."""
    path = find_program(name)
    if path is None:
        return ""
    number = re.search(r"\d+(\.\d+)+", _said_by(path, "--version"))
    return number[0] if number else ""


def _said_by(*command: str) -> str:
    """What a program prints; nothing where it fails, or is not there."""
    try:
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
