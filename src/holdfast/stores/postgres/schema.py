"""Makes Holdfast's tables, or brings them to this version; and looks at what the server promises."""

from __future__ import annotations

from typing import Any, Final

import psycopg
import psycopg.sql
from msgspec import Struct

from holdfast.errors import StoreAway, StoreError
from holdfast.stores.postgres.connection import Address, Line
from holdfast.stores.postgres.queries import migrations

_OLDEST: Final = 130_000
_PATIENCE: Final = "60s"
_LOOK: Final = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
    current_setting('server_encoding'), pg_is_in_recovery(),
    current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names')
"""
_LOCK: Final = b"SELECT pg_advisory_xact_lock(5212092350187001)"
"""One at a time, of all who make or change the tables in this database."""
_IS_THERE: Final = """
SELECT EXISTS (SELECT FROM pg_class WHERE relname = 'holdfast_meta'
    AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s))
"""
"""Read from the catalog: to_regclass may answer from before the wait for the lock."""
_RIGHTS: Final = """
SELECT quote_ident(current_user), quote_ident(nspname),
    has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE'),
    (SELECT bool_and(
        has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
        AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')
    ) FROM pg_class WHERE relnamespace = space.oid AND relkind = 'r' AND relname ^@ 'holdfast_')
FROM pg_namespace AS space WHERE nspname = %s
"""
_MAKE: Final = """
SELECT quote_ident(current_user), quote_ident(%s), has_database_privilege(current_database(), 'CREATE')
"""
_META: Final = "SELECT value FROM {}.holdfast_meta WHERE key = %s"


class Server(Struct, frozen=True):
    """What the server is and promises."""

    version: str
    schema: str
    store: str
    """The name of this very store, by which a caller's connection is known to lead to it."""
    is_durable: bool
    durability: str
    warnings: tuple[str, ...]


def open_schema(line: Line, address: Address) -> Server:
    """Look at the server, and make the tables if they are not there; whoever comes first does it."""
    found = _row(line, _LOOK)
    number, version, encoding, is_standby, *promises = found
    if number < _OLDEST:
        raise StoreError(f"{address.location}: PostgreSQL {version} is too old; 13 is the first one that works")
    if is_standby:
        raise StoreAway(f"{address.location}: this is a standby, which is read-only; give the address of the primary")
    if encoding != "UTF8":
        raise StoreError(f"{address.location}: the database is in {encoding}; create one WITH ENCODING 'UTF8'")
    schema = _schema_of(line, address)
    _check_rights(line, address, schema)
    _migrate(line, address, schema)
    (store,) = _row(line, _META.format(psycopg.sql.Identifier(schema).as_string(line)), ("store",))
    is_durable, durability, warnings = _promises(*promises)
    return Server(f"PostgreSQL {version}", schema, store, is_durable, durability, warnings)


def _row(line: Line, sql: str, values: tuple[Any, ...] | None = None) -> Any:
    return line.execute(sql.encode(), values).fetchone()


