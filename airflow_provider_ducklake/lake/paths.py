"""The text of file paths: how DuckLake joins, stores and resolves them.

Two notions are kept apart on purpose. A *path* is the exact text that a client joins and opens; it
is never normalised here. A `Location` says which object that text names: reference checks, orphan
sweeps and duplicate checks compare locations, never text.
"""

from __future__ import annotations

import os

from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError
from airflow_provider_ducklake.storage.location import Location

__all__ = [
    "Location",
    "agreed_data_path",
    "as_directory",
    "full_directory",
    "join",
    "relative_to",
    "resolve",
    "table_directory",
]


def as_directory(path: str) -> str:
    """Spell a directory the way DuckLake keeps its data path: exactly one trailing slash.

    Args:
        path: A data path as a user or the catalog gives it.

    Returns:
        The path with every trailing separator replaced by one "/"; nothing else changes.

    Raises:
        BadInput: The path is empty.

    Source: `DuckLakeInitializer::InitializeDataPath` of the reference, which does the same to a
    data path from ATTACH and to one loaded from `ducklake_metadata`.
    """
    if not path:
        raise BadInput("a data path is empty: give the directory or URL of the lake")
    return path.rstrip("/\\") + "/"


def full_directory(path: str) -> str:
    """Spell a directory as `as_directory` does; a relative local one begins where we are."""
    local = "://" not in path and not path.startswith("file:")
    return as_directory(os.path.join(os.getcwd(), path) if local else path)


def agreed_data_path(stored: str, given: str | None, where: object) -> str:
    """Return the full data path of a catalog, which the one a caller gives has to be too.

    Args:
        stored: What the catalog says.
        given: What the caller says, if anything.
        where: The catalog, for the message.

    Raises:
        ConfigurationError: They name two directories.
    """
    path = full_directory(stored)
    if given is not None and Location.parse(full_directory(given)) != Location.parse(path):
        raise ConfigurationError(
            f"{where}: the data path given ({given}) is not the one in the catalog ({stored}); "
            "leave it out, or correct the connection"
        )
    return path


def join(base: str, path: str) -> str:
    """Put a stored relative path behind its parent as every client does: by concatenation.

    Args:
        base: Directory path that ends with "/".
        path: Path relative to it, as stored; may be empty.

    Returns:
        `base + path`, scheme and spelling untouched.

    Raises:
        BadInput: `base` has no trailing slash. Clients disagree on what such a row means, so
            nothing may be read, and above all nothing deleted, by a guess.

    Source: docs/stable/duckdb/usage/paths of the DuckLake documentation; `FromRelativePath` in
    ducklake_metadata_manager.cpp.
    """
    if not base.endswith("/"):
        raise BadInput(
            f"cannot resolve {path!r} against {base!r}: a data, schema or table path must end "
            "with '/'; correct the path in the catalog"
        )
    return base + path


def table_directory(
    data_path: str,
    schema_path: str | None,
    schema_relative: bool,
    table_path: str | None,
    table_relative: bool,
) -> str:
    """Resolve the directory of a table from the path columns of its catalog rows.

    Args:
        data_path: The lake's data path, with or without trailing slash.
        schema_path: `ducklake_schema.path`; None (older catalogs) means the data path itself.
        schema_relative: `ducklake_schema.path_is_relative`.
        table_path: `ducklake_table.path`; None means the schema's directory.
        table_relative: `ducklake_table.path_is_relative`.

    Returns:
        The full directory path.

    Raises:
        BadInput: A parent path has no trailing slash, or the data path is empty.

    Source: `GetPathForTable` in ducklake_metadata_manager.cpp.
    """
    schema = _resolve_step(as_directory(data_path), schema_path, schema_relative)
    return _resolve_step(schema, table_path, table_relative)


def resolve(
    data_path: str,
    schema_path: str | None,
    schema_relative: bool,
    table_path: str | None,
    table_relative: bool,
    file_path: str,
    file_relative: bool,
) -> str:
    """Resolve the full path of a data or delete file of a table.

    Args:
        data_path: The lake's data path.
        schema_path: See `table_directory`.
        schema_relative: See `table_directory`.
        table_path: See `table_directory`.
        table_relative: See `table_directory`.
        file_path: `path` of `ducklake_data_file` or `ducklake_delete_file`.
        file_relative: Its `path_is_relative`.

    Returns:
        The full path, as the reference opens it.

    Raises:
        BadInput: A parent path has no trailing slash, or the data path is empty.
    """
    if not file_relative:
        return file_path
    directory = table_directory(data_path, schema_path, schema_relative, table_path, table_relative)
    return join(directory, file_path)


def relative_to(path: str, base: str) -> tuple[str, bool]:
    """Give the form in which a full path is stored below a parent directory.

    Args:
        path: Full path of a file or directory.
        base: Full path of the parent directory.

    Returns:
        The text to store and `path_is_relative`: relative when the object lies under `base` by
        path segments (the reference compares text, so `/lake2` passes for a child of `/lake`),
        else the path unchanged. `join(base, text)` always names the same object again.

    Raises:
        BadInput: One of the paths is malformed.
        ConfigurationError: One of the paths has a scheme that is not supported.
    """
    base = as_directory(base)
    location, parent = Location.parse(path), Location.parse(base)
    if not location.is_under(parent):
        return path, False
    rest = path.removeprefix(base)
    if rest != path and not rest.startswith("/"):
        return rest, True
    if ".." in path.split("/"):
        # Behind a symbolic link the text before ".." matters: keep what was given.
        return path, False
    rest = "/".join(location.segments[len(parent.segments) :])
    return (rest + "/" if rest and path.endswith("/") else rest), True


def _resolve_step(base: str, path: str | None, relative: bool) -> str:
    if path is None:
        return base
    return join(base, path) if relative else path
