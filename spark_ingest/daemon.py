"""PySpark's daemon, whose idle workers end without a word when Spark hangs up.

A worker of PySpark 4 that waits for its next task reads the end of its socket as an error, tries to
tell Spark, which has gone, and prints a traceback of that, on every Unix socket that is closed.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_serve = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Serve the next task of a connection.

    Returns:
      0: and there may be more; anything else: this was the last one.
    """
    try:
        if not sock.recv(1, socket.MSG_PEEK):
            return 1
    except ConnectionError:
        return 1
    return _serve(sock, authenticated)


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
