"""The schema in the footer of an encrypted Parquet file, which no SQL function of DuckDB shows."""

from __future__ import annotations

import base64
import io
import os
from typing import Any, Final

from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError, StorageError

_MAGIC: Final = b"PARE"
_NONCE: Final = 12
_REPEATED: Final = 2
_LARGEST_FOOTER: Final = 1 << 30

# Field ids in parquet.thrift: FileMetaData.schema, then those of SchemaElement.
_SCHEMA: Final = 2
_REPETITION: Final = 3
_NAME: Final = 4
_CHILDREN: Final = 5
_FIELD_ID: Final = 9


def encrypted_schema(local: str, key: str) -> list[dict[str, Any]]:
    """Return name, field id, repetition and number of children of each element, depth first.

    Args:
        local: Local path of a file whose footer is encrypted with AES-GCM, as DuckDB writes it.
        key: Base64 footer key.

    Raises:
        BadInput: The footer is broken or the key is another file's.
        ConfigurationError: The `cryptography` package is not installed.
        StorageError: The file cannot be read.

    Source: parquet-format, Encryption.md (encrypted footers); DuckDB authenticates no extra data.
    """
    try:
        metadata = _Compact(_decrypt(_tail(local), base64.b64decode(key), local)).struct()
        return [
            {
                "name": element[_NAME].decode(),
                "field_id": element.get(_FIELD_ID),
                "repetition": "REPEATED" if element.get(_REPETITION) == _REPEATED else "",
                "num_children": element.get(_CHILDREN),
            }
            for element in metadata[_SCHEMA]
        ]
    except (LookupError, ValueError, TypeError):
        raise BadInput(f"{local}: the encrypted footer cannot be understood") from None


def _tail(local: str) -> bytes:
    """Return everything between the last data page and the length at the end of the file."""
    try:
        with open(local, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 8))
            end = file.read(8)
            length = int.from_bytes(end[:4], "little")
            if end[4:] != _MAGIC or not 0 < length <= min(size - 8, _LARGEST_FOOTER):
                raise BadInput(f"{local}: not a Parquet file with an encrypted footer")
            file.seek(size - 8 - length)
            return file.read(length)
    except OSError as error:
        raise StorageError(f"cannot read {local}: {error.strerror}") from None


def _decrypt(tail: bytes, key: bytes, local: str) -> bytes:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise ConfigurationError(
            "reading files of an encrypted lake needs the cryptography package: install it"
        ) from None
    reader = _Compact(tail)
    reader.struct()  # FileCryptoMetaData: which algorithm
    module = reader.rest()[4:]  # behind its own length
    try:
        return AESGCM(key).decrypt(module[:_NONCE], module[_NONCE:], None)
    except InvalidTag:
        raise BadInput(f"{local}: the footer does not open with the key of the catalog") from None


class _Compact:
    """Just enough of Thrift's compact protocol to read a struct into a dict by field id."""

    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)

    def rest(self) -> bytes:
        return self._stream.read()

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        field_id = 0
        while header := self._byte():
            delta, kind = header >> 4, header & 15
            field_id = field_id + delta if delta else self._integer()
            fields[field_id] = kind == 1 if kind in (1, 2) else self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (1, 2):  # a boolean inside a list
            return self._byte() == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._unsigned())
        if kind in (9, 10):
            header = self._byte()
            count = header >> 4 if header >> 4 < 15 else self._unsigned()
            return [self._value(header & 15) for _ in range(count)]
        if kind == 12:
            return self.struct()
        raise ValueError(f"a Thrift value of kind {kind}")

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) != count:
            raise ValueError("the Thrift data ends early")
        return data

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _integer(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)
