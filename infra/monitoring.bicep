// Where telemetry goes. Ingestion is by identity only: the connection string holds no secret.
param suffix string
param location string
param tags object

@description('How long telemetry is kept. The first 31 days are in the price of ingestion.')
param retentionInDays int = 30

resource workspace 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: 'log-${suffix}'
  location: location
  tags: tags
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: retentionInDays
    features: { disableLocalAuth: true }
    // A runaway loop of log lines must not become a bill.
    workspaceCapping: { dailyQuotaGb: 1 }
  }
}

resource applicationInsights 'Microsoft.Insights/components@2020-02-02' = {
  name: 'appi-${suffix}'
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    DisableLocalAuth: true
  }
}

output applicationInsightsName string = applicationInsights.name
output connectionString string = applicationInsights.properties.ConnectionString
output workspaceCustomerId string = workspace.properties.customerId
