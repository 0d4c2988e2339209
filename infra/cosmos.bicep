// Orders and records in Cosmos DB for NoSQL; deployed with store=cosmos only.
param name string
param location string
param tags object

@description('Principals that read and write data: the app, and whoever deploys.')
param principalIds array

@description('Serverless bills per request, which suits a start; provisioned throughput suits steady load.')
var capabilities = [{ name: 'EnableServerless' }]

// The marker of an order is the order itself: its container is partitioned by the order, so that one
// transaction holds both. defaultTtl -1: nothing expires unless the item says so, and the app says so
// on finished records only.
var containers = [
  { name: 'orders', partitionKey: '/order_id', defaultTtl: -1 }
  { name: 'idempotency', partitionKey: '/id', defaultTtl: -1 }
  { name: 'inventory', partitionKey: '/id', defaultTtl: -1 }
  { name: 'timelines', partitionKey: '/id', defaultTtl: -1 }
  { name: 'ledgers', partitionKey: '/ledger', defaultTtl: -1 }
]

resource account 'Microsoft.DocumentDB/databaseAccounts@2024-11-15' = {
  // checkov:skip=CKV_AZURE_101: there is no virtual network here; keys are off, so that an identity with a data role is the only way in
  name: name
  location: location
  tags: tags
  kind: 'GlobalDocumentDB'
  properties: {
    databaseAccountOfferType: 'Standard'
    capabilities: capabilities
    // One write region: two would both accept the insert of one key. The app refuses others.
    enableMultipleWriteLocations: false
    locations: [{ locationName: location, failoverPriority: 0, isZoneRedundant: false }]
    consistencyPolicy: { defaultConsistencyLevel: 'Session' }
    disableLocalAuth: true
    disableKeyBasedMetadataWriteAccess: true
    minimalTlsVersion: 'Tls12'
    backupPolicy: { type: 'Continuous', continuousModeProperties: { tier: 'Continuous7Days' } }
  }
}

resource database 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases@2024-11-15' = {
  parent: account
  name: 'orders'
  properties: { resource: { id: 'orders' } }
}

resource container 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2024-11-15' = [for each in containers: {
  parent: database
  name: each.name
  properties: {
    resource: {
      id: each.name
      partitionKey: { kind: 'Hash', paths: [each.partitionKey], version: 2 }
      defaultTtl: each.defaultTtl
    }
  }
}]

// Cosmos DB Built-in Data Contributor; data roles of Cosmos DB are resources of the account.
var dataContributor = '00000000-0000-0000-0000-000000000002'

resource access 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2024-11-15' = [for principalId in principalIds: {
  parent: account
  name: guid(account.id, principalId, dataContributor)
  properties: {
    principalId: principalId
    roleDefinitionId: '${account.id}/sqlRoleDefinitions/${dataContributor}'
    scope: account.id
  }
}]

output endpoint string = account.properties.documentEndpoint
