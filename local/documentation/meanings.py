"""What each app setting means, in the order in which a reader wants to know it."""

type Meanings = dict[str, str]

CONNECTIONS: Meanings = {
    "AzureWebJobsStorage": "Storage account: `UseDevelopmentStorage=true` for Azurite, or a connection "
    "string. One of this and `AzureWebJobsStorage__accountName` is needed.",
    "AzureWebJobsStorage__accountName": "The account's name, reached as a managed identity. Deployed "
    "this way.",
    "AzureWebJobsStorage__tableServiceUri": "The table service's address, for clouds whose addresses do "
    "not end in `core.windows.net`; wins over `__accountName`.",
    "AzureWebJobsStorage__queueServiceUri": "The same for the queue service.",
    "AzureWebJobsStorage__blobServiceUri": "The same for the blob service.",
    "ServiceBusConnection": "Service Bus connection string. With neither this nor the next one, the "
    "Service Bus functions are not registered.",
    "ServiceBusConnection__fullyQualifiedNamespace": "`NAME.servicebus.windows.net`, reached as a "
    "managed identity. Deployed this way.",
    "COSMOS_CONNECTION": "Cosmos DB connection string; read when the store is `cosmos`, and one of this "
    "and the next one is needed then.",
    "COSMOS_CONNECTION__accountEndpoint": "The account's address, reached as a managed identity. "
    "Deployed this way.",
    "COSMOS_DATABASE": "The database; it is made with the deployment.",
}

STORE: Meanings = {
    "IDEMPOTENCY_STORE": "Where orders and records are kept.",
    "ORDERS_CONTAINER": "Table or container of the orders, which are their own markers.",
    "RECORDS_CONTAINER": "Table or container of the records of two-phase consumers.",
    "INVENTORY_CONTAINER": "Table or container of stock levels, guarded by version.",
    "TIMELINES_CONTAINER": "Table or container of the orders' timelines.",
    "LEDGERS_CONTAINER": "Table or container of loyalty accounts and of the audit trail.",
}

POLICY: Meanings = {
    "IDEMPOTENCY_LEASE_SECONDS": "Until when an unfinished record belongs to its attempt.",
    "IDEMPOTENCY_HEARTBEAT_SECONDS": "How often the lease is renewed; at most half of it.",
    "IDEMPOTENCY_WAIT_SECONDS": "How long a delivery waits for another attempt; not below the lease.",
    "IDEMPOTENCY_DEADLINE_SECONDS": "When a handler is cancelled; at most wait x (deliveries - 1).",
    "IDEMPOTENCY_RETENTION_DAYS": "How long a finished record is kept; longer than a message can come "
    "back.",
    "IDEMPOTENCY_DEAD_LETTER_DAYS": "How long dead letters may lie before somebody sends them again: "
    "part of how long a message can come back.",
    "PACING_FIRST_SECONDS": "How long a message that must come back is held at its first delivery.",
    "PACING_LONGEST_SECONDS": "The most it is held; the time doubles with each delivery until then.",
    "SERVICEBUS_SETTLEMENT": "`binding`: dead-letters through the settlement binding. "
    "`quarantine-queue`: the fallback without it.",
}

QUEUES: Meanings = {
    "ORDERS_QUEUE": "Service Bus queue of `process_order`.",
    "ORDERS_STORAGE_QUEUE": "Storage queue of `process_order_from_storage_queue`; poison goes to the "
    "queue of this name with `-poison` behind it.",
    "IMPORTS_STORAGE_QUEUE": "Storage queue of `import_orders`: each message names a blob.",
    "IMPORTS_CONTAINER": "Blob container of the files that are imported, and of their bad rows.",
    "IMPORT_SLICE_SECONDS": "For how long one invocation imports before it leaves the rest to the "
    "next; two fifths of the deadline unless it is set.",
    "QUARANTINE_QUEUE": "Service Bus queue for what cannot be dead-lettered: events, and messages "
    "where the settlement is `quarantine-queue`.",
    "STOCK_QUEUE": "Service Bus queue of `stock_level_changed`.",
    "FULFILMENT_QUEUE": "Service Bus queue of paid orders.",
    "ORDER_EVENTS_TOPIC": "Topic that order events are published to.",
    "TIMELINE_SUBSCRIPTION": "Subscription of that topic, with sessions, of `order_timeline`.",
    "PAYMENTS_SUBSCRIPTION": "Subscription of that topic, of `charge_payment`.",
    "EMAIL_SUBSCRIPTION": "Subscription of that topic, of `email_confirmation`.",
    "LOYALTY_SUBSCRIPTION": "Subscription of that topic, of `loyalty_points`.",
    "AUDIT_SUBSCRIPTION": "Subscription of that topic, of `audit_orders`, which gets batches.",
    "OUTBOX_SWEEP_SCHEDULE": "When `sweep_outbox` looks for messages that were committed and not sent "
    "(NCRONTAB).",
    "OUTBOX_GRACE_SECONDS": "For how long they are left to the process that committed them.",
}

