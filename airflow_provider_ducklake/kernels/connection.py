"""One private DuckDB connection a task, its scratch directory, and its errors in our words."""

from __future__ import annotations

import base64
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from airflow_provider_ducklake.lake.errors import (
    BadInput,
    ConfigurationError,
    LakeError,
    StorageError,
)
from airflow_provider_ducklake.lake.identifiers import quote_literal
from airflow_provider_ducklake.storage import StorageOptions, open_store
from airflow_provider_ducklake.storage.location import Location

_LONGEST_DETAIL: Final = 400
_DATA_ERRORS: Final = (
    duckdb.DataError,  # conversion, out of range, type mismatch
    duckdb.InvalidInputException,
    duckdb.ConstraintException,
    duckdb.SerializationException,
    duckdb.NotImplementedException,
)
# Damage that DuckDB reports as if the disk or itself had failed.
_BROKEN_FILE: Final = (
    "Could not read enough bytes",
    "TProtocolException",
    "Corrupt",
    "corruption",
    "basic_string",
)


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """What a task needs besides its work order.

    Attributes:
        storage: How remote files are reached.
        memory_limit: DuckDB's buffer limit, e.g. `1GB`; larger work spills to scratch.
        scratch_directory: Existing local directory for spilled and staged data; None is the
            system's temporary directory.
    """

    storage: StorageOptions
    memory_limit: str = "1GB"
    scratch_directory: str | None = None


def memory_limit(text: str) -> str:
    """Return a memory limit as it was given, when DuckDB takes it.

    Raises:
        ConfigurationError: It does not.
    """
    try:
        duckdb.connect(":memory:", config={"memory_limit": text, "threads": "1"}).close()
    except duckdb.Error as error:
        raise ConfigurationError(
            f"memory limit {text!r}: {detail(error)} (write it like 1GB or 512MiB)"
        ) from None
    return text


@contextmanager
def scratch(settings: KernelSettings) -> Iterator[str]:
    """Yield a fresh private local directory that is removed at exit, come what may.

    Raises:
        ConfigurationError: The scratch directory does not exist or cannot be written.
    """
    try:
        directory = tempfile.mkdtemp(prefix="ducklake-", dir=settings.scratch_directory)
    except OSError as error:
        raise ConfigurationError(
            f"scratch directory {settings.scratch_directory or tempfile.gettempdir()} cannot be "
            f"used ({error.strerror}): name an existing, writable local directory"
        ) from None
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def open_connection(settings: KernelSettings) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield an in-memory DuckDB: one thread, UTC, bounded memory, no extension downloads.

    Raises:
        ConfigurationError: DuckDB rejects the memory limit, or scratch cannot be used.
    """
    with scratch(settings) as directory:
        try:
            connection = duckdb.connect(
                ":memory:",
                config={
                    "threads": "1",
                    "memory_limit": settings.memory_limit,
                    "temp_directory": os.path.join(directory, "spill"),
                    "preserve_insertion_order": "true",
                    "autoinstall_known_extensions": "false",
                    "autoload_known_extensions": "false",
                },
            )
        except duckdb.Error as error:
            raise ConfigurationError(
                f"DuckDB does not start with memory_limit {settings.memory_limit!r}: "
                f"{detail(error)}"
            ) from None
        try:
            connection.execute("SET TimeZone = 'UTC'")
            # DuckDB draws one on standard output once a query takes two seconds.
            connection.execute("SET enable_progress_bar = false")
            # It tells versions of a file apart by size and time: not always enough, never needed.
            connection.execute("SET enable_external_file_cache = false")
            yield connection
        finally:
            connection.close()


@contextmanager
def duckdb_errors(doing: str, path: str | None = None) -> Iterator[None]:
    """Turn an error of DuckDB inside the block into one of ours, in one line.

    Args:
        doing: What is being done, as in "cannot <doing>": `write the file`.
        path: The file it is done to, if one is known.

    Raises:
        BadInput: The data or a Parquet file is broken or does not convert.
        StorageError: The file system refused.
        LakeError: Memory or disk ran out, or DuckDB itself failed.
    """
    try:
        yield
    except duckdb.Error as error:
        raise translated(error, doing, path) from None


def translated(error: duckdb.Error, doing: str, path: str | None = None) -> LakeError:
    """Return our error for one of DuckDB's, never with SQL text, which may hold keys."""
    where = f"cannot {doing}" + (f" ({path})" if path else "")
    text = detail(error)
    if "No space left on device" in text or "max_temp_directory_size" in text:
        return LakeError(
            f"{where}: the disk is full; give the scratch directory more room or make the "
            f"work smaller: {text}"
        )
    if isinstance(error, duckdb.OutOfMemoryException):
        return LakeError(
            f"{where}: out of memory; raise memory_limit or make the work smaller: {text}"
        )
    is_broken_file = any(sign in text for sign in _BROKEN_FILE)
    if isinstance(error, duckdb.IOException) and not is_broken_file:
        return StorageError(f"{where}: {text}")
    if isinstance(error, _DATA_ERRORS) or is_broken_file:
        return BadInput(f"{where}: {text}")
    return LakeError(f"{where}: {text}")


