"""How services let things be called: a name that cannot be is refused at start, not at the first message."""

import re
from typing import Final, NamedTuple

from .idempotency.errors import ConfigurationError


class Rule(NamedTuple):
    """What names of a kind look like, and the same in words."""

    kind: str
    form: re.Pattern[str]
    longest: int
    words: str


TABLE: Final = Rule(
    "a table of Table Storage",
    re.compile(r"(?!tables$)[a-z][a-z0-9]{2,}", re.ASCII | re.IGNORECASE),
    63,
    "3 to 63 letters and digits, a letter first, and not `tables`",
)
COSMOS: Final = Rule(
    "a database or container of Cosmos DB",
    re.compile(r"[^/\\#?\x00-\x1f]*[^/\\#?\x00-\x20]"),
    255,
    "1 to 255 characters without / \\ # and ?, no blank at the end",
)
STORAGE_QUEUE: Final = Rule(
    "a Storage queue",
    re.compile(r"(?=.{3})[a-z0-9]+(-[a-z0-9]+)*", re.ASCII),
    63 - len("-poison"),
    "3 to 56 small letters, digits and single hyphens between them (its poison queue has 7 more)",
)
BLOB_CONTAINER: Final = Rule(
    "a blob container",
    re.compile(r"(?=.{3})[a-z0-9]+(-[a-z0-9]+)*", re.ASCII),
    63,
    "3 to 63 small letters, digits and single hyphens between them",
)
SERVICE_BUS: Final = Rule(
    "a queue or topic of Service Bus",
    re.compile(r"[a-z0-9]([a-z0-9._/-]*[a-z0-9])?", re.ASCII | re.IGNORECASE),
    260,
    "1 to 260 letters, digits and . - _ /, a letter or digit first and last",
)
SUBSCRIPTION: Final = Rule(
    "a subscription of Service Bus",
    re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.ASCII | re.IGNORECASE),
    50,
    "1 to 50 letters, digits and . - _, a letter or digit first and last",
)
STREAM: Final = Rule(
    "an event hub, a topic of Kafka or a queue of RabbitMQ",
    re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.ASCII | re.IGNORECASE),
    249,
    "1 to 249 letters, digits and . - _, a letter or digit first and last",
)


def check_name(setting: str, name: str, rule: Rule) -> str:
    """The name, if the service takes it; else raises ConfigurationError naming the setting and the rule."""
    if len(name) <= rule.longest and rule.form.fullmatch(name):
        return name
    raise ConfigurationError(
        f"app setting {setting} is {name!r}, which cannot be the name of {rule.kind}: {rule.words}"
    )