def _schema_of(line: Line, address: Address) -> str:
    """The schema that the tables are in, made if it was asked for by name."""
    if address.schema:
        (is_there,) = _row(line, "SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", (address.schema,))
        if not is_there:
            role, quoted, may_make = _row(line, _MAKE, (address.schema,))
            if not may_make:
                what = f"there is no schema {address.schema}, and the role {role} may not make it"
                raise StoreError(f"{address.location}: {what}; CREATE SCHEMA {quoted} AUTHORIZATION {role}")
            name = psycopg.sql.Identifier(address.schema)
            with line.transaction():
                line.execute(_LOCK)
                line.execute(psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        return address.schema
    (schema,) = _row(line, "SELECT current_schema()")
    if schema is None:
        raise StoreError(f"{address.location}: the user's search_path names no schema that it may use; add ?schema=…")
    return str(schema)


def _check_rights(line: Line, address: Address, schema: str) -> None:
    """Refuse a role that cannot work here, with the words that would let it."""
    role, quoted, may_use, may_create, may_write = _row(line, _RIGHTS, (schema,))
    if not may_use:
        what = f"has no rights on the schema {schema}; GRANT USAGE ON SCHEMA {quoted} TO {role}"
    elif may_write is None and not may_create:
        what = (
            f"may not make tables in the schema {schema}; open the store once as its owner, "
            f"or GRANT CREATE ON SCHEMA {quoted} TO {role}"
        )
    elif may_write is False:
        grant = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {quoted} TO {role}"
        what = f"has no rights on the tables in the schema {schema}; {grant}"
    else:
        return
    raise StoreError(f"{address.location}: the role {role} {what}")


def _migrate(line: Line, address: Address, schema: str) -> None:
    scripts = migrations()
    if _version_of(line, address, schema) == len(scripts):
        return
    was_s, line.answer_s = line.answer_s, 120.0
    line.execute(f"SET statement_timeout = '{_PATIENCE}'".encode())
    line.execute(f"SET lock_timeout = '{_PATIENCE}'".encode())
    try:
        with line.transaction():
            line.execute(_LOCK)
            line.execute(psycopg.sql.SQL("SET LOCAL search_path = {}").format(psycopg.sql.Identifier(schema)))
            version = _version_of(line, address, schema)  # somebody else may have been first
            for number, script in enumerate(scripts[version:], start=version + 1):
                line.execute(script.encode())
                line.execute(
                    b"INSERT INTO holdfast_meta VALUES ('schema_version', %s) "
                    b"ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    (str(number),),
                )
    finally:
        if not line.closed:
            line.answer_s = was_s


def _version_of(line: Line, address: Address, schema: str) -> int:
    """The schema version, 0 without our tables; refuses what is not ours or is newer."""
    quoted = psycopg.sql.Identifier(schema).as_string(line)
    (is_there,) = _row(line, _IS_THERE, (schema,))
    if not is_there:
        return 0
    try:
        found = _row(line, _META.format(quoted), ("schema_version",))
        version = int(found[0])
    except (psycopg.ProgrammingError, TypeError, ValueError) as error:
        what = f"the schema {schema} has a table holdfast_meta that Holdfast did not make"
        raise StoreError(f"{address.location}: {what}; give another schema") from error
    newest = len(migrations())
    if version > newest:
        what = f"the tables were made by a newer Holdfast (schema {version}, not {newest})"
        raise StoreError(f"{address.location}: {what}; upgrade Holdfast")
    return version


def _promises(fsync: str, full_pages: str, commit: str, standbys: str) -> tuple[bool, str, tuple[str, ...]]:
    """Whether what was acknowledged survives a power cut, in words too, and what should be mended."""
    warnings = []
    if fsync == "off":
        warnings.append("fsync is off on the server: a crash of its machine may destroy everything; set fsync = on")
    if full_pages == "off" and fsync == "on":
        warnings.append(
            "full_page_writes is off on the server: a power cut may damage its tables, and with them what it said yes "
            "to; set full_page_writes = on, unless its file system never writes half of a page"
        )
    if commit == "off":
        warnings.append(
            "synchronous_commit is off: a crash of the server loses what it said yes to in the last moments"
        )
    if fsync == "off":
        lost = "with a crash of the server or its machine everything may be lost"
    elif full_pages == "off":  # nobody can ask the server for its file system
        lost = "a power cut may damage the server's tables, unless its file system never writes half of a page"
    elif commit == "off":
        lost = "with a crash of the server or its machine the last moments may be lost"
    else:
        return True, _survives(commit if standbys else ""), ()
    return False, f"Not all survives: {lost}.", tuple(warnings)


def _survives(commit: str) -> str:
    """Of commits that wait for the disk, and so far for a synchronous standby; empty where there is none."""
    on_disk = "What is acknowledged is on the server's disk"
    outlives = "it survives a crash of the server and a power cut"
    if commit in {"on", "remote_apply"}:
        return "What is acknowledged is on the disks of the server and of a standby: it survives the loss of one."
    if commit == "remote_write":
        beyond = "and the loss of the server unless the standby's machine crashes at that moment"
        return f"{on_disk}, and in a standby's memory: {outlives}, {beyond}."
    return f"{on_disk}: {outlives}.{' No standby is waited for.' if commit else ''}"
