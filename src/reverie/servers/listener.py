"""The socket that a server listens on."""

from __future__ import annotations

import socket
from typing import Final

from ..errors import InputError

HOST: Final = "127.0.0.1"


def open_listener(port: int = 0, host: str = HOST) -> socket.socket:
    """Return a socket that listens, with port 0 on a free port; raise ``InputError`` if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that the event loop turns off Nagle's delay.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(f"port {port} cannot be used ({error}); choose another, or 0 for a free one") from None
    return listener
