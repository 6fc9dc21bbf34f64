"""Finding objects by a path, a directory or a glob pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.storage.location import split_url
from airflow_provider_ducklake.storage.protocol import Store

_MAGIC = re.compile(r"[*?[]")
_CLASS = re.compile(r"\[([!^]?)(\]?[^\]]*)\]")


def expand(store: Store, pattern: str) -> list[str]:
    """Find the objects a path, directory or pattern names; see `Store.glob`.

    A path that exists as it is spelled wins over its reading as a pattern, so `data[1].parquet`
    can be named. Wildcards do not match a leading ".", and a directory yields no file whose path
    below it has a segment that starts with "." or "_" (unless that is a `_key=value` partition):
    such names hold the bookkeeping of other programs.

    Args:
        store: Where to look.
        pattern: Path, directory or pattern.

    Returns:
        Full paths in order, spelled like the pattern.

    Raises:
        BadInput: The pattern has ".." behind a wildcard, or a range like [z-a].
        StorageError: The store refused.
    """
    rest = split_url(pattern)[2]
    parts = rest.split("/")
    if parts[-1] and store.exists(pattern):
        return [pattern]
    magic = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), None)
    if magic is None:
        return _below(store, pattern.rstrip("/") + "/", _is_visible_parquet)
    if ".." in parts[magic:]:
        raise BadInput(f"{pattern!r}: '..' behind a wildcard is not supported")
    prefix = pattern[: len(pattern) - len(rest)] + "".join(f"{part}/" for part in parts[:magic])
    try:
        matches = compile_segments(
            [part for part in parts[magic:] if part not in ("", ".")]
        ).fullmatch
    except re.error as error:
        raise BadInput(f"{pattern!r} is not a valid pattern: {error}") from None
    return _below(store, prefix, lambda path: matches(path) is not None)


def compile_segments(segments: Sequence[str]) -> re.Pattern[str]:
    """Translate the segments of a glob pattern into a regular expression over "/"-joined paths.

    Args:
        segments: Segments with `*`, `?`, `[…]`, `[!…]`; `**` alone stands for any number of
            directories, as the last segment for everything below.

    Returns:
        The expression, to be matched in full.
    """
    expression = ""
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if segment == "**":
            expression += r"(?:(?!\.)[^/]+/)*" + (r"(?!\.)[^/]+" if last else "")
        else:
            expression += _translate(segment) + ("" if last else "/")
    return re.compile(expression, re.DOTALL)


def _translate(segment: str) -> str:
    expression = r"(?!\.)" if segment[0] in "*?[" else ""
    position = 0
    while position < len(segment):
        character = segment[position]
        position += 1
        group = _CLASS.match(segment, position - 1) if character == "[" else None
        if character == "*":
            expression += "[^/]*"
        elif character == "?":
            expression += "[^/]"
        elif group and group[2]:
            members = re.sub(r"([\\\[\]&~|^])", r"\\\1", group[2])
            expression += f"(?!/)[{'^' if group[1] else ''}{members}]"
            position = group.end()
        else:
            expression += re.escape(character)
    return expression


def _is_visible_parquet(path: str) -> bool:
    hidden = any(
        part.startswith(".") or (part.startswith("_") and "=" not in part)
        for part in path.split("/")
    )
    return path.endswith(".parquet") and not hidden


def _below(store: Store, prefix: str, wanted: Callable[[str], bool]) -> list[str]:
    found: list[str] = []
    directory = prefix or "./"
    base = store.locate(directory)
    if ".." in directory.split("/"):
        base = base.real()
    for info in store.list(directory):
        relative = "/".join(info.location.segments[len(base.segments) :])
        # An empty object without suffix is the marker some tools leave for a directory.
        if wanted(relative) and (info.size or "." in info.location.name):
            found.append(prefix + relative)
    return sorted(found)
