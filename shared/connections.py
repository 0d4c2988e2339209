"""How the services are reached: by connection string on a developer's machine, by identity when deployed."""

import re
from collections.abc import Mapping

import msgspec

from .idempotency.errors import ConfigurationError

_ACCOUNT = re.compile(r"[a-z0-9]{3,24}", re.ASCII)
_HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+", re.ASCII | re.IGNORECASE)


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one service: by connection string (local), or by address and identity (deployed)."""

    name: str
    connection_string: str | None = None
    address: str | None = None

    def __repr__(self) -> str:
        """Without the connection string, which holds a key."""
        return f"Connection({self.name}, {self.address or 'by connection string'})"

    @property
    def is_loopback(self) -> bool:
        """Whether it is a local server, which has a certificate of its own making."""
        text = (self.connection_string or self.address or "").lower()
        return any(f"//{host}:" in text for host in ("localhost", "127.0.0.1", "[::1]"))


def storage(values: Mapping[str, str], service: str) -> Connection:
    """The storage account's ``service``: table, queue or blob."""
    name = "AzureWebJobsStorage"
    address = values.get(f"{name}__{service}ServiceUri")
    account = values.get(f"{name}__accountName")
    if address:
        return _at_url(name, f"__{service}ServiceUri", address)
    if account:
        if not _ACCOUNT.fullmatch(account):
            raise ConfigurationError(
                f"app setting {name}__accountName is {account!r}: it must be the account's name alone, "
                "3 to 24 small letters and digits"
            )
        return Connection(name=name, address=f"https://{account}.{service}.core.windows.net")
    if values.get(name):
        written_out = _development(values[name])
        return _by_string(name, written_out, "AccountName", f"{service}Endpoint")
    raise ConfigurationError(
        f"app setting {name} is missing: set it to UseDevelopmentStorage=true for Azurite, or set "
        f"{name}__accountName for an account with a managed identity"
    )


def service_bus(values: Mapping[str, str]) -> Connection | None:
    """The namespace, if there is one."""
    name = "ServiceBusConnection"
    namespace = values.get(f"{name}__fullyQualifiedNamespace")
    if namespace:
        if not _HOST.fullmatch(namespace):
            raise ConfigurationError(
                f"app setting {name}__fullyQualifiedNamespace is {namespace!r}: it must be a host's name "
                "alone, such as NAME.servicebus.windows.net"
            )
        return Connection(name=name, address=namespace)
    return _by_string(name, values[name], "Endpoint") if values.get(name) else None


def cosmos(values: Mapping[str, str]) -> Connection:
    """The Cosmos DB account."""
    name = "COSMOS_CONNECTION"
    endpoint = values.get(f"{name}__accountEndpoint")
    if endpoint:
        return _at_url(name, "__accountEndpoint", endpoint)
    if values.get(name):
        return _by_string(name, values[name], "AccountEndpoint")
    raise ConfigurationError(
        f"app setting IDEMPOTENCY_STORE is cosmos, but {name} is missing: set {name}__accountEndpoint "
        f"for an account with a managed identity, or {name} to a connection string"
    )


def _at_url(name: str, form: str, address: str) -> Connection:
    if not address.startswith(("https://", "http://")):
        raise ConfigurationError(
            f"app setting {name}{form} is {address!r}: it must be an address that begins with https://"
        )
    return Connection(name=name, address=address)


def _by_string(name: str, text: str, *one_of: str) -> Connection:
    """By a connection string, which is shown in no complaint: it holds a key."""
    parts = [part.partition("=") for part in text.split(";") if part.strip()]
    named = {key.strip().lower() for key, equals, value in parts if equals and value.strip()}
    if len(named) != len(parts) or not named & {each.lower() for each in one_of}:
        raise ConfigurationError(
            f"app setting {name} is no connection string: it must be NAME=VALUE;NAME=VALUE, among them "
            f"{' or '.join(one_of)}. Copy it as the portal shows it"
        )
    return Connection(name=name, connection_string=text)


def _development(connection_string: str) -> str:
    """The short form for Azurite, written out: not every SDK knows it."""
    if connection_string.strip().rstrip(";").lower() != "usedevelopmentstorage=true":
        return connection_string
    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    ports = {"Blob": 10000, "Queue": 10001, "Table": 10002}
    endpoints = ";".join(
        f"{service}Endpoint=http://127.0.0.1:{port}/{account}" for service, port in ports.items()
    )
    return f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};{endpoints};"
