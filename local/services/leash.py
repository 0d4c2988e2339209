"""Run a command that does not outlive its parent: ``python leash.py PARENT_PID COMMAND...``.

On Linux the kernel is asked to kill this process when the parent ends, however it ends; the
request survives the ``exec`` that follows. Elsewhere the command simply runs: there, a parent
that is killed outright leaves it behind.

It is a program of its own, not a ``preexec_fn``: that one runs Python between fork and exec,
which can deadlock in a process with threads, and Python warns of it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask to be killed with the parent, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        # Not SIGTERM: nobody is left to insist when a child does not heed it.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent ended before its child had started")
    os.execvp(command[0], command)  # noqa: S606  no shell is the point


if __name__ == "__main__":
    main()
