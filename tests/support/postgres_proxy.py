"""A PostgreSQL server behind a line that goes dead at the worst moment: when COMMIT is sent."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import psycopg
from psycopg.conninfo import make_conninfo

# `unsent`: COMMIT never reaches the server. `unanswered`: it does, the answer gets lost. `late`:
# the client hears nothing more, and the server hears COMMIT when the client already tries again.
Loss = Literal["unsent", "unanswered", "late"]

_WRITES: Final = b"INSERT INTO"
_PATIENCE: Final = 10.0  # seconds until a late COMMIT is sent though nobody tried again


class LossyLine:
    """Passes bytes on between clients and a server, and loses one COMMIT when told to.

    Attributes:
        conninfo: libpq string of the server behind the line.
        lost: How many a COMMIT was lost.
    """

    def __init__(self, directory: Path, conninfo: str) -> None:
        """Listen on a Unix socket in a directory; see `lossy_line`."""
        with psycopg.connect(conninfo) as connection:
            self._server = f"{connection.info.host}/.s.PGSQL.{connection.info.port}"
        self.conninfo = make_conninfo(conninfo, host=str(directory), port=5432)
        self.lost = 0
        self._loss: Loss | None = None
        self._muted: set[socket.socket] = set()  # servers whose answers go nowhere
        self._tried_again = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{directory}/.s.PGSQL.5432")
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, loss: Loss) -> None:
        """Lose the next COMMIT."""
        self._loss = loss
        self._tried_again.clear()

    def close(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                answered = threading.Event()
                for work in (self._to_server, self._to_client):
                    arguments = (client, server, answered)
                    threading.Thread(target=work, args=arguments, daemon=True).start()

    def _to_server(
        self, client: socket.socket, server: socket.socket, answered: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                if _WRITES in data:
                    self._tried_again.set()
                if self._loss is not None and b"COMMIT" in data:
                    self._lose(data, client, server, answered)
                    break
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _lose(
        self, commit: bytes, client: socket.socket, server: socket.socket, answered: threading.Event
    ) -> None:
        loss, self._loss = self._loss, None
        self.lost += 1
        self._muted.add(server)
        self._tried_again.clear()
        if loss == "late":
            client.shutdown(socket.SHUT_RDWR)
            self._tried_again.wait(_PATIENCE)
        if loss != "unsent":
            server.sendall(commit)
            answered.wait(_PATIENCE)
        if loss != "late":
            client.shutdown(socket.SHUT_RDWR)

    def _to_client(
        self, client: socket.socket, server: socket.socket, answered: threading.Event
    ) -> None:
        with contextlib.suppress(OSError), client, server:
            while data := server.recv(65_536):
                if server in self._muted:
                    answered.set()
                else:
                    client.sendall(data)


@contextmanager
def lossy_line(directory: Path, conninfo: str) -> Iterator[LossyLine]:
    """Run a line to a server.

    Args:
        directory: Of a short path, for the socket.
        conninfo: libpq string of the server.
    """
    line = LossyLine(directory, conninfo)
    try:
        yield line
    finally:
        line.close()
