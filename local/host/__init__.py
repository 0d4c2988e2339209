"""A Functions host for one machine: Microsoft's own Python worker, fed from real services.

The worker library (`azure-functions-runtime`) that runs the app in Azure runs it here as well,
in this process. What Azure's host does around it is done here in a small way: HTTP, Service Bus,
Storage queue and timer triggers, `host.json`, settlement actions. Never deployed.
"""
