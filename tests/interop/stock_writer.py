"""A stock DuckDB session in a process of its own: appends rows to a lake, one commit each.

Usage: python -m tests.interop.stock_writer ATTACH_STRING METADATA_SCHEMA TABLE FIRST NUMBER
"""

from __future__ import annotations

import sys
import time

import duckdb

from tests.support.reference import ReferenceClient

_DEADLINE = 120.0  # seconds


def main(attach_string: str, metadata_schema: str, table: str, first: int, number: int) -> None:
    """Insert the ids `first` … `first + number - 1`, waiting whenever somebody else commits."""
    client = ReferenceClient(attach_string, metadata_schema=metadata_schema or None)
    end = time.monotonic() + _DEADLINE
    for value in range(first, first + number):
        while True:
            try:
                client.sql(f"INSERT INTO {table} VALUES ({value})")
                client.release()  # lets go of a catalog that is a DuckDB file
                break
            except duckdb.Error:
                # Locked by the other writer, or beaten to the snapshot id: again, as people do.
                client.forget()
                if time.monotonic() > end:
                    raise
    client.close()


if __name__ == "__main__":
    attach, schema, name, start, count = sys.argv[1:]
    main(attach, schema, name, int(start), int(count))
