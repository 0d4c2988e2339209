// The whole deployment: one resource group, one module per area. Read README.md beside this file first.
targetScope = 'subscription'

@minLength(1)
@maxLength(32)
@description('Name of the azd environment; all resource names derive from it.')
param environmentName string

@minLength(1)
@description('A region that offers Flex Consumption.')
@metadata({ azd: { type: 'location' } })
param location string

@description('Where orders and records are kept. Cosmos DB is deployed only when it is chosen.')
@allowed(['table', 'cosmos'])
param store string

@description('Object id of whoever deploys; gets the data roles that the command line needs. Empty for none.')
param principalId string

@description('What kind of principal deploys: a person, or a pipeline.')
@allowed(['User', 'ServicePrincipal'])
param principalType string

@description('ZRS keeps the records when a zone is lost; not every region has it.')
@allowed(['Standard_LRS', 'Standard_ZRS'])
param storageSku string

@description('Where the payment provider is called. Empty: the app charges nobody.')
param paymentProviderUrl string

@description('Where the mail provider is called. Empty: no mails are sent.')
param mailProviderUrl string

@description('Who is told of alerts. Empty: they are seen in the portal only.')
param alertEmail string

var tags = { 'azd-env-name': environmentName }
var suffix = toLower(uniqueString(subscription().id, environmentName, location))

resource group 'Microsoft.Resources/resourceGroups@2024-03-01' = {
  name: 'rg-${environmentName}'
  location: location
  tags: tags
}

module identity 'identity.bicep' = {
  scope: group
  name: 'identity'
  params: { name: 'id-${suffix}', location: location, tags: tags }
}

module monitoring 'monitoring.bicep' = {
  scope: group
  name: 'monitoring'
  params: { suffix: suffix, location: location, tags: tags }
}

module storage 'storage.bicep' = {
  scope: group
  name: 'storage'
  params: { name: 'st${suffix}', sku: storageSku, location: location, tags: tags }
}

module serviceBus 'servicebus.bicep' = {
  scope: group
  name: 'servicebus'
  params: { name: 'sb-${suffix}', location: location, tags: tags }
}

module keyVault 'keyvault.bicep' = {
  scope: group
  name: 'keyvault'
  params: { name: 'kv-${suffix}', location: location, tags: tags }
}

module cosmos 'cosmos.bicep' = if (store == 'cosmos') {
  scope: group
  name: 'cosmos'
  params: {
    name: 'cosmos-${suffix}'
    location: location
    tags: tags
    principalIds: concat([identity.outputs.principalId], empty(principalId) ? [] : [principalId])
  }
}

module roles 'roles.bicep' = {
  scope: group
  name: 'roles'
  params: {
    appPrincipalId: identity.outputs.principalId
    deployerPrincipalId: principalId
    deployerPrincipalType: principalType
    storageAccountName: storage.outputs.name
    serviceBusName: serviceBus.outputs.name
    keyVaultName: keyVault.outputs.name
    applicationInsightsName: monitoring.outputs.applicationInsightsName
  }
}

module app 'app.bicep' = {
  scope: group
  name: 'app'
  params: {
    name: 'func-${suffix}'
    planName: 'plan-${suffix}'
    location: location
    tags: tags
    identityId: identity.outputs.id
    identityClientId: identity.outputs.clientId
    store: store
    cosmosEndpoint: store == 'cosmos' ? cosmos!.outputs.endpoint : ''
    storageAccountName: storage.outputs.name
    deploymentContainerUri: storage.outputs.deploymentContainerUri
    serviceBusFullyQualifiedNamespace: serviceBus.outputs.fullyQualifiedNamespace
    paymentProviderUrl: paymentProviderUrl
    mailProviderUrl: mailProviderUrl
    keyVaultName: keyVault.outputs.name
    applicationInsightsConnectionString: monitoring.outputs.connectionString
  }
  // The host reads its storage while it starts: it may do so only once the roles are there.
  dependsOn: [roles]
}

module alerts 'alerts.bicep' = {
  scope: group
  name: 'alerts'
  params: {
    location: location
    tags: tags
    applicationInsightsName: monitoring.outputs.applicationInsightsName
    serviceBusName: serviceBus.outputs.name
    email: alertEmail
  }
}

module workbook 'workbook.bicep' = {
  scope: group
  name: 'workbook'
  params: {
    location: location
    tags: tags
    applicationInsightsName: monitoring.outputs.applicationInsightsName
  }
}

// azd keeps the outputs in its environment: `azd env get-values`.
output AZURE_RESOURCE_GROUP string = group.name
output AZURE_FUNCTION_NAME string = app.outputs.name
output AZURE_FUNCTION_URL string = app.outputs.url
output AZURE_STORAGE_ACCOUNT string = storage.outputs.name
output SERVICEBUS_FQDN string = serviceBus.outputs.fullyQualifiedNamespace
output SERVICEBUS_DEAD_LETTER_DAYS int = serviceBus.outputs.deadLetterDays
output COSMOS_ENDPOINT string = store == 'cosmos' ? cosmos!.outputs.endpoint : ''
output AZURE_KEY_VAULT_NAME string = keyVault.outputs.name
output APPLICATIONINSIGHTS_NAME string = monitoring.outputs.applicationInsightsName
output LOG_ANALYTICS_WORKSPACE_ID string = monitoring.outputs.workspaceCustomerId
