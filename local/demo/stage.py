"""Everything the demo runs on: broker, storage, provider, consumers; on free ports, and stopped."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from azure.core.exceptions import ResourceExistsError
from azure.storage.queue import QueueServiceClient

from local.demo.consumers import Consumers
from local.demo.events import with_witness
from local.demo.payments import SETTINGS, SUBSCRIPTION
from local.introduction import ENTITIES
from local.payments import PaymentProvider
from local.servicebus import Broker, Entities
from local.services.azurite import Azurite
from local.services.cosmos import CosmosServer
from local.services.telemetry_sink import TelemetrySink

ROOT = Path(__file__).parents[2]
UNPROTECTED = Path(__file__).parent / "unprotected"
QUEUE = "orders"

# Shorter than in Azure, so that what takes a minute there can be watched here.
LOCK = timedelta(seconds=4)
DETECTION_WINDOW = timedelta(seconds=12)
EXPORT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs. `cosmos` is None when orders are kept in Table Storage.

    protected: whether the app is the one with the module.
    """

    broker: Broker
    azurite: Azurite
    cosmos: CosmosServer | None
    sink: TelemetrySink
    provider: PaymentProvider
    consumers: Consumers
    protected: bool

    @property
    def store(self) -> str:
        return "Cosmos DB" if self.cosmos else "Table Storage"


@contextlib.contextmanager
def opened(store: str, *, protected: bool) -> Iterator[Stage]:
    """Start all but the consumers; stop everything at the end, consumers included.

    store: `table` or `cosmos`.

    The folder with the consumers' logs goes with it, unless something went wrong: then the error
    gets a note that names it.
    """
    entities = Entities.load(ENTITIES).with_queue(
        QUEUE, lock=LOCK, detection_window=DETECTION_WINDOW
    )
    entities = with_witness(entities.with_queue(SUBSCRIPTION, lock=LOCK))
    folder = Path(tempfile.mkdtemp(prefix="demo-"))
    try:
        with contextlib.ExitStack() as parts:
            broker = parts.enter_context(Broker(entities))
            azurite = parts.enter_context(Azurite())
            cosmos = parts.enter_context(CosmosServer()) if store == "cosmos" else None
            sink = parts.enter_context(TelemetrySink())
            provider = parts.enter_context(PaymentProvider())
            _create_queue(azurite)
            environment = {
                **sink.environment(export_seconds=EXPORT_SECONDS),
                "AzureWebJobsStorage": azurite.connection_string,
                "ServiceBusConnection": broker.connection_string,
                "COSMOS_CONNECTION": cosmos.connection_string if cosmos else "",
                "IDEMPOTENCY_STORE": store,
                **SETTINGS,
                "PAYMENT_PROVIDER_URL": provider.url,
                "ORDERS_QUEUE": QUEUE,
                "ORDERS_STORAGE_QUEUE": QUEUE,
            }
            app = ROOT if protected else _unprotected_app(folder)
            consumers = Consumers(app, environment, folder)
            parts.callback(consumers.stop)
            yield Stage(broker, azurite, cosmos, sink, provider, consumers, protected)
    except Exception as error:
        error.add_note(f"The consumers' logs are in {folder}")
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _create_queue(azurite: Azurite) -> None:
    with (
        QueueServiceClient.from_connection_string(azurite.connection_string) as service,
        contextlib.suppress(ResourceExistsError),
    ):
        service.create_queue(QUEUE)


def _unprotected_app(folder: Path) -> Path:
    """The unprotected app in a folder of its own, with the host settings of the protected one."""
    app = folder / "app"
    app.mkdir()
    shutil.copy(UNPROTECTED / "function_app.py", app)
    shutil.copy(ROOT / "host.json", app)
    return app
