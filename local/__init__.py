"""Everything that lets the app run on one machine. Never deployed."""

import os

# All of it talks to this machine only; a proxy that the environment names must not be asked for that.
for _name in ("NO_PROXY", "no_proxy"):
    os.environ[_name] = ",".join(filter(None, [os.environ.get(_name), "localhost,127.0.0.1"]))
