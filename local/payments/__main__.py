"""`python -m local.payments`: a payment provider for a person to play with."""

import argparse
import signal
import sys
import threading
from datetime import timedelta

from .provider import PaymentProvider


def main() -> int:
    """Serve until Ctrl-C; 1 with a plain message if that cannot begin."""
    parser = argparse.ArgumentParser(prog="python -m local.payments", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=8099, help="0: a free one (%(default)s)")
    parser.add_argument(
        "--key-retention", type=float, default=24, metavar="HOURS", help="0: none (%(default)s)"
    )
    options = parser.parse_args()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    retention = timedelta(hours=options.key_retention)
    provider = PaymentProvider(host=options.host, port=options.port, key_retention=retention)
    try:
        provider.start()
    except OSError as error:
        place = f"{options.host}:{options.port}"
        print(f"cannot listen on {place}: {error.strerror}; --port names another", file=sys.stderr)
        return 1
    print(provider.url)
    print(f"  POST {provider.url}/v1/charges")
    print(f"  GET  {provider.url}/ledger")
    print("Ctrl-C stops it.", flush=True)
    stopped.wait()
    provider.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
