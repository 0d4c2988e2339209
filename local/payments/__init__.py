"""A payment provider on this machine, for tests, the demo and people; never deployed.

It charges nobody, but keeps its books as a real one does: it honours `Idempotency-Key` for as
long as it remembers a key, and it can fail in all the ways that leave a caller in doubt.
"""

from .faults import Faults
from .ledger import Charge
from .provider import PaymentProvider

__all__ = ["Charge", "Faults", "PaymentProvider"]
