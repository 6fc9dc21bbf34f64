"""Deletion vectors: the positions in a `.puffin` delete file, a roaring bitmap on 64 bits.

The layout is Iceberg's `deletion-vector-v1` blob, which the reference writes bare, without the
container of a Puffin file around it. A reader of our own: the portable roaring format is three
kinds of container, and Arrow's kernels unpack them as fast as a C library would.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.errors import LakeError

_MAGIC: Final = b"\xd1\xd3\x39\x64"
# In front of a bitmap: whether its containers may be runs (then their number is in the high half).
_COOKIE: Final = 12346
_COOKIE_WITH_RUNS: Final = 12347
_FEWEST_FOR_OFFSETS: Final = 4
# A container with more values than this is a bitmap of 2^16 bits, one with fewer a sorted array.
_LARGEST_ARRAY: Final = 4096
_CONTAINER_BITS: Final = 1 << 16


def read_deletion_vector(blob: bytes) -> pa.Int64Array:
    """Return the positions in a deletion vector, sorted and unique.

    Args:
        blob: The whole content of the delete file.

    Returns:
        Positions in the data file, counted from 0.

    Raises:
        LakeError: The blob is cut short, of another kind, or fails its checksum.

    Source: iceberg.apache.org/puffin-spec (deletion-vector-v1 blob type), the RoaringFormatSpec,
    and the reference's storage/ducklake_deletion_vector.cpp.
    """
    outer = _Reader(blob)
    (length,) = struct.unpack(">I", outer.take(4))
    body = outer.take(length)
    (checksum,) = struct.unpack(">I", outer.take(4))
    if outer.left:
        raise LakeError(f"{outer.left} bytes follow the deletion vector")
    if zlib.crc32(body) != checksum:
        raise LakeError("the deletion vector fails its checksum")
    reader = _Reader(body)
    if reader.take(4) != _MAGIC:
        raise LakeError("this is no deletion vector (deletion-vector-v1)")
    bitmaps: dict[int, pa.Int64Array] = {}
    for _ in range(reader.number("<Q")):
        # The key is a signed word, and no row number has its highest bit set.
        key = reader.number("<i")
        if key < 0 or key in bitmaps:
            raise LakeError(f"the deletion vector holds the key {key}, below zero or twice")
        bitmaps[key] = _bitmap(reader, key << 32)
    if reader.left:
        raise LakeError(f"{reader.left} bytes follow the last bitmap of the deletion vector")
    ordered = [bitmaps[key] for key in sorted(bitmaps)]
    return pa.concat_arrays(ordered) if ordered else pa.array([], pa.int64())


@dataclass(slots=True)
class _Reader:
    data: bytes
    position: int = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise LakeError(f"the deletion vector is cut short ({len(self.data)} bytes)")
        taken = self.data[self.position : self.position + size]
        self.position += size
        return taken

    def number(self, layout: str) -> int:
        (value,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return int(value)


def _bitmap(reader: _Reader, base: int) -> pa.Int64Array:
    """Read one 32-bit bitmap in the portable format; values are offset by `base`."""
    cookie = reader.number("<I")
    runs = b""
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        containers = (cookie >> 16) + 1
        runs = reader.take((containers + 7) // 8)
    elif cookie == _COOKIE:
        containers = reader.number("<I")
    else:
        raise LakeError(f"the deletion vector holds an unknown kind of bitmap ({cookie:#x})")
    if containers > _CONTAINER_BITS:
        raise LakeError(f"the deletion vector holds a bitmap of {containers} containers")
    heads = list(struct.iter_unpack("<HH", reader.take(4 * containers)))
    if not runs or containers >= _FEWEST_FOR_OFFSETS:
        reader.take(4 * containers)  # where each container begins: they follow one another
    arrays = []
    last = -1
    for index, (key, fewer_by_one) in enumerate(heads):
        is_run = bool(runs) and bool(runs[index // 8] >> (index % 8) & 1)
        values = _runs(reader) if is_run else _values(reader, fewer_by_one + 1)
        if len(values) != fewer_by_one + 1 or key <= last:
            raise LakeError("a container of the deletion vector is not what its head says")
        last = key
        arrays.append(pc.add(values, base + (key << 16)))
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.int64())


def _values(reader: _Reader, count: int) -> pa.Int64Array:
    if count <= _LARGEST_ARRAY:
        packed = pa.py_buffer(reader.take(2 * count))
        return pa.Array.from_buffers(pa.uint16(), count, [None, packed]).cast(pa.int64())
    bits = pa.py_buffer(reader.take(_CONTAINER_BITS // 8))
    flags = pa.Array.from_buffers(pa.bool_(), _CONTAINER_BITS, [None, bits])
    return pc.indices_nonzero(flags).cast(pa.int64())


def _runs(reader: _Reader) -> pa.Int64Array:
    count = reader.number("<H")
    values: list[int] = []
    for start, further in struct.iter_unpack("<HH", reader.take(4 * count)):
        if start + further >= _CONTAINER_BITS or (values and start <= values[-1]):
            raise LakeError("a container of the deletion vector holds runs that overlap")
        values.extend(range(start, start + further + 1))
    return pa.array(values, pa.int64())
