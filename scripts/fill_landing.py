"""Fill a landing zone for the example tenants: `python -m scripts.fill_landing DIRECTORY`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from scripts.demo_support.source import TENANTS, read_source, write_landing


def main(landing: Path) -> None:
    """Write what each tenant's folder would hold; a tenant that has one keeps it as it is.

    Args:
        landing: The landing zone.
    """
    missing = [tenant for tenant in TENANTS if not (landing / tenant).exists()]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as scratch:
        session = read_source(Path(scratch))
        for tenant in missing:
            # Whole or not there: it may be interrupted, and is run again then.
            write_landing(session, landing / ".new", tenant)
            (landing / ".new" / tenant).rename(landing / tenant)
            print(f"{landing / tenant}: flights and their dimensions")
        session.close()
    (landing / ".new").rmdir()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
