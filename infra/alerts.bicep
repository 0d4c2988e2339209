// What should wake somebody, and the queries that say so. docs/runbook.md has a section for each, of the
// same name. The queries are files of their own, checked by a test against the metrics the code emits.
param location string
param tags object
param applicationInsightsName string
param serviceBusName string

@description('Who is told. Empty: alerts fire, and are seen in the portal only.')
param email string

var runbook = 'docs/runbook.md'

// severity: 1 something is wrong by now, 2 it will be, 3 to look at in working hours.
// override: how far back a query looks that looks further than its window.
var alerts = [
  {
    name: 'duplicate-rate'
    title: 'Duplicates are well above their own baseline'
    severity: 3
    every: 'PT15M'
    window: 'PT30M'
    override: 'P2D'
    query: loadTextContent('queries/duplicate-rate.kql')
  }
  {
    name: 'mismatch'
    title: 'A deduplication key was used again for other content'
    severity: 2
    every: 'PT15M'
    window: 'PT15M'
    override: null
    query: loadTextContent('queries/mismatch.kql')
  }
  {
    name: 'quarantined'
    title: 'Keys are quarantined: a person has to decide'
    severity: 2
    every: 'PT15M'
    window: 'PT2H'
    override: null
    query: loadTextContent('queries/quarantined.kql')
  }
  {
    name: 'stuck'
    title: 'Records are unfinished and nobody works on them'
    severity: 2
    every: 'PT15M'
    window: 'PT2H'
    override: null
    query: loadTextContent('queries/stuck.kql')
  }
  {
    name: 'job-failed'
    title: 'A scheduled job refused its slot for good'
    severity: 2
    every: 'PT15M'
    window: 'PT15M'
    override: null
    query: loadTextContent('queries/job-failed.kql')
  }
  {
    name: 'upkeep-not-run'
    title: 'Purge, survey or sweep did not run'
    severity: 2
    every: 'PT15M'
    window: 'PT6H'
    override: null
    query: loadTextContent('queries/upkeep-not-run.kql')
  }
  {
    name: 'store-unavailable'
    title: 'The store throttles or does not answer'
    severity: 1
    every: 'PT5M'
    window: 'PT10M'
    override: null
    query: loadTextContent('queries/store-unavailable.kql')
  }
]

resource applicationInsights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: applicationInsightsName
}

resource serviceBus 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: serviceBusName
}

resource people 'Microsoft.Insights/actionGroups@2023-01-01' = if (!empty(email)) {
  name: 'idempotency-operators'
  location: 'global'
  tags: tags
  properties: {
    groupShortName: 'idempotency'
    enabled: true
    emailReceivers: [
      { name: 'operators', emailAddress: email, useCommonAlertSchema: true }
    ]
  }
}

resource rule 'Microsoft.Insights/scheduledQueryRules@2023-03-15-preview' = [for each in alerts: {
  name: 'idempotency-${each.name}'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: each.title
    description: '${runbook}#${each.name}'
    severity: each.severity
    enabled: true
    scopes: [applicationInsights.id]
    evaluationFrequency: each.every
    windowSize: each.window
    overrideQueryTimeRange: each.override
    autoMitigate: true
    criteria: {
      allOf: [
        {
          query: each.query
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          failingPeriods: { numberOfEvaluationPeriods: 1, minFailingPeriodsToAlert: 1 }
        }
      ]
    }
    actions: { actionGroups: empty(email) ? [] : [people.id] }
  }
}]

// Above what is usual for each entity, which Azure learns: a queue that always holds a few is no news.
resource deadLetters 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: 'idempotency-dead-letters'
  location: 'global'
  tags: tags
  properties: {
    description: '${runbook}#dead-letters'
    severity: 2
    enabled: true
    scopes: [serviceBus.id]
    evaluationFrequency: 'PT15M'
    windowSize: 'PT1H'
    autoMitigate: true
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.MultipleResourceMultipleMetricCriteria'
      allOf: [
        {
          criterionType: 'DynamicThresholdCriterion'
          name: 'growing'
          metricNamespace: 'Microsoft.ServiceBus/namespaces'
          metricName: 'DeadletteredMessages'
          dimensions: [
            { name: 'EntityName', operator: 'Include', values: ['*'] }
          ]
          timeAggregation: 'Maximum'
          operator: 'GreaterThan'
          alertSensitivity: 'Medium'
          failingPeriods: { numberOfEvaluationPeriods: 4, minFailingPeriodsToAlert: 2 }
        }
      ]
    }
    actions: empty(email) ? [] : [{ actionGroupId: people.id }]
  }
}