def detail(error: BaseException) -> str:
    """Return the first paragraph of an error's text as one short line."""
    lines = []
    for line in str(error).strip().splitlines():
        if not line.strip() or line.startswith(("LINE ", "Stack Trace")):
            break
        lines.append(line.strip())
    text = " ".join(lines).removeprefix("Invalid Input Error: ") or type(error).__name__
    return text if len(text) <= _LONGEST_DETAIL else text[: _LONGEST_DETAIL - 1] + "…"


def local_path(path: str) -> str | None:
    """Return the local path of a file or `file:` URL, None for one in an object store."""
    return Location.parse(path).local_path


@contextmanager
def local_copy(path: str, settings: KernelSettings) -> Iterator[str]:
    """Yield a local path with a file's bytes: its own, or a copy that is removed at exit.

    Raises:
        StorageError: The remote file cannot be read.
    """
    local = local_path(path)
    if local is not None:
        yield local
        return
    with scratch(settings) as directory:
        yield open_store(path, settings.storage).stage(path, directory)


def upload(local: str, path: str, settings: KernelSettings) -> None:
    """Copy a local file to an object store.

    Raises:
        StorageError: The store refused.
    """
    open_store(path, settings.storage).upload(local, path)


def discard(path: str, settings: KernelSettings) -> None:
    """Delete a file that was written in vain; one that is not there is fine.

    Raises:
        StorageError: It is still there.
    """
    outcome = open_store(path, settings.storage).delete([path])
    for failed, reason in outcome.failed:
        raise StorageError(f"cannot remove {failed}, which no catalog names: {reason}")


def load_openssl(connection: duckdb.DuckDBPyConnection) -> None:
    """Load DuckDB's `httpfs` from its wheel: only its OpenSSL may write encrypted Parquet.

    Raises:
        ConfigurationError: The wheel is not installed or not of this DuckDB's version.
    """
    spec = importlib.util.find_spec("duckdb_extension_httpfs")
    places = list(spec.submodule_search_locations or ()) if spec else []
    name = f"extensions/v{duckdb.__version__}/httpfs.duckdb_extension"
    found = next((path for path in (Path(p) / name for p in places) if path.is_file()), None)
    advice = f"install duckdb-extension-httpfs=={duckdb.__version__}"
    if found is None:
        raise ConfigurationError(f"encrypted lakes need DuckDB's httpfs extension: {advice}")
    try:
        connection.execute(f"LOAD {quote_literal(str(found))}")
    except duckdb.Error as error:
        raise ConfigurationError(
            f"DuckDB's httpfs extension does not load ({detail(error)}): {advice}"
        ) from None


def encryption_sql(key: str) -> str:
    """Return DuckDB's `encryption_config` value for a base64 key; never to be shown to anyone."""
    raw = base64.b64decode(key)
    return "{footer_key_value: '" + "".join(f"\\x{byte:02X}" for byte in raw) + "'::BLOB}"
