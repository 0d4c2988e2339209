"""The composition root: nothing but the app and its functions."""

import azure.functions as func

from blueprints import (
    admin,
    auditing,
    description,
    fulfilment,
    imports,
    inventory,
    notifications,
    operations,
    order_status,
    orders,
    payments,
    settlement,
    timelines,
    webhooks,
)
from bootstrap import build

app = func.FunctionApp(http_auth_level=func.AuthLevel.FUNCTION)
parts = build()
process_order = orders.register(app, parts)
imports.register(app, parts, process_order)
fulfilment.register(app, parts)
inventory.register(app, parts)
timelines.register(app, parts)
payments.register(app, parts)
settlement.register(app, parts)
notifications.register(app, parts)
auditing.register(app, parts)
webhooks.register(app, parts)
order_status.register(app, parts)
operations.register(app, parts)
admin.register(app, parts)
description.register(app, parts)
