"""What a run was made on: the versions that its figures depend on, and nothing that would tell whose machine it was."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime

import apsw

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
    return f"{day} with Python {platform.python_version()}, {system}, {told}"


def _version_of(name: str) -> str:
    """What a server says of itself, or nothing where there is none."""
    path = find_program(name)
    if path is None:
        return ""
    said = subprocess.run([path, "--version"], check=False, capture_output=True, text=True, timeout=10).stdout
    number = re.search(r"\d+(\.\d+)+", said)
    return number[0] if number else ""
