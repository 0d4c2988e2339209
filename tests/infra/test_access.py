"""Identity is the only way in, and nobody may do more than they have to."""

import ast
import re
import runpy
from collections.abc import Mapping
from typing import Any

import azure.functions as func
import pytest

from local.deployment import infra
from local.deployment.bicep import Resource
from local.deployment.infra import INFRA, ROOT
from local.deployment.upload import uploaded_files

BLOB_OWNER = "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"
BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
QUEUE_CONTRIBUTOR = "974c5e8b-45b9-4653-ba55-5f855dd0fb88"
TABLE_CONTRIBUTOR = "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3"
BUS_RECEIVER = "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0"
BUS_SENDER = "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39"
METRICS_PUBLISHER = "3913510d-42f4-4e42-8a64-420c390055eb"
SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"
SECRETS_OFFICER = "b86a8fe4-44ce-4948-aee5-eccb2c155cd7"
COSMOS_CONTRIBUTOR = "00000000-0000-0000-0000-000000000002"

NEEDED_BY_CLIENT: Mapping[str, set[str]] = {
    "azure.core": set(),
    "azure.cosmos": {COSMOS_CONTRIBUTOR},
    "azure.data.tables": {TABLE_CONTRIBUTOR},
    "azure.functions": set(),
    "azure.identity": set(),
    "azure.monitor": {METRICS_PUBLISHER},
    "azure.servicebus": {BUS_SENDER},
    "azure.storage.blob": {
        BLOB_OWNER
    },  # the platform's need: a Contributor's rights are among its own
    "azure.storage.queue": {QUEUE_CONTRIBUTOR},
}
NEEDED_BY_TRIGGER: Mapping[str, set[str]] = {
    "eventGridTrigger": set(),  # Event Grid pushes, with a key of the host's
    "http": set(),
    "httpTrigger": set(),
    "queueTrigger": {QUEUE_CONTRIBUTOR},
    "serviceBusTrigger": {BUS_RECEIVER},
    "timerTrigger": {BLOB_OWNER},
}
NEEDED_BY_PLATFORM = {BLOB_OWNER, SECRETS_USER}
"""The host's leases, keys and package are blobs; references to Key Vault are resolved as the app."""

ASSIGNMENT = "Microsoft.Authorization/roleAssignments"
COSMOS_ASSIGNMENT = "Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments"

CLOSED: Mapping[str, Mapping[str, Any]] = {
    "Microsoft.DocumentDB/databaseAccounts": {
        "disableLocalAuth": True,
        "enableMultipleWriteLocations": False,
        "minimalTlsVersion": "Tls12",
    },
    "Microsoft.Insights/components": {"DisableLocalAuth": True},
    "Microsoft.KeyVault/vaults": {"enableRbacAuthorization": True},
    "Microsoft.OperationalInsights/workspaces": {"features": {"disableLocalAuth": True}},
    "Microsoft.ServiceBus/namespaces": {"disableLocalAuth": True, "minimumTlsVersion": "1.2"},
    "Microsoft.Storage/storageAccounts": {
        "allowBlobPublicAccess": False,
        "allowSharedKeyAccess": False,
        "minimumTlsVersion": "TLS1_2",
        "supportsHttpsTrafficOnly": True,
    },
    "Microsoft.Web/sites": {"httpsOnly": True},
    "Microsoft.Web/sites/basicPublishingCredentialsPolicies": {"allow": False},
}
HOLDS_NO_DATA = {
    "Microsoft.Insights/actionGroups",
    "Microsoft.Insights/metricAlerts",
    "Microsoft.Insights/scheduledQueryRules",
    "Microsoft.Insights/workbooks",
    "Microsoft.ManagedIdentity/userAssignedIdentities",
    "Microsoft.Resources/resourceGroups",
    "Microsoft.Web/serverfarms",
}


def test_local_authentication_is_off_and_tls_is_current_everywhere() -> None:
    for each in _deployed():
        if each.kind in CLOSED:
            properties = each.body["properties"]
            for name, value in CLOSED[each.kind].items():
                assert properties.get(name) == value, f"{each.symbol}: {name}"


def test_nothing_is_deployed_that_nobody_has_thought_about_closing() -> None:
    top_level = {each.kind for each in _deployed() if each.kind.count("/") == 1}

    assert top_level - CLOSED.keys() - HOLDS_NO_DATA - {ASSIGNMENT} == set()


def test_neither_way_of_publishing_takes_a_password() -> None:
    kind = "Microsoft.Web/sites/basicPublishingCredentialsPolicies"

    assert {each.body["name"] for each in _deployed() if each.kind == kind} == {"ftp", "scm"}


