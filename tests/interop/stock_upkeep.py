"""A stock client's own maintenance, after ours: what it makes of our files must change nothing."""

from __future__ import annotations

from tests.interop.judge import Judge


def stock_merge(judge: Judge) -> None:
    """Let the reference merge."""
    _call(judge, "ducklake_merge_adjacent_files('lake', 't')")


def stock_rewrite(judge: Judge) -> None:
    """Let the reference delete some rows by their `id`, and rewrite the files without them."""
    judge.delete("main.t", "id % 5 = 1", lambda row: row["id"] % 5 == 1)
    _call(judge, "ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")


def stock_expiry(judge: Judge) -> None:
    """Let the reference expire every other snapshot, and delete at once what is no longer read."""
    gone = judge.model.kept[:-1:2]
    _call(judge, f"ducklake_expire_snapshots('lake', versions => {list(gone)})", gone)
    _call(judge, "ducklake_cleanup_old_files('lake', cleanup_all => true)")


def stock_upkeep(judge: Judge) -> None:
    """Let the reference merge, rewrite, merge again, expire and clean up `main.t`."""
    stock_merge(judge)
    judge.check_statistics()  # not later: its rewrite narrows the bounds of the table
    stock_rewrite(judge)
    stock_merge(judge)
    stock_expiry(judge)


def _call(judge: Judge, function: str, expired: tuple[int, ...] = ()) -> None:
    judge.log.append(f"CALL {function}")
    judge.client.sql(f"CALL {function}")
    judge.accept({})
    judge.model.expire(expired)
    judge.check()
