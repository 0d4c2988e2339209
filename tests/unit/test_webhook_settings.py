"""The settings of what others push: refused by name when they are wrong, off when they are not there yet."""

import azure.functions as func
import pytest

from blueprints import webhooks
from bootstrap import build
from shared.idempotency import ConfigurationError
from shared.settings import Settings
from tests.triggers.webhook_sender import a_secret

STORAGE = {"AzureWebJobsStorage": "UseDevelopmentStorage=true"}
BUS = {"ServiceBusConnection": "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b"}
NAME = "PAYMENT_WEBHOOK_SECRETS"


def registered(environment: dict[str, str]) -> list[str | None]:
    """The functions of webhooks that an app of these settings has."""
    app = func.FunctionApp()
    webhooks.register(app, build(environment))
    return [function.get_function_name() for function in app.get_functions()]


def test_several_secrets_stand_with_blanks_between_them() -> None:
    secrets = (a_secret("n"), a_secret("o"))
    settings = Settings.read({**STORAGE, NAME: f" {secrets[0]}  {secrets[1]} "})
    assert settings.webhook_secrets == secrets
    assert secrets[0] not in repr(settings)


def test_a_secret_that_key_vault_does_not_have_yet_turns_the_webhook_off_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reference = "@Microsoft.KeyVault(VaultName=kv;SecretName=s)"
    assert registered({**STORAGE, **BUS, NAME: reference}) == []
    assert NAME in caplog.text


def test_a_secret_that_is_none_is_refused_at_start_up_by_name_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match=NAME) as refused:
        registered({**STORAGE, **BUS, NAME: "whsec_c2hvcnQ="})
    assert "c2hvcnQ" not in str(refused.value)


def test_records_that_go_before_webhooks_stop_being_repeated_are_refused_at_start_up() -> None:
    kept = {**STORAGE, **BUS, NAME: a_secret()}
    with pytest.raises(ConfigurationError, match=r"IDEMPOTENCY_RETENTION_DAYS is 3\.5.*75 hours"):
        registered({**kept, "IDEMPOTENCY_RETENTION_DAYS": "3.5"})
    assert registered({**kept, "IDEMPOTENCY_RETENTION_DAYS": "4"}) == ["payment_webhook"]


def test_who_may_send_events_is_event_grid_unless_others_are_named() -> None:
    assert Settings.read(STORAGE).event_origins == ("eventgrid.azure.net",)
    named = Settings.read({**STORAGE, "EVENT_ORIGINS": "a.example b.example"})
    assert named.event_origins == ("a.example", "b.example")
