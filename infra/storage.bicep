// One storage account: the host's own state, the deployed package, the orders that come over a
// Storage queue or in a file, and, with store=table, the orders and the records.
param name string
param location string
param tags object

@allowed(['Standard_LRS', 'Standard_ZRS'])
param sku string

var deploymentContainer = 'deployment'
var importsContainer = 'imports'

// `-poison`: where the host and the app put what can never be processed.
var queues = ['orders', 'orders-poison', 'imports', 'imports-poison']

var tables = ['orders', 'idempotency', 'inventory', 'timelines', 'ledgers']

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' = {
  // checkov:skip=CKV_AZURE_35: there is no virtual network here; shared keys are off, so that an identity with a role is the only way in
  // checkov:skip=CKV_AZURE_206: a geo-replica is behind; after a failover it lacks the newest records, and their duplicates would run again. Zones (storageSku) replicate before a write is answered
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: { name: sku }
  properties: {
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    accessTier: 'Hot'
  }
}

resource blobService 'Microsoft.Storage/storageAccounts/blobServices@2024-01-01' = {
  parent: account
  name: 'default'
  properties: {
    deleteRetentionPolicy: { enabled: true, days: 7 }
  }
}

resource deployment 'Microsoft.Storage/storageAccounts/blobServices/containers@2024-01-01' = {
  parent: blobService
  name: deploymentContainer
  properties: { publicAccess: 'None' }
}

// The files of orders that are imported, and their bad rows.
resource imports 'Microsoft.Storage/storageAccounts/blobServices/containers@2024-01-01' = {
  parent: blobService
  name: importsContainer
  properties: { publicAccess: 'None' }
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource queue 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' = [for name in queues: {
  parent: queueService
  name: name
}]

resource tableService 'Microsoft.Storage/storageAccounts/tableServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource table 'Microsoft.Storage/storageAccounts/tableServices/tables@2024-01-01' = [for name in tables: {
  parent: tableService
  name: name
}]

output name string = account.name
output deploymentContainerUri string = '${account.properties.primaryEndpoints.blob}${deploymentContainer}'
