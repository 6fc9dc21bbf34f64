"""Parquet files no library here would write: old list layouts, odd annotations, bare statistics.

One row group, one plain uncompressed page a column, a footer in Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)
REQUIRED, OPTIONAL, REPEATED = range(3)
UTF8, MAP, MAP_KEY_VALUE, LIST = range(4)

_STOP: Final = b"\0"
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a column chunk as they stand in the footer; bounds are plain-encoded."""

    null_count: int | None = None
    min_value: bytes | None = None
    max_value: bytes | None = None
    deprecated: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One element of the schema; leaves have a physical type and their pages' content.

    Attributes:
        levels: (repetition, definition) of every slot of a leaf, in order.
        values: Values that are there, as many as slots of the highest definition level.
    """

    name: str
    repetition: int = OPTIONAL
    type: int | None = None
    converted: int | None = None
    children: tuple[Node, ...] = ()
    levels: Sequence[tuple[int, int]] = ()
    values: Sequence[Any] = ()
    statistics: Statistics | None = None
    field_id: int | None = None
    type_length: int | None = None


def write_handmade(path: Path, rows: int, columns: Sequence[Node], codec: int = 0) -> None:
    """Write a file of one row group."""
    blob = bytearray(b"PAR1")
    chunks = []
    for leaf, names, repetition, definition in _leaves(columns, (), 0, 0):
        page = _page(leaf, repetition, definition)
        chunks.append(_chunk(leaf, names, len(blob), len(page), codec))
        blob += page
    footer = _struct(
        {
            1: (_I32, 1),
            2: (_LIST, (_STRUCT, [*_elements(columns)])),
            3: (_I64, rows),
            4: (_LIST, (_STRUCT, [_row_group(chunks, len(blob), rows)])),
            # Without column orders min_value and max_value mean nothing: one TYPE_ORDER a leaf.
            7: (_LIST, (_STRUCT, [_struct({1: (_STRUCT, _STOP)})] * len(chunks))),
        }
    )
    path.write_bytes(bytes(blob) + footer + struct.pack("<I", len(footer)) + b"PAR1")


def _leaves(
    nodes: Sequence[Node], names: tuple[str, ...], repetition: int, definition: int
) -> Iterator[tuple[Node, tuple[str, ...], int, int]]:
    for node in nodes:
        inner_repetition = repetition + (node.repetition == REPEATED)
        inner_definition = definition + (node.repetition != REQUIRED)
        path = (*names, node.name)
        if node.type is None:
            yield from _leaves(node.children, path, inner_repetition, inner_definition)
        else:
            yield node, path, inner_repetition, inner_definition


def _elements(columns: Sequence[Node]) -> Iterator[bytes]:
    yield _struct({4: (_BINARY, b"schema"), 5: (_I32, len(columns))})
    yield from (element for column in columns for element in _element(column))


def _element(node: Node) -> Iterator[bytes]:
    yield _struct(
        {
            1: (_I32, node.type),
            2: (_I32, node.type_length),
            3: (_I32, node.repetition),
            4: (_BINARY, node.name.encode()),
            5: (_I32, len(node.children) or None),
            6: (_I32, node.converted),
            9: (_I32, node.field_id),
        }
    )
    for child in node.children:
        yield from _element(child)


def _chunk(leaf: Node, names: tuple[str, ...], offset: int, size: int, codec: int) -> bytes:
    statistics = None
    if (given := leaf.statistics) is not None:
        highest, lowest = (1, 2) if given.deprecated else (5, 6)
        fields = {
            highest: (_BINARY, given.max_value),
            lowest: (_BINARY, given.min_value),
            3: (_I64, given.null_count),
        }
        statistics = _struct(dict(sorted(fields.items())))
    meta = _struct(
        {
            1: (_I32, leaf.type),
            2: (_LIST, (_I32, [_zigzag(0), _zigzag(3)])),
            3: (_LIST, (_BINARY, [_binary(name.encode()) for name in names])),
            4: (_I32, codec),
            5: (_I64, len(leaf.levels)),
            6: (_I64, size),
            7: (_I64, size),
            9: (_I64, offset),
            12: (_STRUCT, statistics),
        }
    )
    return _struct({2: (_I64, offset), 3: (_STRUCT, meta)})


def _row_group(chunks: list[bytes], size: int, rows: int) -> bytes:
    return _struct({1: (_LIST, (_STRUCT, chunks)), 2: (_I64, size), 3: (_I64, rows)})


def _page(leaf: Node, repetition: int, definition: int) -> bytes:
    data = b"" if not repetition else _rle([r for r, _ in leaf.levels], repetition)
    data += b"" if not definition else _rle([d for _, d in leaf.levels], definition)
    data += _plain(leaf)
    page = _struct({1: (_I32, len(leaf.levels)), 2: (_I32, 0), 3: (_I32, 3), 4: (_I32, 3)})
    head = _struct({1: (_I32, 0), 2: (_I32, len(data)), 3: (_I32, len(data)), 5: (_STRUCT, page)})
    return head + data


def _plain(leaf: Node) -> bytes:
    if leaf.type == BYTE_ARRAY:
        return b"".join(struct.pack("<I", len(value)) + value for value in leaf.values)
    if leaf.type in (FIXED, INT96):
        return b"".join(leaf.values)
    layout = {INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}[leaf.type or 0]
    return b"".join(struct.pack(layout, value) for value in leaf.values)


def _rle(levels: Sequence[int], highest: int) -> bytes:
    width = (highest.bit_length() + 7) // 8
    runs = ((level, len(list(group))) for level, group in groupby(levels))
    data = b"".join(
        _varint(length << 1) + level.to_bytes(width, "little") for level, length in runs
    )
    return struct.pack("<I", len(data)) + data


def _struct(fields: dict[int, tuple[int, Any]]) -> bytes:
    blob, last = b"", 0
    for number, (kind, value) in fields.items():
        if value is not None:
            blob += bytes([(number - last) << 4 | kind]) + _value(kind, value)
            last = number
    return blob + _STOP


def _value(kind: int, value: Any) -> bytes:
    if kind in (_I32, _I64):
        return _zigzag(value)
    if kind == _BINARY:
        return _binary(value)
    if kind == _LIST:
        item, items = value
        short = len(items) if len(items) < 15 else 15
        return (
            bytes([short << 4 | item])
            + (_varint(len(items)) if short == 15 else b"")
            + b"".join(items)
        )
    return bytes(value)


def _binary(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _varint(value: int) -> bytes:
    blob = bytearray()
    while value > 0x7F:
        blob.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*blob, value])
