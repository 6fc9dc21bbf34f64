"""Deletion vectors: those the reference writes, hand-made ones of every container, broken ones."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.puffin import read_deletion_vector
from airflow_provider_ducklake.lake.errors import LakeError
from tests.support.reference import ReferenceClient

_MAGIC = b"\xd1\xd3\x39\x64"


def _blob(bitmaps: list[tuple[int, bytes]]) -> bytes:
    body = _MAGIC + struct.pack("<Q", len(bitmaps))
    body += b"".join(struct.pack("<i", key) + bitmap for key, bitmap in bitmaps)
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _plain_bitmap(values: set[int]) -> bytes:
    """Serialise 32-bit values as the format says for bitmaps without run containers."""
    containers: dict[int, list[int]] = {}
    for value in sorted(values):
        containers.setdefault(value >> 16, []).append(value & 0xFFFF)
    packed = [_container(low) for low in containers.values()]
    heads = b"".join(struct.pack("<HH", key, len(low) - 1) for key, low in containers.items())
    start = 8 + 8 * len(packed)
    offsets = [start + sum(map(len, packed[:index])) for index in range(len(packed))]
    head = struct.pack("<II", 12346, len(packed)) + heads
    return head + b"".join(struct.pack("<I", offset) for offset in offsets) + b"".join(packed)


def _container(low: list[int]) -> bytes:
    if len(low) <= 4096:
        return b"".join(struct.pack("<H", value) for value in low)
    bits = bytearray(8192)
    for value in low:
        bits[value // 8] |= 1 << (value % 8)
    return bytes(bits)


def _run_bitmap(containers: list[tuple[int, list[tuple[int, int]]]]) -> bytes:
    """Serialise run containers, each a key and inclusive (first, last) runs."""
    count = len(containers)
    flags = ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
    blob = struct.pack("<I", 12347 | (count - 1) << 16) + flags
    for key, runs in containers:
        size = sum(last - first + 1 for first, last in runs)
        blob += struct.pack("<HH", key, size - 1)
    if count >= 4:
        blob += b"\0" * 4 * count
    for _, runs in containers:
        blob += struct.pack("<H", len(runs))
        blob += b"".join(struct.pack("<HH", first, last - first) for first, last in runs)
    return blob


@pytest.mark.parametrize(
    "condition",
    ["a % 3 = 0", "a < 70000", "a = 99999", "a BETWEEN 10 AND 20 OR a % 5000 = 1", "a % 2 = 0"],
)
def test_reads_what_the_reference_writes(tmp_path: Path, condition: str) -> None:
    client = ReferenceClient(
        f"ducklake:sqlite:{tmp_path}/c.sqlite",
        data_path=f"{tmp_path}/data/",
        options={"DATA_INLINING_ROW_LIMIT": "0"},
    )
    try:
        client.sql("CREATE TABLE t AS SELECT * FROM range(100_000) r(a)")
        client.sql("CALL lake.set_option('write_deletion_vectors', true)")
        expected = [row[0] for row in client.sql(f"SELECT a FROM t WHERE {condition} ORDER BY a")]
        client.sql(f"DELETE FROM t WHERE {condition}")
        [file] = (tmp_path / "data").rglob("*-delete.puffin")
        assert read_deletion_vector(file.read_bytes()).to_pylist() == expected
    finally:
        client.release()


@given(
    st.sets(
        st.one_of(
            st.integers(0, 300_000),
            st.integers(2**32 - 5, 2**32 + 5),
            st.integers(0, 2**40),
        ),
        max_size=200,
    ),
    st.booleans(),
)
def test_reads_arrays_and_bitsets_of_any_position(positions: set[int], dense: bool) -> None:
    if dense:  # more than 4096 in one container makes it a bitset
        positions = positions | set(range(65_536 + 7, 65_536 + 6_000))
    bitmaps: dict[int, set[int]] = {}
    for position in positions:
        bitmaps.setdefault(position >> 32, set()).add(position & 0xFFFFFFFF)
    blob = _blob([(key, _plain_bitmap(low)) for key, low in bitmaps.items()])
    assert read_deletion_vector(blob).to_pylist() == sorted(positions)


@pytest.mark.parametrize("count", [1, 3, 4, 9])
def test_reads_runs(count: int) -> None:
    containers = [(key * 2, [(0, 0), (5, 4999), (65_530, 65_535)]) for key in range(count)]
    expected = [
        (key << 16) + low
        for key, runs in containers
        for first, last in runs
        for low in range(first, last + 1)
    ]
    blob = _blob([(0, _run_bitmap(containers))])
    assert read_deletion_vector(blob).to_pylist() == expected


def test_empty_vector_has_no_positions() -> None:
    assert read_deletion_vector(_blob([])).to_pylist() == []


def test_every_cut_is_noticed() -> None:
    blob = _blob([(0, _plain_bitmap({1, 2, 70_000}))])
    for size in range(len(blob)):
        with pytest.raises(LakeError):
            read_deletion_vector(blob[:size])


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_every_flipped_bit_is_noticed(place: int, bit: int) -> None:
    blob = bytearray(_blob([(0, _plain_bitmap({1, 2, 70_000})), (3, _plain_bitmap({5}))]))
    blob[place % len(blob)] ^= 1 << bit
    with pytest.raises(LakeError):
        read_deletion_vector(bytes(blob))


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (_blob([]) + b"x", "follow the deletion vector"),
        (_blob([(-1, _plain_bitmap({1}))]), "below zero"),
        (_blob([(0, _plain_bitmap({1})), (0, _plain_bitmap({2}))]), "or twice"),
        (_blob([(0, struct.pack("<II", 999, 0))]), "unknown kind"),
        (_blob([(0, struct.pack("<II", 12346, 1 << 20))]), "1048576 containers"),
        (_blob([(0, _run_bitmap([(0, [(5, 9), (7, 12)])]))]), "overlap"),
        (_blob([(0, _run_bitmap([(0, [(5, 9)])]) + b"!")]), "follow the last bitmap"),
    ],
)
def test_nonsense_is_refused(blob: bytes, reason: str) -> None:
    with pytest.raises(LakeError, match=reason):
        read_deletion_vector(blob)
