// Who may do what: all of it, in one place, except the data role of Cosmos DB, which is a resource of
// its account (cosmos.bicep). Local authentication is off everywhere, so what is not here is not possible.
param appPrincipalId string
param deployerPrincipalId string
param deployerPrincipalType string
param storageAccountName string
param serviceBusName string
param keyVaultName string
param applicationInsightsName string

var storageBlobDataOwner = 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'
var storageBlobDataContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
var storageQueueDataContributor = '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
var storageTableDataContributor = '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
var serviceBusDataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
var serviceBusDataSender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
var monitoringMetricsPublisher = '3913510d-42f4-4e42-8a64-420c390055eb'
var keyVaultSecretsUser = '4633458b-17de-408a-b874-0445c86b69e6'
var keyVaultSecretsOfficer = 'b86a8fe4-44ce-4948-aee5-eccb2c155cd7'

// The host keeps its leases and keys in blobs and asks for Owner, which imports need less of; queues are its trigger's and the
// app's; tables hold the records and the host's own diagnostics.
var appStorageRoles = [storageBlobDataOwner, storageQueueDataContributor, storageTableDataContributor]
var appServiceBusRoles = [serviceBusDataReceiver, serviceBusDataSender]

// `make send`, `make smoke`, uploads of what is to be imported, and the operator's commands: send, look at dead letters, read and settle records.
var deployerStorageRoles = [storageBlobDataContributor, storageQueueDataContributor, storageTableDataContributor]
var deployerServiceBusRoles = [serviceBusDataReceiver, serviceBusDataSender]

resource storage 'Microsoft.Storage/storageAccounts@2024-01-01' existing = {
  name: storageAccountName
}

resource serviceBus 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: serviceBusName
}

resource keyVault 'Microsoft.KeyVault/vaults@2024-11-01' existing = {
  name: keyVaultName
}

resource applicationInsights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: applicationInsightsName
}

resource appStorage 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in appStorageRoles: {
  scope: storage
  name: guid(storage.id, appPrincipalId, role)
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
  }
}]

resource appServiceBus 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in appServiceBusRoles: {
  scope: serviceBus
  name: guid(serviceBus.id, appPrincipalId, role)
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
  }
}]

resource appTelemetry 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: applicationInsights
  name: guid(applicationInsights.id, appPrincipalId, monitoringMetricsPublisher)
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', monitoringMetricsPublisher)
  }
}

resource appSecrets 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: keyVault
  name: guid(keyVault.id, appPrincipalId, keyVaultSecretsUser)
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', keyVaultSecretsUser)
  }
}

resource deployerStorage 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in deployerStorageRoles: if (!empty(deployerPrincipalId)) {
  scope: storage
  name: guid(storage.id, deployerPrincipalId, role)
  properties: {
    principalId: deployerPrincipalId
    principalType: deployerPrincipalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
  }
}]

resource deployerServiceBus 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in deployerServiceBusRoles: if (!empty(deployerPrincipalId)) {
  scope: serviceBus
  name: guid(serviceBus.id, deployerPrincipalId, role)
  properties: {
    principalId: deployerPrincipalId
    principalType: deployerPrincipalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
  }
}]

resource deployerSecrets 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(deployerPrincipalId)) {
  scope: keyVault
  name: guid(keyVault.id, deployerPrincipalId, keyVaultSecretsOfficer)
  properties: {
    principalId: deployerPrincipalId
    principalType: deployerPrincipalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', keyVaultSecretsOfficer)
  }
}
