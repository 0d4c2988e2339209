import json
from pathlib import Path

import pytest

from local.host import hostjson


def load(folder: Path, **extensions: object) -> hostjson.HostSettings:
    (folder / "host.json").write_text(json.dumps({"version": "2.0", "extensions": extensions}))
    return hostjson.load(folder)


def test_given_an_empty_host_json_the_defaults_are_those_of_azure(tmp_path: Path) -> None:
    settings = load(tmp_path)

    assert settings.route_prefix == "api"
    assert settings.service_bus.auto_complete
    assert settings.service_bus.max_auto_lock_renewal == 300
    assert settings.service_bus.prefetch_count == 0
    assert settings.service_bus.max_message_batch_size == 1000
    assert settings.queues.batch_size == 16
    assert settings.queues.new_batch_threshold == 8
    assert settings.queues.max_dequeue_count == 5
    assert settings.queues.visibility_timeout == 0
    assert settings.queues.base64


def test_given_values_in_host_json_they_win_over_the_defaults(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        http={"routePrefix": ""},
        serviceBus={"autoCompleteMessages": False, "maxAutoLockRenewalDuration": "1.00:00:00"},
        queues={"batchSize": 4, "messageEncoding": "none", "visibilityTimeout": "00:00:30"},
    )

    assert settings.route_prefix == ""
    assert not settings.service_bus.auto_complete
    assert settings.service_bus.max_auto_lock_renewal == 86_400
    assert settings.queues.new_batch_threshold == 2
    assert settings.queues.visibility_timeout == 30
    assert not settings.queues.base64


@pytest.mark.parametrize(
    ("extensions", "named"),
    [
        ({"serviceBus": {"maxConcurrentCalls": 0}}, "maxConcurrentCalls"),
        ({"queues": {"visibilityTimeout": "30"}}, "visibilityTimeout"),
        ({"queues": {"messageEncoding": "utf8"}}, "messageEncoding"),
    ],
)
def test_given_an_unusable_value_the_message_names_its_setting(
    tmp_path: Path, extensions: dict[str, object], named: str
) -> None:
    with pytest.raises(hostjson.HostJsonError, match=named):
        load(tmp_path, **extensions)


def test_given_no_host_json_the_message_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(hostjson.HostJsonError, match=tmp_path.name):
        hostjson.load(tmp_path)
