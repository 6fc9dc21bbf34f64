"""VARIANT values as Parquet encodes them, a pair of byte strings: how Spark and Arrow hold them.

Source: parquet-format's VariantEncoding.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.errors import BadInput

# What tells the pair from any other struct: Spark marks the field so.
_MARK: Final = b"variant"
_METADATA, _VALUE = "metadata", "value"

# Types of a primitive whose values are not alike to DuckDB and Spark, by number.
_DECIMAL: Final = 8
_WIDE_DECIMAL: Final = 10
_FATAL_SCALES: Final = range(16, 32)  # decimals of eight bytes have 18 digits; some writers err
_DATE: Final = 11
_MICROSECONDS: Final = (12, 13)
_NANOSECONDS_WITH_ZONE: Final = 18
# Bytes of a primitive's value; what has a length of its own is left out.
_WIDTHS: Final = {
    **dict.fromkeys((0, 1, 2), 0), 3: 1, 4: 2, 5: 4, 6: 8, 7: 8, 8: 5, 9: 9, 10: 17, 11: 4,
    12: 8, 13: 8, 14: 4, 17: 8, 18: 8, 19: 8, 20: 16,
}  # fmt: skip
_WITH_LENGTH: Final = (15, 16)
_SHORT_STRING: Final = 1
_OBJECT: Final = 2
_ARRAY: Final = 3
_EMPTY_STRING: Final = bytes([_SHORT_STRING])
_WRONG_LENGTH: Final = 64
_HEADER_OF_NANOSECONDS: Final = bytes([_NANOSECONDS_WITH_ZONE << 2])
_INFINITE_DATES: Final = frozenset(struct.pack("<i", day) for day in (2**31 - 1, -(2**31) + 1))
_INFINITE_TIMES: Final = frozenset(struct.pack("<q", at) for at in (2**63 - 1, -(2**63) + 1))


def is_variant(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type is the pair of a VARIANT, as Spark marks it."""
    if not pa.types.is_struct(kind) or {field.name for field in kind} != {_METADATA, _VALUE}:
        return False
    return (kind.field(_METADATA).metadata or {}).get(_MARK) == b"true"


def has_variant(kind: pa.DataType) -> bool:
    """Tell whether a VARIANT is a part of an Arrow type, or all of it."""
    return is_variant(kind) or any(
        has_variant(kind.field(index).type) for index in range(kind.num_fields)
    )


def from_parts_sql(pair: str) -> str:
    """Return SQL that makes a VARIANT of a struct with the fields `metadata` and `value`."""
    return (
        f"CASE WHEN {pair} IS NOT NULL "
        f'THEN variant_bytes_to_variant({pair}.metadata || {pair}."value") END'
    )


def to_parts_sql(value: str) -> str:
    """Return SQL that makes a struct of `value` and `metadata`, in this order, of a VARIANT."""
    pair = _pair_sql(value)
    # Not a variable for the pair: DuckDB evaluates an expression that stands twice once.
    parts = f"{{'value': ({pair}).\"value\", 'metadata': ({pair}).metadata}}"
    return f"CASE WHEN {value} IS NOT NULL THEN {parts} END"


def _pair_sql(value: str) -> str:
    return f'CAST(variant_to_parquet_variant({value}) AS STRUCT(metadata BLOB, "value" BLOB))'


def fatal_decimal_sql(value: str) -> str:
    """Return SQL that tells whether a VARIANT may hold a decimal whose text ends the process.

    DuckDB keeps a decimal of up to four digits in 16 bits, and divides it there by a power of ten
    to write it out: ten to the 16th, cut to 16 bits, is zero (tried on 1.5.5).
    """
    pair = _pair_sql(value)
    text = f'CAST(({pair})."value" AS VARCHAR)'  # in which a byte that is no letter is `\x10`
    header = chr(_DECIMAL << 2)
    found = (f"contains({text}, '{header}\\x{scale:02X}')" for scale in _FATAL_SCALES)
    return " OR ".join(found)


def with_wide_decimals(array: pa.StructArray) -> pa.StructArray:
    """Return pairs that DuckDB made, with decimals of `fatal_decimal_sql` in its widest form."""
    whole = as_pairs(array, array.type)
    values = [_mended(value, 0, len(value), _wide) for value in whole.field(_VALUE).to_pylist()]
    parts = {_METADATA: whole.field(_METADATA), _VALUE: pa.array(values, pa.binary())}
    names = [field.name for field in array.type]
    return pa.StructArray.from_arrays([parts[name] for name in names], names)


def require_exact(array: pa.StructArray, column: str) -> None:
    """Refuse values that would become others between Spark and DuckDB, or that are broken.

    DuckDB cuts instants of nanoseconds off, and takes the last day and instant for infinity.

    Args:
        array: Pairs.
        column: Name for messages.

    Raises:
        BadInput: There is such a value.
    """
    array = array.drop_null()
    for metadata in array.field(_METADATA).unique().to_pylist():
        # DuckDB finds the value behind the metadata by what the metadata says of its length.
        if not _is_whole(metadata):
            raise BadInput(f"column {column} holds a broken VARIANT: its metadata is no dictionary")
    values = array.field(_VALUE)
    suspect = None
    for part in (_HEADER_OF_NANOSECONDS, *_INFINITE_DATES, *_INFINITE_TIMES):
        found = pc.match_substring(values, part)
        suspect = found if suspect is None else pc.or_(suspect, found)
    for value in values.filter(suspect).to_pylist():
        try:
            problems = [_problem(kind, content) for kind, content in _primitives(value, 0)]
        except (IndexError, RecursionError):
            raise BadInput(f"column {column} holds a broken VARIANT: it ends too soon") from None
        for problem in filter(None, problems):
            raise BadInput(f"column {column} holds a VARIANT with {problem}")