def test_no_key_and_no_connection_string_is_ever_read() -> None:
    for path in sorted(INFRA.glob("*.bicep")):
        code = re.sub(r"//.*", "", path.read_text())
        assert not re.search(r"\blist[A-Z]\w*\s*\(", code), f"{path.name} lists keys"
        assert not re.search(r"(?i)account_?key|shared_?access|primary_?key|\bsas\b", code)
        # The one of Application Insights is an address: ingestion takes identities only.
        strings = re.findall(r"([\w.]+)\.connectionstrings?\b", code, re.IGNORECASE)
        assert set(strings) <= {"applicationInsights.properties", "monitoring.outputs"}


def test_no_role_is_assigned_to_a_scope_wider_than_one_service() -> None:
    for each in _deployed():
        if each.kind == ASSIGNMENT:
            scope = each.body["scope"].text
            assert scope in ("storage", "serviceBus", "keyVault", "applicationInsights")


@pytest.mark.parametrize("store", ["table", "cosmos"])
def test_the_app_has_the_roles_its_clients_and_triggers_need_and_no_others(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = NEEDED_BY_PLATFORM.union(
        *(NEEDED_BY_CLIENT[client] for client in _clients()),
        *(NEEDED_BY_TRIGGER[kind] for kind in _triggers(store, monkeypatch)),
    )
    if store != "cosmos":
        needed -= {COSMOS_CONTRIBUTOR}

    assert _assigned("appPrincipalId", store) == needed


@pytest.mark.parametrize("store", ["table", "cosmos"])
def test_whoever_deploys_may_send_receive_upload_and_settle_records(store: str) -> None:
    roles = {BUS_RECEIVER, BUS_SENDER, SECRETS_OFFICER}
    roles |= {BLOB_CONTRIBUTOR, QUEUE_CONTRIBUTOR, TABLE_CONTRIBUTOR}
    if store == "cosmos":
        roles |= {COSMOS_CONTRIBUTOR}

    assert _assigned("deployerPrincipalId", store) == roles


def test_without_a_deploying_principal_nothing_is_assigned_to_it() -> None:
    for each in infra.read("roles").of_kind(ASSIGNMENT):
        of_deployer = each.body["properties"]["principalId"].text == "deployerPrincipalId"
        assert (each.condition == "!empty(deployerPrincipalId)") == of_deployer


def test_the_app_starts_only_once_its_roles_are_there() -> None:
    [app] = [each for each in infra.read("main").modules if each.kind == "app.bicep"]

    assert "roles" in {each.text for each in app.body["dependsOn"]}


def _deployed() -> list[Resource]:
    return [each for file in infra.read_all() for each in file.resources if not each.existing]


def _assigned(principal: str, store: str) -> set[str]:
    """Ids of the roles assigned to whom this parameter of roles.bicep names."""
    assigned = set()
    for each in infra.read("roles").of_kind(ASSIGNMENT):
        if each.body["properties"]["principalId"].text == principal:
            assigned.add(each.body["properties"]["roleDefinitionId"].arguments[-1])
    if store == "cosmos":
        assigned |= _assigned_in_cosmos(principal)
    return assigned


def _assigned_in_cosmos(principal: str) -> set[str]:
    """Cosmos DB assigns one role to a list of principals: the app's, and whoever deploys."""
    [module] = [each for each in infra.read("main").modules if each.kind == "cosmos.bicep"]
    assert module.condition == "store == 'cosmos'"
    of_app, of_deployer = module.body["params"]["principalIds"].arguments
    listed = {
        "appPrincipalId": [each.text for each in of_app] == ["identity.outputs.principalId"],
        "deployerPrincipalId": of_deployer.text == "empty(principalId) ? [] : [principalId]",
    }
    [assignment] = infra.read("cosmos").of_kind(COSMOS_ASSIGNMENT)
    role = assignment.body["name"].arguments[-1]
    assert assignment.body["properties"]["roleDefinitionId"].text.endswith("${dataContributor}'")
    return {role} if listed[principal] else set()


def _clients() -> set[str]:
    """The Azure packages that the deployed code imports, anywhere."""
    found = set()
    for path in uploaded_files(ROOT):
        if not path.endswith(".py"):
            continue
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            for module in modules:
                if module and module.startswith("azure."):
                    known = [
                        each for each in NEEDED_BY_CLIENT if f"{module}.".startswith(f"{each}.")
                    ]
                    assert known, f"{path}: which role does a client of {module} need?"
                    found.add(known[0])
    return found


def _triggers(store: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    for name, value in infra.app_settings(store).items():
        monkeypatch.setenv(name, value)
    app: func.FunctionApp = runpy.run_path(str(ROOT / "function_app.py"))["app"]
    return {str(binding.type) for each in app.get_functions() for binding in each.get_bindings()}
