// The broker. What an entity is created with decides how often and for how long a message can come
// back, and so for how long a record must be kept: app.bicep's IDEMPOTENCY_RETENTION_DAYS is at least
//   max delivery count x lock duration + time to live + deadLetterDays
// (a test computes it from the values here). Sessions and duplicate detection cannot be changed on an
// entity that exists: to change them, make a new entity and move.
param name string
param location string
param tags object

@description('Days within which a dead letter is looked at, and re-sent if at all. A dead letter never expires by itself.')
var deadLetterDays = 14

// The same as local/entities.json, which the local broker reads. Queues have no sessions: their messages
// are independent, and a session would only make them wait for each other.
// Duplicate detection drops what a producer sends twice within the window; it is an economy, and
// never a substitute for the records: it forgets after minutes, and knows nothing of redeliveries.
var queues = [
  {
    name: 'orders'
    properties: {
      requiresDuplicateDetection: true
      duplicateDetectionHistoryTimeWindow: 'PT10M'
      defaultMessageTimeToLive: 'P14D'
      deadLetteringOnMessageExpiration: true
      lockDuration: 'PT1M'
      maxDeliveryCount: 10
      requiresSession: false
    }
  }
  {
    name: 'fulfilment'
    properties: {
      requiresDuplicateDetection: true
      duplicateDetectionHistoryTimeWindow: 'PT10M'
      defaultMessageTimeToLive: 'P14D'
      deadLetteringOnMessageExpiration: true
      lockDuration: 'PT1M'
      maxDeliveryCount: 10
      requiresSession: false
    }
  }
  {
    name: 'stock-levels'
    properties: {
      requiresDuplicateDetection: true
      duplicateDetectionHistoryTimeWindow: 'PT10M'
      defaultMessageTimeToLive: 'P14D'
      deadLetteringOnMessageExpiration: true
      lockDuration: 'PT1M'
      maxDeliveryCount: 10
      requiresSession: false
    }
  }
  {
    // What could not be dead-lettered with a reason comes here with it. No duplicate detection: two
    // messages of one id are two facts to look at. Expiry ends them: nothing is lost to the app.
    name: 'quarantine'
    properties: {
      requiresDuplicateDetection: false
      defaultMessageTimeToLive: 'P14D'
      deadLetteringOnMessageExpiration: false
      lockDuration: 'PT1M'
      maxDeliveryCount: 10
      requiresSession: false
    }
  }
]

var topic = {
  name: 'order-events'
  properties: {
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: 'PT10M'
    defaultMessageTimeToLive: 'P14D'
  }
}

var subscriptions = [
  {
    name: 'email'
    properties: {
      defaultMessageTimeToLive: 'P14D'
      deadLetteringOnMessageExpiration: true
      lockDuration: 'PT1M'
      maxDeliveryCount: 10
      requiresSession: false
    }
  }
  {
    name: 'loyalty'
    properties: {
      defaultMessageTimeToLive: 'P14D'
      deadLetteringOnMessageExpiration: true
      lockDuration: 'PT1M'
      maxDeliveryCount: 10
      requiresSession: false
    }
  }
  {
    name: 'payments'
    properties: {
      defaultMessageTimeToLive: 'P14D'
      deadLetteringOnMessageExpiration: true
      lockDuration: 'PT1M'
      maxDeliveryCount: 10
      requiresSession: false
    }
  }
  {
    // Handed out in batches: keep lockDuration and the lock in blueprints/auditing.py the same.
    name: 'audit'
    properties: {
      defaultMessageTimeToLive: 'P14D'
      deadLetteringOnMessageExpiration: true
      lockDuration: 'PT1M'
      maxDeliveryCount: 10
      requiresSession: false
    }
  }
  {
    // One session per order: its events are told in order.
    name: 'order-timeline'
    properties: {
      defaultMessageTimeToLive: 'P14D'
      deadLetteringOnMessageExpiration: true
      lockDuration: 'PT1M'
      maxDeliveryCount: 10
      requiresSession: true
    }
  }
]

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' = {
  name: name
  location: location
  tags: tags
  sku: { name: 'Standard', tier: 'Standard' }
  properties: {
    disableLocalAuth: true
    minimumTlsVersion: '1.2'
  }
}

resource queue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = [for each in queues: {
  parent: namespace
  name: each.name
  properties: each.properties
}]

resource events 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' = {
  parent: namespace
  name: topic.name
  properties: topic.properties
}

resource subscription 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' = [for each in subscriptions: {
  parent: events
  name: each.name
  properties: each.properties
}]

output name string = namespace.name
// serviceBusEndpoint is https://NAME.servicebus.windows.net:443/, with another suffix in other clouds.
output fullyQualifiedNamespace string = split(split(namespace.properties.serviceBusEndpoint, '://')[1], ':')[0]
output deadLetterDays int = deadLetterDays
