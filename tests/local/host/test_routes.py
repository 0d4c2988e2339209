import pytest

from local.host.bindings import Function
from local.host.routes import Route, RouteError, find, route


def http(name: str, template: str | None = None, methods: list[str] | None = None) -> Route:
    binding = {"type": "httpTrigger", "name": "req", "route": template, "methods": methods}
    return route(Function(name, name, (binding,)), "api")


def served(routes: list[Route], method: str, path: str) -> tuple[str, dict[str, str]] | None:
    found = find(routes, method, path)
    return None if found is None else (found[0].function.name, found[1])


def test_without_a_template_the_route_is_the_function_s_name() -> None:
    assert served([http("health")], "GET", "/api/health") == ("health", {})


def test_parameters_are_decoded_and_the_rest_of_the_path_matches_without_case() -> None:
    routes = [http("order", "orders/{id}")]
    assert served(routes, "GET", "/API/Orders/a%2Fb") == ("order", {"id": "a/b"})


def test_a_method_that_is_not_listed_is_not_served() -> None:
    routes = [http("submit", "orders", ["POST"])]
    assert served(routes, "POST", "/api/orders") == ("submit", {})
    assert served(routes, "GET", "/api/orders") is None


@pytest.mark.parametrize(
    ("template", "good", "bad"),
    [
        ("{id:int}", "7", "x"),
        ("{id:guid}", "0f8fad5b-d9cb-469f-a165-70867728950e", "0f8f"),
        ("{id:alpha}", "abc", "abc1"),
        ("{id:length(3)}", "abc", "abcd"),
    ],
)
def test_a_constraint_keeps_other_values_out(template: str, good: str, bad: str) -> None:
    routes = [http("order", template)]
    assert served(routes, "GET", f"/api/{good}") == ("order", {"id": good})
    assert served(routes, "GET", f"/api/{bad}") is None


def test_optional_default_and_catch_all_parameters() -> None:
    routes = [http("a", "a/{id?}"), http("b", "b/{id=5}"), http("c", "c/{*rest}")]
    assert served(routes, "GET", "/api/a") == ("a", {})
    assert served(routes, "GET", "/api/a/1") == ("a", {"id": "1"})
    assert served(routes, "GET", "/api/b") == ("b", {"id": "5"})
    assert served(routes, "GET", "/api/c/x/y") == ("c", {"rest": "x/y"})


def test_the_more_specific_route_wins_whatever_their_order() -> None:
    routes = [http("any", "{*rest}"), http("one", "orders/{id}"), http("open", "orders/open")]
    assert served(routes, "GET", "/api/orders/open") == ("open", {})
    assert served(routes, "GET", "/api/orders/1") == ("one", {"id": "1"})
    assert served(routes, "GET", "/api/other") == ("any", {"rest": "other"})


def test_a_template_that_is_not_understood_is_named() -> None:
    with pytest.raises(RouteError, match="odd"):
        http("odd", "orders/{id:unheard}")
