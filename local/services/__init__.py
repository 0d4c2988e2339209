"""The services the app talks to, as parts that run on this machine and nowhere else.

Each is a context manager: entered, it is up and has answered a real request; left, it is
gone. `processes` is what the ones that are programs of their own have in common.
"""
