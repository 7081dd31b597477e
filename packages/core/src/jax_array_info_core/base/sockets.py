"""Messages between processes: the length of each in 8 bytes, then the message."""

from __future__ import annotations

import socket
import time

_NO_SIGNAL: int = getattr(socket, "MSG_NOSIGNAL", 0)
"""No SIGPIPE where the other process has ended, for programs that end by it."""
_CHUNK = 1 << 20


def seconds_until(deadline: float) -> float:
    """Return the seconds until a deadline on ``time.monotonic``; at least a millisecond."""
    return max(deadline - time.monotonic(), 0.001)


def send(connection: socket.socket, message: bytes, deadline: float | None = None) -> None:
    """Send a message.

    Raises:
        TimeoutError: If it is not sent at the deadline.
        ConnectionError: If the other process has ended.
    """
    connection.settimeout(None if deadline is None else seconds_until(deadline))
    connection.sendall(len(message).to_bytes(8, "little") + message, _NO_SIGNAL)


def receive(connection: socket.socket, deadline: float | None = None) -> bytes:
    """Return the next message.

    Raises:
        TimeoutError: If it is not there at the deadline.
        EOFError: If the other process has ended.
    """
    size = int.from_bytes(receive_bytes(connection, 8, deadline), "little")
    return receive_bytes(connection, size, deadline)


def receive_bytes(connection: socket.socket, size: int, deadline: float | None = None) -> bytes:
    """Return so many bytes, with the errors of ``receive``."""
    parts = []
    while size:
        connection.settimeout(None if deadline is None else seconds_until(deadline))
        part = connection.recv(min(size, _CHUNK))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
