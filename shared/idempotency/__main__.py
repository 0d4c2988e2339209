"""``python -m shared.idempotency``: the operator's commands."""

from .cli import main

if __name__ == "__main__":
    main()
