"""`python -m local.servicebus`: a broker for a person to play with."""

import argparse
import signal
import sys
import threading
from pathlib import Path

from .broker import Broker
from .entities import Entities, EntitiesError


def main() -> int:
    """Serve until Ctrl-C; 1 with a plain message if that cannot begin."""
    parser = argparse.ArgumentParser(prog="python -m local.servicebus", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=5672, help="0: a free one (%(default)s)")
    parser.add_argument("--entities", type=Path, default=Path("local/entities.json"))
    options = parser.parse_args()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        broker = Broker(Entities.load(options.entities), options.host, options.port)
        broker.start()
    except EntitiesError as error:
        print(f"cannot read the entities: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        place = f"{options.host}:{options.port}"
        print(f"cannot listen on {place}: {error.strerror}; --port names another", file=sys.stderr)
        return 1
    print(broker.connection_string)
    for name in broker.entities.names():
        print(f"  {name}")
    print("Ctrl-C stops it.", flush=True)
    stopped.wait()
    broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