def as_pairs(array: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    """Return pairs that DuckDB made as a type whose fields allow no NULL.

    DuckDB writes a text of 64 bytes as one of none with something behind it (tried on 1.5.5).
    """
    metadata, values = (pc.fill_null(array.field(name), b"") for name in (_METADATA, _VALUE))
    suspect = pc.and_(
        pc.greater_equal(pc.binary_length(values), 1 + _WRONG_LENGTH),
        pc.match_substring(values, _EMPTY_STRING),
    )
    if pc.any(suspect).as_py():
        mended = [
            _mended(value, 0, len(value), _whole_text)
            for value in values.filter(suspect).to_pylist()
        ]
        values = pc.replace_with_mask(values, suspect, pa.array(mended, values.type))
    parts = {_METADATA: metadata, _VALUE: values}
    names = [parts[field.name] for field in kind]
    return pa.StructArray.from_arrays(names, fields=list(kind), mask=array.is_null())


def _problem(kind: int, content: bytes) -> str | None:
    if kind == _NANOSECONDS_WITH_ZONE:
        return "an instant of nanoseconds, which DuckDB would cut off: write it with microseconds"
    infinite = (kind == _DATE and content in _INFINITE_DATES) or (
        kind in _MICROSECONDS and content in _INFINITE_TIMES
    )
    if infinite:
        return "an infinite date or timestamp, which Spark has not: leave the row out"
    return None


def _is_whole(metadata: bytes | None) -> bool:
    """Tell whether metadata is as long as it says."""
    if not metadata:
        return False
    width = (metadata[0] >> 6) + 1
    try:
        names = _integer(metadata, 1, width)
        length = _integer(metadata, 1 + width * (names + 1), width)
    except IndexError:
        return False
    return len(metadata) == 1 + width * (names + 2) + length


def _primitives(value: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of each primitive inside a value that has a width of its own."""
    basic, header = value[at] & 3, value[at] >> 2
    if basic in (_OBJECT, _ARRAY):
        start, _, _, offsets = _parts(value, at)
        for offset in offsets[:-1]:
            yield from _primitives(value, start + offset)
    elif basic != _SHORT_STRING and header not in _WITH_LENGTH:
        yield header, value[at + 1 : at + 1 + _WIDTHS.get(header, 0)]


def _mended(value: bytes, at: int, end: int, mend: Callable[[bytes], bytes]) -> bytes:
    """Return the value between two places, mended, or with what is inside of it mended."""
    if value[at] & 3 not in (_OBJECT, _ARRAY):
        return mend(value[at:end])
    start, count, ids, offsets = _parts(value, at)
    items = [_mended(value, start + a, start + b, mend) for a, b in pairwise(offsets)]
    ends = [0, *accumulate(map(len, items))]
    # Offsets of four bytes, whatever they were before.
    header = value[at] | (3 << 2)
    numbers = b"".join(number.to_bytes(4, "little") for number in ends)
    return bytes([header]) + count + ids + numbers + b"".join(items)


def _whole_text(value: bytes) -> bytes:
    """Return a text of 64 bytes as it should be, anything else as it is."""
    if value[:1] != _EMPTY_STRING or len(value) != 1 + _WRONG_LENGTH:
        return value
    return bytes([_WITH_LENGTH[1] << 2]) + _WRONG_LENGTH.to_bytes(4, "little") + value[1:]


def _wide(value: bytes) -> bytes:
    """Return a short decimal whose text DuckDB cannot write as a long one, which it can."""
    if value[0] != _DECIMAL << 2 or value[1] not in _FATAL_SCALES:
        return value
    digits = int.from_bytes(value[2:], "little", signed=True)
    return bytes([_WIDE_DECIMAL << 2, value[1]]) + digits.to_bytes(16, "little", signed=True)


def _parts(value: bytes, at: int) -> tuple[int, bytes, bytes, list[int]]:
    """Return where the items of an object or array start; its count, ids and offsets."""
    is_object, header = value[at] & 3 == _OBJECT, value[at] >> 2
    counted = at + 1 + (4 if header >> (4 if is_object else 2) & 1 else 1)
    count = _integer(value, at + 1, counted - at - 1)
    numbered = counted + (count * ((header >> 2 & 3) + 1) if is_object else 0)
    width = (header & 3) + 1
    start = numbered + (count + 1) * width
    if start > len(value):
        raise IndexError
    offsets = [_integer(value, numbered + i * width, width) for i in range(count + 1)]
    return start, value[at + 1 : counted], value[counted:numbered], offsets


def _integer(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + width], "little")
