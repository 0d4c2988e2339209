// The workbook: one page that shows what duplicates come, from where, and what they cost.
param location string
param tags object
param applicationInsightsName string

resource applicationInsights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: applicationInsightsName
}

resource workbook 'Microsoft.Insights/workbooks@2022-04-01' = {
  name: guid(applicationInsights.id, 'idempotency')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Idempotency'
    category: 'workbook'
    sourceId: applicationInsights.id
    serializedData: loadTextContent('workbook.json')
  }
}
