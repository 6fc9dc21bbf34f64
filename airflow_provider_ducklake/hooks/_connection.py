"""A DuckDB session as a DB-API connection: one session, whatever cursor asks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import TracebackType

    from duckdb import DuckDBPyConnection

_WORD: Final = re.compile(r"\s*\w+")
_BEGINS: Final = frozenset({"begin", "start"})
_ENDS: Final = frozenset({"commit", "rollback", "end", "abort"})


class LakeConnection:
    """A DuckDB connection that behaves as PEP 249 and common-sql expect.

    DuckDB's own `cursor()` opens another session, which knows neither `USE lake` nor the open
    transaction. Here all cursors share the session, `autocommit` can be switched, and `commit()`
    and `rollback()` do nothing where there is nothing to end. Whatever else a
    `DuckDBPyConnection` has (`df`, `arrow`, `register`, …) is passed on to it.
    """

    def __init__(
        self,
        session: DuckDBPyConnection,
        tell: Callable[[str], str],
        on_close: Callable[[], object] = lambda: None,
    ) -> None:
        """Wrap a session.

        Args:
            session: The DuckDB connection; it is owned from now on.
            tell: Makes of the text of DuckDB's errors what may be seen: masks secrets.
            on_close: Called when the session has ended.
        """
        self._session = session
        self._tell = tell
        self._on_close = on_close
        self._autocommit = True
        self._in_transaction = False

    @property
    def autocommit(self) -> bool:
        """Whether each statement is a transaction of its own; True at first, as in DuckDB."""
        return self._autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        if value:
            self.commit()
        self._autocommit = bool(value)

    def cursor(self) -> LakeCursor:
        """Return a cursor on this very session."""
        return LakeCursor(self)

    def execute(self, statement: Any, parameters: Any = None) -> LakeConnection:
        """Run a statement; its rows are fetched from this connection, as with DuckDB's own."""
        self._run(self._session.execute, statement, parameters)
        return self

    def executemany(self, statement: Any, rows: Any = None) -> LakeConnection:
        """Run a statement once for each sequence of parameters; no rows at all is no error."""
        rows = list(rows or ())
        if rows:
            self._run(self._session.executemany, statement, rows)
        return self

    def sql(self, statement: Any, **options: Any) -> Any:
        """Return DuckDB's relation for a query, inside the open transaction if there is one."""
        return self._run(lambda text, _: self._session.sql(text, **options), statement, None)

    def commit(self) -> None:
        """Commit the open transaction, if any."""
        self._end("COMMIT")

    def rollback(self) -> None:
        """Roll the open transaction back, if any."""
        self._end("ROLLBACK")

    def close(self) -> None:
        """End the session; what was not committed is rolled back."""
        self._in_transaction = False
        self._session.close()
        self._on_close()

    def __enter__(self) -> LakeConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def _end(self, statement: str) -> None:
        if self._in_transaction:
            # DuckDB leaves the transaction either way, also where COMMIT fails.
            self._in_transaction = False
            self._told(self._session.execute, statement)

    def _run(self, call: Callable[..., Any], statement: Any, parameters: Any) -> Any:
        found = _WORD.match(statement) if isinstance(statement, str) else None
        word = found[0].strip().lower() if found else ""
        if not self._autocommit and not self._in_transaction and word not in _BEGINS | _ENDS:
            self._told(self._session.execute, "BEGIN")
            self._in_transaction = True
        result = self._told(call, statement, parameters)
        if word in _BEGINS:
            self._in_transaction = True
        elif word in _ENDS:
            self._in_transaction = False
        return result

    def _told(self, call: Callable[..., Any], *arguments: Any) -> Any:
        import duckdb

        try:
            return call(*arguments)
        except duckdb.Error as error:
            text = self._tell(str(error))
            if text == str(error):
                raise
            raise type(error)(text) from None


class LakeCursor:
    """A PEP 249 cursor on a `LakeConnection`; closing it leaves the connection open."""

    arraysize = 1
    # DuckDB does not tell; a statement that changes rows returns their number as its result.
    rowcount = -1

    def __init__(self, connection: LakeConnection) -> None:
        """Make a cursor; as in DuckDB a session holds one result at a time."""
        self.connection = connection

    @property
    def description(self) -> Any:
        """Columns of the last result."""
        return self.connection.description

    def execute(self, statement: Any, parameters: Any = None) -> LakeCursor:
        """Run a statement with `?` or `$name` parameters."""
        self.connection.execute(statement, parameters)
        return self

    def executemany(self, statement: Any, rows: Any = None) -> LakeCursor:
        """Run a statement once for each sequence of parameters."""
        self.connection.executemany(statement, rows)
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None after the last."""
        row: tuple[Any, ...] | None = self.connection.fetchone()
        return row

    def fetchmany(self, size: int | None = None) -> Sequence[tuple[Any, ...]]:
        """Return up to `size` rows."""
        rows: Sequence[tuple[Any, ...]] = self.connection.fetchmany(size or self.arraysize)
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rest of the rows."""
        rows: list[tuple[Any, ...]] = self.connection.fetchall()
        return rows

    def close(self) -> None:
        """Do nothing: there is nothing a cursor owns."""

    def setinputsizes(self, sizes: Any) -> None:
        """Do nothing, as PEP 249 allows."""

    def setoutputsize(self, size: Any, column: Any = None) -> None:
        """Do nothing, as PEP 249 allows."""

    def __enter__(self) -> LakeCursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)
