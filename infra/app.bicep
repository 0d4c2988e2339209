// The function app on Flex Consumption, and every setting it reads.
param name string
param planName string
param location string
param tags object
param identityId string
param identityClientId string

@allowed(['table', 'cosmos'])
param store string

@description('Empty with store=table.')
param cosmosEndpoint string
param storageAccountName string
param deploymentContainerUri string
param serviceBusFullyQualifiedNamespace string
param applicationInsightsConnectionString string

@description('Empty: nobody is charged, and the function that would do so is not registered.')
param paymentProviderUrl string

@description('Empty: no mails are sent.')
param mailProviderUrl string
param keyVaultName string

// The host's own, and how its triggers and our clients sign in: each connection is an address, the word
// managedidentity and the identity's client id. FUNCTIONS_WORKER_RUNTIME and FUNCTIONS_EXTENSION_VERSION
// must not be here: Flex Consumption takes the runtime from functionAppConfig and refuses them.
var connections = {
  AzureWebJobsStorage__accountName: storageAccountName
  AzureWebJobsStorage__credential: 'managedidentity'
  AzureWebJobsStorage__clientId: identityClientId
  ServiceBusConnection__fullyQualifiedNamespace: serviceBusFullyQualifiedNamespace
  ServiceBusConnection__credential: 'managedidentity'
  ServiceBusConnection__clientId: identityClientId
  AZURE_CLIENT_ID: identityClientId
  APPLICATIONINSIGHTS_CONNECTION_STRING: applicationInsightsConnectionString
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identityClientId};Authorization=AAD'
  PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY: 'true'
  OTEL_SERVICE_NAME: name
}

var names = {
  ORDERS_QUEUE: 'orders'
  ORDERS_STORAGE_QUEUE: 'orders'
  IMPORTS_STORAGE_QUEUE: 'imports'
  IMPORTS_CONTAINER: 'imports'
  IMPORT_SLICE_SECONDS: '120'
  QUARANTINE_QUEUE: 'quarantine'
  STOCK_QUEUE: 'stock-levels'
  FULFILMENT_QUEUE: 'fulfilment'
  ORDER_EVENTS_TOPIC: 'order-events'
  TIMELINE_SUBSCRIPTION: 'order-timeline'
  PAYMENTS_SUBSCRIPTION: 'payments'
  EMAIL_SUBSCRIPTION: 'email'
  LOYALTY_SUBSCRIPTION: 'loyalty'
  AUDIT_SUBSCRIPTION: 'audit'
  ORDERS_CONTAINER: 'orders'
  RECORDS_CONTAINER: 'idempotency'
  INVENTORY_CONTAINER: 'inventory'
  TIMELINES_CONTAINER: 'timelines'
  LEDGERS_CONTAINER: 'ledgers'
  COSMOS_DATABASE: 'orders'
}

// 30 days is more than a message can need to come back: see servicebus.bicep.
var idempotency = {
  IDEMPOTENCY_STORE: store
  IDEMPOTENCY_RETENTION_DAYS: '30'
  IDEMPOTENCY_DEAD_LETTER_DAYS: '14'
  IDEMPOTENCY_ADMIN: 'false'
  PURGE_SCHEDULE: '0 23 * * * *'
  IDEMPOTENCY_LEASE_SECONDS: '30'
  IDEMPOTENCY_HEARTBEAT_SECONDS: '10'
  IDEMPOTENCY_WAIT_SECONDS: '45'
  IDEMPOTENCY_DEADLINE_SECONDS: '300'
  PACING_FIRST_SECONDS: '1'
  PACING_LONGEST_SECONDS: '30'
  SERVICEBUS_SETTLEMENT: 'binding'
  OUTBOX_SWEEP_SCHEDULE: '0 * * * * *'
  OUTBOX_GRACE_SECONDS: '60'
}

// A charge takes 10 s at most, which is below the lease; 20 s after that none can still land.
var providers = {
  PAYMENT_PROVIDER_URL: paymentProviderUrl
  PAYMENT_TIMEOUT_SECONDS: '10'
  PAYMENT_SETTLE_SECONDS: '20'
  SETTLEMENT_SCHEDULE: '0 0 2 * * *'
  MAIL_PROVIDER_URL: mailProviderUrl
  MAIL_TIMEOUT_SECONDS: '10'
}

// The secret is the provider's: it is stored by hand (README.md), and until then the webhook is off.
var senders = {
  PAYMENT_WEBHOOK_SECRETS: '@Microsoft.KeyVault(VaultName=${keyVaultName};SecretName=payment-webhook-secrets)'
  EVENT_ORIGINS: 'eventgrid.azure.net'
}

var cosmos = {
  COSMOS_CONNECTION__accountEndpoint: cosmosEndpoint
}

resource plan 'Microsoft.Web/serverfarms@2024-04-01' = {
  // checkov:skip=CKV_AZURE_225: zones cost at least two always-ready instances per function group, and not every region has them; a zone's loss delays messages, it loses none
  name: planName
  location: location
  tags: tags
  kind: 'functionapp'
  sku: { tier: 'FlexConsumption', name: 'FC1' }
  properties: { reserved: true }
}

resource app 'Microsoft.Web/sites@2024-04-01' = {
  // checkov:skip=CKV_AZURE_222: shops and payment providers call it over the internet; a virtual network is the user's to add
  // checkov:skip=CKV_AZURE_17: callers sign in with function keys and providers sign their webhooks; neither has a client certificate
  // checkov:skip=CKV_AZURE_212: Flex Consumption starts instances by itself and scales to zero when nothing is to do
  // checkov:skip=CKV_AZURE_213: App Service health checks do not exist on Flex Consumption; the platform replaces instances by itself
  name: name
  location: location
  tags: union(tags, { 'azd-service-name': 'app' })
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identityId}': {} }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    keyVaultReferenceIdentity: identityId
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: deploymentContainerUri
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identityId
          }
        }
      }
      scaleAndConcurrency: { instanceMemoryMB: 2048, maximumInstanceCount: 40 }
      runtime: { name: 'python', version: '3.13' }
    }
    siteConfig: {
      minTlsVersion: '1.2'
      scmMinTlsVersion: '1.2'
      ftpsState: 'Disabled'
      http20Enabled: true
    }
  }
}

resource settings 'Microsoft.Web/sites/config@2024-04-01' = {
  // checkov:skip=CKV_AZURE_13: asks for the site's `web` configuration; this is the list of app settings
  // checkov:skip=CKV_AZURE_63: asks for the site's `web` configuration; this is the list of app settings
  // checkov:skip=CKV_AZURE_65: asks for the site's `web` configuration; this is the list of app settings
  // checkov:skip=CKV_AZURE_66: asks for the site's `web` configuration; this is the list of app settings
  // checkov:skip=CKV_AZURE_80: asks for the site's `web` configuration; this is the list of app settings
  // checkov:skip=CKV_AZURE_88: asks for the site's `web` configuration; this is the list of app settings
  // checkov:skip=CKV_AZURE_222: asks for the site's `web` configuration; this is the list of app settings
  parent: app
  name: 'appsettings'
  properties: union(connections, names, idempotency, providers, senders, store == 'cosmos' ? cosmos : {})
}

// Publishing is by identity too: no password for FTP or for the deployment site.
resource ftp 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2024-04-01' = {
  parent: app
  name: 'ftp'
  properties: { allow: false }
}

resource scm 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2024-04-01' = {
  parent: app
  name: 'scm'
  properties: { allow: false }
}

output name string = app.name
output url string = 'https://${app.properties.defaultHostName}'