OTHERS: Meanings = {
    "PAYMENT_PROVIDER_URL": "The payment provider; without it `charge_payment` and `daily_settlement` are "
    "not registered.",
    "PAYMENT_TIMEOUT_SECONDS": "How long a charge may take; below the lease.",
    "PAYMENT_SETTLE_SECONDS": "How long after that it may still land: nobody acts on a charge in doubt "
    "sooner.",
    "SETTLEMENT_SCHEDULE": "When `daily_settlement` tells the provider what was paid the day before "
    "(NCRONTAB, UTC); in the hours after midnight, so that the day's last webhooks are in.",
    "MAIL_PROVIDER_URL": "The mail provider; without it `email_confirmation` is not registered, and its "
    "subscription fills until its messages expire.",
    "MAIL_TIMEOUT_SECONDS": "How long sending a mail may take; below the lease.",
    "PAYMENT_WEBHOOK_SECRETS": "What the provider signs its webhooks with (`whsec_...`), several with "
    "blanks between them; without one the webhook is off. Deployed as a Key Vault reference.",
    "EventHubConnection": "Event Hubs connection string. With neither this nor the next one, "
    "`ingest_order_events` is not registered.",
    "EventHubConnection__fullyQualifiedNamespace": "`NAME.servicebus.windows.net`, reached as a managed "
    "identity, which needs the role Azure Event Hubs Data Receiver.",
    "EVENT_HUB": "The event hub of order events.",
    "KAFKA_BROKERS": "Kafka's brokers (`host:port`, with commas between them); without them "
    "`ingest_order_events_from_kafka` is not registered.",
    "KAFKA_TOPIC": "The topic of order events.",
    "RabbitMQConnection": "RabbitMQ's connection string (`amqp://...`); without it "
    "`ingest_order_events_from_rabbitmq` is not registered.",
    "RABBITMQ_QUEUE": "The queue of order events; it needs a dead-letter exchange.",
    "RABBITMQ_HOLD_SECONDS": "How long a message that must come back is held. It comes five times more, then "
    "it is dead-lettered: six times this is the outage it outlives.",
    "EVENTS_ASIDE_QUEUE": "Storage queue for events of these three that can never be handled, with the "
    "reason.",
    "EVENT_ORIGINS": "Who may send CloudEvents here, by domain name, with blanks between them.",
}

OPERATIONS: Meanings = {
    "IDEMPOTENCY_ADMIN": "`true`: the administrative HTTP functions are there, see the "
    "[runbook](runbook.md#without-a-terminal).",
    "PURGE_SCHEDULE": "When `purge_expired` deletes expired records, which Cosmos DB does by itself, and "
    "counts stuck ones (NCRONTAB).",
    "SERVICEBUS_ENTITY_FILE": "Entities of a local broker, to check retention against; for development.",
    "OTEL_SERVICE_NAME": "The name that telemetry comes under.",
    "APPLICATIONINSIGHTS_CONNECTION_STRING": "Where metrics, traces and logs go; nowhere without it.",
    "PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY": "`true`: the worker sends the telemetry, and the app "
    "leaves it to it. Deployed this way.",
}

READ_BY_OTHERS: Meanings = {
    "AzureWebJobsStorage__credential": "`managedidentity`: how the host signs in to Storage.",
    "AzureWebJobsStorage__clientId": "As which identity it does.",
    "ServiceBusConnection__credential": "`managedidentity`: how the host signs in to Service Bus.",
    "ServiceBusConnection__clientId": "As which identity it does.",
    "AZURE_CLIENT_ID": "As which identity the app's own clients sign in.",
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING": "As which identity telemetry is sent.",
}

GROUPS: dict[str, Meanings] = {
    "Connections": CONNECTIONS,
    "Store": STORE,
    "Leases, retention, settlement": POLICY,
    "Queues, topics, the outbox": QUEUES,
    "Payments and events": OTHERS,
    "Operations and telemetry": OPERATIONS,
    "Read by the host and the SDKs": READ_BY_OTHERS,
}
