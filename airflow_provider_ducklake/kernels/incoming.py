"""Arrow batches on their way into files: one stream, in types DuckDB reads without loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.kernels.connection import KernelSettings, discard
from airflow_provider_ducklake.kernels.variant import is_variant, require_exact
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.model import WrittenFile


class Incoming:
    """The batches as one stream, in a schema DuckDB reads without losing anything."""

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> Incoming | None:
        """Return the stream of some batches; None where there is none."""
        iterator = iter(batches)
        first = next(iterator, None)
        if first is None:
            return None
        return cls(chain([first], iterator), _carried(first.schema))

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self.schema = schema
        self.failure: Exception | None = None
        self._batches = batches
        self._is_parted = self._has_zeros = False

    def write_in_parts(
        self,
        connection: duckdb.DuckDBPyConnection,
        write: Callable[[bool], Iterable[WrittenFile]],
        settings: KernelSettings,
    ) -> tuple[WrittenFile, ...]:
        """Write the rows up to the first batch with a negative zero, then the others.

        Negative zeros ask for files of another kind, and a stream cannot be read again.

        Args:
            connection: Where each part is `incoming` in turn.
            write: Writes one part; told whether it has negative zeros.
            settings: For removing the files of a call that fails.
        """
        self._is_parted = True
        files: list[WrittenFile] = []
        try:
            with self.registered(connection):
                files += write(False)
            if self._has_zeros:
                with self.registered(connection):
                    files += write(True)
        except BaseException:
            for file in files:
                discard(file.path, settings)
            raise
        return tuple(files)

    @contextmanager
    def registered(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Let the connection read the stream, or its next part, as `incoming`."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self._stream())
        connection.register("incoming", reader)
        try:
            yield
        except BadInput:
            # DuckDB wraps what went wrong in the source of the batches; its own words are better.
            if self.failure is not None:
                raise self.failure from None
            raise

    def _stream(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                known = batch if batch.schema == self.schema else self._cast(batch)
                for field, array in zip(self.schema, known.columns, strict=True):
                    if is_variant(field.type):
                        require_exact(array, field.name)
                if self._is_parted and not self._has_zeros and has_negative_zero(known):
                    self._has_zeros = True
                    self._batches = chain([known], self._batches)
                    return
                yield known
        except Exception as error:
            self.failure = error
            raise

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.names != self.schema.names:
            raise BadInput("the batches do not all have the same columns in the same order")
        arrays = []
        for field, array in zip(self.schema, batch.columns, strict=True):
            try:
                arrays.append(array if array.type == field.type else array.cast(field.type))
            except pa.ArrowInvalid as error:
                raise BadInput(
                    f"column {field.name}: {array.type} cannot be read as {field.type} without "
                    f"loss: {str(error).splitlines()[0]}"
                ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _carried(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the types DuckDB would cut or refuse replaced by exact ones."""
    return pa.schema([pa.field(field.name, _carried_type(field.type)) for field in schema])


def _carried_type(kind: pa.DataType) -> pa.DataType:
    if is_variant(kind):
        return kind
    if pa.types.is_timestamp(kind) and kind.tz is not None and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal256(kind):
        return pa.decimal128(38, kind.scale)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _carried_type(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_carried_type(kind.key_type), _carried_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_carried_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_carried_type(kind.value_type))
    return kind


def has_negative_zero(batch: pa.RecordBatch) -> bool:
    """Tell whether any column, or anything inside one, has a negative zero.

    What lies under a NULL, or outside of a slice of lists, may count too.
    """
    return any(_negative_zero_in(column) for column in batch.columns)


def _negative_zero_in(array: pa.Array) -> bool:
    kind = array.type
    if pa.types.is_float64(kind) or pa.types.is_float32(kind):
        whole = pa.uint64() if pa.types.is_float64(kind) else pa.uint32()
        # The sign is the highest bit; of a zero, no other one is set.
        bits = pa.scalar(1 << (whole.bit_width - 1), whole)
        return pc.any(pc.equal(array.view(whole), bits)).as_py() or False
    if pa.types.is_struct(kind):
        return any(_negative_zero_in(array.field(index)) for index in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _negative_zero_in(array.keys) or _negative_zero_in(array.items)
    if isinstance(array, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        return _negative_zero_in(array.values)
    if isinstance(array, pa.DictionaryArray):
        return _negative_zero_in(array.dictionary)
    if isinstance(array, pa.ExtensionArray):
        return _negative_zero_in(array.storage)
    return False
