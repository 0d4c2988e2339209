"""HTTP: whose request it is, and routes where the key is optional."""

import base64
import json
from typing import Any

import azure.functions as func
import pytest
from azure.functions import HttpResponse

from shared.idempotency import ConfigurationError, MalformedContent, current_attempt
from shared.idempotency.triggers import http
from shared.idempotency.triggers.callers import caller_of, function_key_caller
from tests.triggers.http_route import Route, problem_of, request

OBJECT_ID = "http://schemas.microsoft.com/identity/claims/objectidentifier"
NAME_ID = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/nameidentifier"


def principal(content: Any) -> str:
    return base64.b64encode(json.dumps(content).encode()).decode()


def claims(**values: str) -> dict[str, Any]:
    names = {"object": OBJECT_ID, "name": NAME_ID}
    return {
        "auth_typ": "aad",
        "claims": [{"typ": names.get(k, k), "val": v} for k, v in values.items()],
    }


@pytest.mark.parametrize(
    ("content", "caller"),
    [
        (claims(object="o-1", name="n-1", iat="1"), "principal:aad:o-1"),
        (claims(name="n-1", oid="o-1"), "principal:aad:o-1"),
        (claims(name="n-1", sub="s-1"), "principal:aad:n-1"),
        (claims(sub="s-1", ip="1.2.3.4"), "principal:aad:s-1"),
        (
            {"identityProvider": "github", "userId": "u-1", "userDetails": "x"},
            "principal:github:u-1",
        ),
    ],
)
def test_a_principal_is_known_by_what_names_it_for_good(content: Any, caller: str) -> None:
    encoded = principal(content)
    assert caller_of(request(x_ms_client_principal=encoded)) == caller
    assert caller_of(request(x_ms_client_principal=encoded.rstrip("="))) == caller


def test_the_principal_s_id_is_taken_where_the_platform_tells_it() -> None:
    asked = request(
        x_ms_client_principal_id="p-1",
        x_ms_client_principal_idp="aad",
        x_ms_client_principal=principal(claims(object="another")),
    )
    assert caller_of(asked) == "principal:aad:p-1"


@pytest.mark.parametrize(
    "encoded",
    [
        "not base64!",
        "====",
        base64.b64encode(b"\xff").decode(),
        principal([]),
        principal("text"),
        principal({}),
        principal({"claims": None}),
        principal({"claims": [1]}),
        principal({"claims": [{"typ": "oid"}]}),
        principal({"auth_typ": 1, "userId": "u"}),
        principal({"userId": 7}),
        principal(claims(email="a@b", ip="1.2.3.4")),
        base64.b64encode(b"[" * 100_000).decode(),
    ],
)
async def test_a_principal_that_names_nobody_is_refused_and_nothing_runs(
    route: Route, encoded: str
) -> None:
    """Taken for somebody, it would share a scope with others, or never be the same twice."""
    with pytest.raises(MalformedContent):
        caller_of(request(x_ms_client_principal=encoded))
    assert problem_of(await route(request(x_ms_client_principal=encoded))) == (400, "malformed")
    assert route.ran == 0


def test_without_app_service_authentication_nobody_is_who_they_say() -> None:
    honest = request(x_functions_key="f-1")
    liar = request(x_functions_key="f-1", x_ms_client_principal_id="somebody")
    assert function_key_caller(liar) == function_key_caller(honest)
    assert function_key_caller(request()) == "anonymous"
    assert "f-1" not in function_key_caller(honest)


# Where the key is optional


async def test_where_the_key_is_optional_a_request_without_it_runs_each_time() -> None:
    route = Route(required=False)
    answers = [await route(request(None)) for _ in range(3)]
    assert [a.get_body() for a in answers] == [b"made 1", b"made 2", b"made 3"]
    assert all("Idempotent-Replayed" not in a.headers for a in answers)
    assert await route.store.read("process_order", "") is None


async def test_where_the_key_is_optional_a_request_with_it_runs_once() -> None:
    route = Route(required=False)
    await route(request("k-1"))
    assert (await route(request("k-1"))).headers["Idempotent-Replayed"] == "true"
    assert route.ran == 1


@pytest.mark.parametrize(("key", "name"), [("", "key-missing"), ('"', "key-invalid")])
async def test_where_the_key_is_optional_one_that_is_none_is_still_refused(
    key: str, name: str
) -> None:
    """Who sends the header wants it once: run unprotected, the next retry would run again."""
    route = Route(required=False)
    assert problem_of(await route(request(key))) == (400, name)
    assert route.ran == 0


async def test_where_the_key_is_optional_refusals_and_limits_are_the_same_without_it() -> None:
    route = Route(required=False, largest_body=10)
    route.answers = [lambda: LookupError("s3cret"), lambda: HttpResponse("busy", status_code=503)]
    assert problem_of(await route(request(None, body=b"x" * 11))) == (413, "too-large")
    assert problem_of(await route(request(None, body=b"{}"))) == (500, "failed")
    assert (await route(request(None, body=b"{}"))).status_code == 503


async def test_where_the_key_is_optional_without_it_there_is_no_attempt() -> None:
    found: list[str] = []

    def look(asked: func.HttpRequest) -> HttpResponse:
        try:
            found.append(current_attempt().consumer)
        except ConfigurationError as error:
            found.append(type(error).__name__)
        return HttpResponse("looked")

    function = http.idempotent(Route().consumer, required=False)(look)
    await function(request(None))
    await function(request("k"))
    assert found == ["ConfigurationError", "process_order"]
