"""HTTP: which requests are the same, and which the key is refused to."""

import gzip

import pytest
from azure.functions import HttpRequest

from shared.idempotency.triggers.http_request import to_delivery
from tests.triggers.http_route import URL, Route, problem_of, request

# The key


@pytest.mark.parametrize("key", [None, "", "   ", '""'])
async def test_without_a_key_it_is_a_400_and_nothing_runs(route: Route, key: str | None) -> None:
    assert problem_of(await route(request(key))) == (400, "key-missing")
    assert route.ran == 0


@pytest.mark.parametrize(
    "key",
    ["k" * 256, "k\u00e9", "k\tk", "k\0", "k\x7f", "k\nk", "🦄", '"', '"k', '"k"k"', '"k"; a'],
)
async def test_a_key_that_is_none_is_a_400_and_nothing_runs(route: Route, key: str) -> None:
    assert problem_of(await route(request(key))) == (400, "key-invalid")
    assert route.ran == 0


@pytest.mark.parametrize("key", ["a,b", "a, b", "a,a", '"a","b"', '"a", "b"', 'a,"b"', '"a",b'])
async def test_several_headers_which_the_host_joins_are_a_400_and_no_odd_key(
    route: Route, key: str
) -> None:
    assert problem_of(await route(request(key))) == (400, "key-invalid")
    assert route.ran == 0


@pytest.mark.parametrize("key", ["k", "k" * 255, "a b", "~!@#$%^&*()", '"a,b"', "k\\", '"a b"'])
async def test_1_to_255_characters_of_printable_ascii_are_a_key(route: Route, key: str) -> None:
    assert (await route(request(key))).status_code == 200


@pytest.mark.parametrize(
    ("bare", "quoted"),
    [("k-1", '"k-1"'), ("k-1", ' "k-1" '), ('a"b', '"a\\"b"'), ("a\\b", '"a\\\\b"')],
)
async def test_a_quoted_and_a_bare_key_are_the_same(route: Route, bare: str, quoted: str) -> None:
    await route(request(bare))
    assert (await route(request(quoted))).headers["Idempotent-Replayed"] == "true"
    assert route.ran == 1


@pytest.mark.parametrize("name", ["idempotency-key", "IDEMPOTENCY-KEY", "Idempotency-Key"])
async def test_the_header_s_name_may_be_written_any_way(route: Route, name: str) -> None:
    asked = HttpRequest("POST", URL, headers={name: "k-1"}, body=b"{}")
    assert (await route(asked)).status_code == 200


# The scope


@pytest.mark.parametrize(
    "other",
    [
        request(x_ms_client_principal_id="somebody"),
        request(x_functions_key="f-2"),
        request(params={"code": "f-2"}),
        request(method="PUT"),
        request(url=f"{URL}/7"),
        request("k-2"),
    ],
    ids=["principal", "function key", "function key in the query", "method", "route", "key"],
)
async def test_another_caller_method_or_route_is_another_request(
    route: Route, other: HttpRequest
) -> None:
    await route(request())
    assert "Idempotent-Replayed" not in (await route(other)).headers
    assert route.ran == 2


async def test_a_principal_outranks_the_function_key_and_addresses_never_count(
    route: Route,
) -> None:
    await route(
        request(x_ms_client_principal_id="p", x_functions_key="a", x_forwarded_for="1.2.3.4")
    )
    await route(
        request(x_ms_client_principal_id="p", x_functions_key="b", x_forwarded_for="5.6.7.8")
    )
    assert route.ran == 1


async def test_a_caller_of_one_s_own_may_be_told(route: Route) -> None:
    route = Route(caller=lambda asked: asked.headers["x-tenant"])
    await route(request(x_tenant="a"))
    await route(request(x_tenant="a"))
    await route(request(x_tenant="b"))
    assert route.ran == 2


def test_a_function_key_is_never_part_of_the_key_as_it_is() -> None:
    for asked in (request(x_functions_key="s3cret"), request(params={"code": "s3cret"})):
        assert "s3cret" not in to_delivery(asked).key


async def test_a_very_long_route_is_no_fault_of_the_key(route: Route) -> None:
    long = [URL + "/" + "é" * 1000, URL + "/" + "é" * 1001]
    for url in long * 2:
        assert (await route(request("k" * 255, url=url))).status_code == 200
    assert route.ran == 2


# The fingerprint


@pytest.mark.parametrize(
    "other",
    [
        request(body=b'{"quantity": 2}'),
        request(body=b"not json"),
        request(url=f"{URL}?dry=1", params={"dry": "1"}),
        request(params={"dry": "1"}),
    ],
    ids=["body", "no JSON", "query", "query without the URL"],
)
async def test_the_key_with_another_request_is_a_422_and_nothing_runs(
    route: Route, other: HttpRequest
) -> None:
    await route(request())
    assert problem_of(await route(other)) == (422, "key-reused")
    assert route.ran == 1


async def test_repeated_query_parameters_all_count(route: Route) -> None:
    await route(request(url=f"{URL}?a=1&a=2", params={"a": "2"}))
    other = await route(request(url=f"{URL}?a=3&a=2", params={"a": "2"}))
    assert problem_of(other) == (422, "key-reused")


async def test_the_order_of_json_keys_and_of_parameters_does_not_matter(route: Route) -> None:
    await route(request(body=b'{"a": 1, "b": [2]}', url=f"{URL}?x=1&y=2"))
    again = await route(request(body=b'{"b":[2],"a":1}', url=f"{URL}?y=2&x=1"))
    assert again.headers["Idempotent-Replayed"] == "true"


async def test_a_rotated_function_key_in_the_query_is_no_other_request() -> None:
    one, other = (
        to_delivery(request(url=f"{URL}?code={key}&a=1", params={"code": key, "a": "1"}))
        for key in ("old", "new")
    )
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("body", [b"", b"\xff\x00", b"[" * 100_000, gzip.compress(b"x", mtime=0)])
async def test_a_body_of_any_bytes_is_compared_byte_by_byte(route: Route, body: bytes) -> None:
    assert (await route(request(body=body))).status_code == 200
    assert (await route(request(body=body))).headers["Idempotent-Replayed"] == "true"
    assert problem_of(await route(request(body=body + b"\x01"))) == (422, "key-reused")


async def test_a_body_that_is_too_large_is_a_413_and_nothing_runs() -> None:
    route = Route(largest_body=100)
    assert (await route(request(body=b"x" * 100))).status_code == 200
    assert problem_of(await route(request("k-2", body=b"x" * 101))) == (413, "too-large")
    assert route.ran == 1


async def test_a_body_of_a_megabyte_is_taken_and_a_larger_one_refused_by_default(
    route: Route,
) -> None:
    assert (await route(request(body=b"x" * 2**20))).status_code == 200
    assert (await route(request("k-2", body=b"x" * (2**20 + 1)))).status_code == 413
