"""What our operations do to a lake in the histories, and what each must leave behind."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop.catalog import referenced_files
from tests.interop.judge import Judge
from tests.interop.merges import merge
from tests.interop.palette import write_parquet
from tests.interop.writes import Writer

_THRESHOLDS: Final = ("0", "0.1", "0.5", "1")


@dataclass(slots=True)
class Maintainer:
    """Turns drawn integers into calls of our operations."""

    judge: Judge
    writer: Writer
    _files: int = 0

    def run(self, name: str, seed: int) -> None:
        """Run one operation and check what it left.

        Args:
            name: A key of `OPERATIONS`.
            seed: Decides tables and options.
        """
        self.writer.remember()
        OPERATIONS[name](self, seed)
        self.writer.remember()
        self.writer.forget_bounds()
        self.judge.check_catalog()

    def _tables(self, seed: int) -> list[str]:
        """Return no table, which means all, or one."""
        names = sorted(self.writer.shapes)
        return [names[seed % len(names)]] if names and seed % 3 == 0 else []

    def merge(self, seed: int) -> None:
        """merge_adjacent_files with all sorts of limits."""
        choices: tuple[dict[str, object], ...] = (
            {},
            {"max_compacted_files": 1},
            {"max_compacted_bytes": 1000},
            {"min_files": 3},
            {"target_file_size": 1500},
            {"max_file_size": 900},
            {"min_file_size": 500},
        )
        self.judge.upkeep(
            "merge_adjacent_files", *self._tables(seed), **choices[seed % len(choices)]
        )

    def rewrite(self, seed: int) -> None:
        """rewrite_data_files."""
        threshold = _THRESHOLDS[seed % len(_THRESHOLDS)]
        limits = {"max_compacted_bytes": 1000} if seed % 2 else {}
        self.judge.upkeep(
            "rewrite_data_files", *self._tables(seed), delete_threshold=threshold, **limits
        )

    def flush(self, seed: int) -> None:
        """flush_inlined_data."""
        self.judge.upkeep("flush_inlined_data", *self._tables(seed))

    def expire(self, seed: int) -> None:
        """expire_snapshots by number, by id or by age."""
        kept = self.judge.model.kept
        if seed % 3 == 0:
            keep = 1 + seed % len(kept)
            self.judge.expire(kept[:-keep], retain_last=keep)
        elif seed % 3 == 1:
            chosen = [snapshot for snapshot in kept[:-1] if (snapshot * 7 + seed) % 3 == 0]
            if chosen:
                self.judge.expire(chosen, versions=",".join(map(str, chosen)))
        else:
            at = seed % len(kept)
            bound = self.judge.client.snapshots()[at].time
            self.judge.expire(kept[:at], older_than=bound.isoformat())

    def cleanup(self, seed: int) -> None:
        """cleanup_old_files without grace."""
        self.judge.upkeep("cleanup_old_files", cleanup_all=True, force=True)

    def sweep(self, seed: int) -> None:
        """delete_orphaned_files: an orphan goes, what is no data file stays."""
        root = Path(self.judge.lake.data_path)
        orphan, readme = root / "main" / "lost.parquet", root / "README.md"
        orphan.parent.mkdir(parents=True, exist_ok=True)
        orphan.write_bytes(b"PAR1")
        readme.write_text("not a data file")
        self.judge.upkeep("delete_orphaned_files", cleanup_all=True, force=True, max_fraction=1)
        assert readme.is_file()
        self.judge.client.release()
        left = {str(path) for path in root.rglob("*.parquet")}
        assert left == {path for path in referenced_files(self.judge.lake) if path in left}

    def append(self, seed: int) -> None:
        """Ingest of Arrow batches, their columns in another order."""
        if not self.writer.shapes:
            return
        name = sorted(self.writer.shapes)[seed % len(self.writer.shapes)]
        rows = self.writer.rows(name, 1 + seed % 15, seed)
        self.judge.ingest(name, self.writer.shapes[name], rows)

    def upsert(self, seed: int) -> None:
        """Ingest with mode=merge: some rows replace others by their key, the rest are new."""
        if not self.writer.shapes:
            return
        name = sorted(self.writer.shapes)[seed % len(self.writer.shapes)]
        rows = self.writer.rows(name, 1 + seed % 9, seed)
        there = sorted(int(row[0]) for row in self.judge.table(name).rows.values())
        replaced = there[seed % 3 :: 1 + seed % 4]
        for row, key in zip(rows[seed % 2 :], replaced, strict=False):
            row[0] = (str(key), key)
        merge(self.judge, name, self.writer.shapes[name], rows, "k")

    def register(self, seed: int) -> None:
        """add_data_files of one or two files somebody else wrote."""
        if not self.writer.shapes:
            return
        name = sorted(self.writer.shapes)[seed % len(self.writer.shapes)]
        shape = self.writer.shapes[name]
        # A file that is registered in a partitioned table must lie in one partition.
        number = 1 if self.writer.keys.get(name) else 1 + seed % 14
        order = list(shape) if seed % 2 else list(reversed(shape))
        sources, added = [], []
        for part in range(1 + seed % 2):
            rows = self.writer.rows(name, number, seed + part)
            added += [[value for _, value in row] for row in rows]
            cells = [dict(zip(shape, row, strict=True)) for row in rows]
            path = self.judge.lake.directory / "raw" / f"{self._files}.parquet"
            self._files += 1
            types = {column: shape[column] for column in order}
            write_parquet(path, types, [[row[column] for column in order] for row in cells])
            sources.append(str(path))
        self.judge.add_files(name, sources, added)

    def checkpoint(self, seed: int) -> None:
        """checkpoint, half of them with expiry."""
        kept = self.judge.model.kept
        keep = 1 + seed % len(kept)
        if seed % 2:
            self.judge.checkpoint(keep, delete_threshold="0.1")
        else:
            self.judge.upkeep("checkpoint")

    def restore(self, seed: int) -> None:
        """restore of the lake or of one table."""
        known = [s for s in self.judge.model.kept if s in self.writer.past]
        target = known[seed % len(known)]
        past = deepcopy(self.writer.past[target])
        live = {identity: name for name, identity in self.writer.identities.items()}
        now = {name: live.get(identity) for name, identity in past.identities.items()}
        if seed % 2 or not past.shapes:
            self.judge.restore(target, now=now)
            self.writer.shapes, self.writer.keys = past.shapes, past.keys
            self.writer.sorted_by, self.writer.identities = past.sorted_by, past.identities
            return
        name = sorted(past.shapes)[seed // 2 % len(past.shapes)]
        if name in self.writer.shapes and now[name] != name:
            return  # another table has its name
        self.judge.restore(target, name, now=now)
        self._forget(now[name] or name)
        self.writer.shapes[name] = past.shapes[name]
        self.writer.identities[name] = past.identities[name]
        self.writer.keys[name] = past.keys.get(name, set())
        if name in past.sorted_by:
            self.writer.sorted_by[name] = past.sorted_by[name]

    def _forget(self, name: str) -> None:
        self.writer.shapes.pop(name, None)
        self.writer.identities.pop(name, None)
        self.writer.keys.pop(name, None)
        self.writer.sorted_by.pop(name, None)


OPERATIONS: Final[dict[str, Callable[[Maintainer, int], None]]] = {
    method.__name__: method
    for method in (
        Maintainer.merge,
        Maintainer.rewrite,
        Maintainer.flush,
        Maintainer.expire,
        Maintainer.cleanup,
        Maintainer.sweep,
        Maintainer.append,
        Maintainer.upsert,
        Maintainer.register,
        Maintainer.checkpoint,
        Maintainer.restore,
    )
}
