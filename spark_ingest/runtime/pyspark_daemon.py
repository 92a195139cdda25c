"""PySpark's daemon, whose idle workers end without a word when Spark hangs up.

A worker of PySpark 4 that waits for its next task reads the end of its socket as an error, tries to
tell Spark, which has gone, and prints a traceback of that, on every Unix socket that is closed.

The daemon loads the modules of workers before it forks a worker. Otherwise each worker spends 1.4 s
of a core on loading, and PySpark starts another worker after every task that fails.
"""

from __future__ import annotations

import gc
import socket
from importlib import import_module

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
    import_module("spark_ingest.executors")
    gc.collect()
    gc.freeze()  # PySpark collects garbage after every task; this exempts loaded modules.
    daemon.worker = worker
    daemon.manager()
