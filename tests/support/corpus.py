"""Where the files of apache/parquet-testing are, for tests over Parquet nobody here wrote.

They are odd, old, encrypted and broken files by many writers. DUCKLAKE_PARQUET_TESTING names a
checkout (`data`, `bad_data`, `shredded_variant` below it); without one those tests are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

CORPUS: Final = Path(
    os.environ.get("DUCKLAKE_PARQUET_TESTING")
    or Path(__file__).parents[3] / "shared" / "parquet-testing"
)
FILES: Final = sorted(
    str(path.relative_to(CORPUS))
    for path in CORPUS.rglob("*")
    if ".parquet" in path.name and path.is_file()
)
needs_corpus: Final = pytest.mark.skipif(
    not FILES, reason="no checkout of apache/parquet-testing (DUCKLAKE_PARQUET_TESTING names one)"
)
