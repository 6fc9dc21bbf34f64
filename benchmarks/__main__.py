"""Runs benchmarks: python -m benchmarks [NAME] [ARGUMENTS]; without a name all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks import bench_compaction, bench_fleet, bench_ingest, bench_limits, bench_store

BENCHMARKS: Final[dict[str, Callable[[Sequence[str]], int]]] = {
    "compaction": bench_compaction.main,
    "fleet": bench_fleet.main,
    "ingest": bench_ingest.main,
    "limits": bench_limits.main,
    "store": bench_store.main,
}
# Take many minutes, or gigabytes: only when they are named.
_ONLY_BY_NAME: Final = frozenset({"fleet", "limits", "store"})


def main(arguments: Sequence[str]) -> int:
    """Run one benchmark with its arguments, or all with these; return the worst exit status."""
    if arguments and arguments[0] in BENCHMARKS:
        return BENCHMARKS[arguments[0]](arguments[1:])
    if arguments and not arguments[0].startswith("-"):
        print(f"no benchmark {arguments[0]!r}; there is {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    return max(run(arguments) for name, run in BENCHMARKS.items() if name not in _ONLY_BY_NAME)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
