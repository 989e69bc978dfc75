# SPDX-License-Identifier: Apache-2.0
"""Send from the first task of a job to the second, at a steady rate; ``traffic.py ADDRESS BYTES_PER_SECOND``.

The second task listens at the address and drops what it receives.
"""

import os
import socket
import sys
import time

PORT = 7001
PIECE = bytes(1 << 20)
PATIENCE_SECONDS = 60.0


def main(address: str, rate: float) -> None:
    if os.environ["SLURM_PROCID"] == "1":
        with socket.create_server((address, PORT)) as server:
            connection, _ = server.accept()
            while connection.recv(len(PIECE)):
                pass
        return
    with connect(address) as connection:
        sent, began = 0, time.monotonic()
        while True:
            connection.sendall(PIECE)
            sent += len(PIECE)
            time.sleep(max(0.0, began + sent / rate - time.monotonic()))


def connect(address: str) -> socket.socket:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=PATIENCE_SECONDS)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
