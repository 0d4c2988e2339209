"""Send one order twice to a deployed app, and say how to see that it was processed once.

``make smoke``, after ``azd up``. The two messages have ids of their own, as a producer has that does
not know its first attempt arrived: the broker's detection lets both pass, and the app tells them by
their ``Deduplication-Key``. Without SERVICEBUS_FQDN it sends to the app that runs on this machine.
"""

import argparse
import json
import os
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from local import run_file, send

ORDER = Path(__file__).parents[2] / "samples" / "order.json"

QUERIES = """
In Application Insights{where}, under Logs; telemetry takes up to five minutes to be there.

One delivery was processed, the other was a duplicate (cause `resend`):

    traces
    | where timestamp > ago(1h)
    | where customDimensions.key == '{key}'
    | project timestamp, consumer = tostring(customDimensions.consumer),
        outcome = tostring(customDimensions.outcome), cause = tostring(customDimensions.cause)
    | order by timestamp asc

The same, counted over all messages:

    customMetrics
    | where timestamp > ago(1h) and name == 'idempotency.duplicates'
    | summarize duplicates = sum(valueSum) by consumer = tostring(customDimensions.consumer),
        cause = tostring(customDimensions.cause)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Send both messages and print the queries; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m local.deployment.smoke", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--run-file", type=Path, default=run_file.DEFAULT)
    given = parser.parse_args(arguments)
    key = f"smoke-{uuid.uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory() as folder:
        order = Path(folder, "order.json")
        order.write_text(json.dumps({**json.loads(ORDER.read_text()), "order_id": key}))
        for attempt in ("first", "again"):
            code = send.main(
                [
                    str(order),
                    *("--to", send.SERVICE_BUS),
                    *("--message-id", f"{key}-{attempt}"),
                    *("--property", f"Deduplication-Key={key}"),
                    *("--run-file", str(given.run_file)),
                ]
            )
            if code:
                return code
    name = os.environ.get("APPLICATIONINSIGHTS_NAME")
    print(QUERIES.format(key=key, where=f" {name}" if name else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
