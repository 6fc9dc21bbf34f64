"""Connections to one store that stay open, for a job that works on very many of its catalogs.

A connection costs more than most of what is asked through it: a process of the server, and the
plans of its views. Each thread keeps one. Which catalog it sees is said in every transaction and
holds for that alone, so it is never another's, not even behind a pooler that changes sessions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

Connection = psycopg.Connection[tuple[Any, ...]]


class KeptConnections:
    """One open connection for each thread that asks; `close` ends them all."""

    def __init__(self, conninfo: str) -> None:
        """Name a store; nothing is connected yet.

        Args:
            conninfo: libpq connection string of its database, which chooses no catalog.
        """
        self._conninfo = conninfo
        self._own = threading.local()
        self._all: list[Connection] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        """Give this thread's connection, outside any transaction; a broken one is replaced.

        Raises:
            psycopg.Error: The database cannot be reached.
        """
        connection = self._connection()
        connection.isolation_level, connection.read_only = None, None
        try:
            yield connection
        finally:
            if connection.info.transaction_status != TransactionStatus.IDLE:
                # What went wrong is on its way to the caller; the transaction must not outlive it.
                try:
                    connection.rollback()
                except psycopg.Error:
                    connection.close()

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._own, "connection", None)
        if connection is None or connection.closed:
            connection = connect(self._conninfo)
            self._own.connection = connection
            with self._lock:
                self._all.append(connection)
        return connection

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            while self._all:
                self._all.pop().close()


def connect(conninfo: str) -> Connection:
    """Open a connection that tells the server whose it is."""
    return psycopg.connect(
        conninfo, connect_timeout=10, application_name="airflow-provider-ducklake"
    )
