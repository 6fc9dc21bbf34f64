"""VARIANT values as plain Python, written to and read from Parquet's encoding of them.

A value is None, a bool, a string, bytes, a list, a dictionary, or a `Typed` one.

Source: parquet-format's VariantEncoding.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa

# As Spark hands it over, whose mark tells it from any other struct.
PAIR: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)


class Typed(NamedTuple):
    """A number or a time of a certain type: an integer, a float, or a decimal's digits and scale.

    Times are counted in the unit of their type since 1970 or midnight.
    """

    kind: str
    value: Any


# Number and format of each kind; a decimal's format is of its digits, which follow its scale.
KINDS: Final[dict[str, tuple[int, Any]]] = {
    "int8": (3, "<b"), "int16": (4, "<h"), "int32": (5, "<i"), "int64": (6, "<q"),
    "double": (7, "<d"), "decimal4": (8, 4), "decimal8": (9, 8), "decimal16": (10, 16),
    "date": (11, "<i"), "timestamp": (12, "<q"), "timestamp_ntz": (13, "<q"), "float": (14, "<f"),
    "time": (17, "<q"), "timestamp_ns": (18, "<q"), "timestamp_ntz_ns": (19, "<q"),
    "uuid": (20, "16s"),
}  # fmt: skip
_BY_NUMBER: Final = {number: kind for kind, (number, _) in KINDS.items()}


def pairs(values: Sequence[Any]) -> pa.Array:
    """Return values as Spark hands them over; `...` stands for SQL's NULL."""
    encoded = [None if value is ... else encode(value) for value in values]
    parts = [e and {"metadata": e[0], "value": e[1]} for e in encoded]
    return pa.array(parts, PAIR)


def encode(value: Any) -> tuple[bytes, bytes]:
    """Return metadata and value."""
    names = sorted(set(_names(value)), key=str.encode)
    texts = [name.encode() for name in names]
    ends = [sum(map(len, texts[:i])) for i in range(len(texts) + 1)]
    numbers = b"".join(n.to_bytes(4, "little") for n in (len(names), *ends))
    places = {name: place for place, name in enumerate(names)}
    return bytes([0xD1]) + numbers + b"".join(texts), _encode(value, places)


def decode(metadata: bytes, value: bytes) -> Any:
    """Return the value that some metadata and value mean."""
    width = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + width], "little")
    ends = [
        int.from_bytes(metadata[1 + width * (i + 1) : 1 + width * (i + 2)], "little")
        for i in range(count + 1)
    ]
    texts = metadata[1 + width * (count + 2) :]
    names = [texts[a:b].decode() for a, b in pairwise(ends)]
    return _decode(value, 0, names)


def _names(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [*value, *(name for item in value.values() for name in _names(item))]
    return [n for item in value for n in _names(item)] if isinstance(value, list) else []


def _encode(value: Any, places: Mapping[str, int]) -> bytes:
    if isinstance(value, Mapping | list):
        items = value if isinstance(value, list) else [value[n] for n in sorted(value, key=_utf8)]
        parts = [_encode(item, places) for item in items]
        ends = b"".join(
            sum(map(len, parts[:i])).to_bytes(4, "little") for i in range(len(parts) + 1)
        )
        count, content = len(parts).to_bytes(4, "little"), b"".join(parts)
        if isinstance(value, list):
            return bytes([(0b111 << 2) | 3]) + count + ends + content
        ids = b"".join(places[n].to_bytes(4, "little") for n in sorted(value, key=_utf8))
        return bytes([(0b11111 << 2) | 2]) + count + ids + ends + content
    if value is None:
        return b"\x00"
    if isinstance(value, bool):
        return bytes([(1 if value else 2) << 2])
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        if isinstance(value, str) and len(data) < 64:
            return bytes([len(data) << 2 | 1]) + data
        number = 16 if isinstance(value, str) else 15
        return bytes([number << 2]) + len(data).to_bytes(4, "little") + data
    number, form = KINDS[value.kind]
    if isinstance(form, int):
        digits, scale = value.value
        return bytes([number << 2, scale]) + int(digits).to_bytes(form, "little", signed=True)
    return bytes([number << 2]) + struct.pack(form, value.value)


def _utf8(name: str) -> bytes:
    return name.encode()


def _decode(data: bytes, at: int, names: Sequence[str]) -> Any:
    basic, header = data[at] & 3, data[at] >> 2
    if basic == 1:
        return data[at + 1 : at + 1 + header].decode()
    if basic in (2, 3):
        return _container(data, at, names)
    if header < 3:
        return (None, True, False)[header]
    if header in (15, 16):
        length = int.from_bytes(data[at + 1 : at + 5], "little")
        content = data[at + 5 : at + 5 + length]
        return content if header == 15 else content.decode()
    kind = _BY_NUMBER[header]
    form = KINDS[kind][1]
    if isinstance(form, int):
        digits = int.from_bytes(data[at + 2 : at + 2 + form], "little", signed=True)
        return Typed(kind, (digits, data[at + 1]))
    return Typed(kind, struct.unpack_from(form, data, at + 1)[0])


def _container(data: bytes, at: int, names: Sequence[str]) -> Any:
    is_object, header = data[at] & 3 == 2, data[at] >> 2
    large = header >> (4 if is_object else 2) & 1
    width, id_width = (header & 3) + 1, ((header >> 2 & 3) + 1 if is_object else 0)
    at += 1

    def take(size: int) -> int:
        nonlocal at
        at += size
        return int.from_bytes(data[at - size : at], "little")

    count = take(4 if large else 1)
    ids = [take(id_width) for _ in range(count)] if is_object else []
    starts = [take(width) for _ in range(count + 1)]
    items = [_decode(data, at + start, names) for start in starts[:-1]]
    return {names[i]: item for i, item in zip(ids, items, strict=True)} if is_object else items


def as_spark_holds(table: pa.Table) -> pa.Table:
    """Return a table whose column `v` is DuckDB's pair of a VARIANT with the pair Spark has."""
    found = table["v"].combine_chunks()
    parts = [found.field(field.name) for field in PAIR]
    return pa.table({"v": pa.StructArray.from_arrays(parts, fields=list(PAIR))})
