"""All interleavings of a few deliveries of one key, with faults: the schedule explorer.

The real consumer runs against a store in memory under an event loop and a clock of our own. Wherever a
delivery calls the store, pauses, runs its handler or is settled, the explorer decides what happens
next; depth first, each schedule from its start, it goes through all decisions. Schedules that come to
an equal state are continued once.

    from shared.idempotency.exploration import Message, Scenario, explore

    found = explore(Scenario(
        name="mine", messages=(Message(name="A"), Message(name="B", sequence=2)), faults=1,
        store=lambda clock: MyStore(clock),  # any store whose calls never wait
    ))
    assert not found.violations, "\\n".join(map(str, found.violations))

``python -m shared.idempotency.exploration`` runs what CI runs; ``--help`` tells the options.

**What is explored.** One to three deliveries of one key, of one or two contents, each in a process of
its own or all in one: every order of their arrival, store calls, effects, releases and settlements,
redelivery of whatever was not acknowledged, and heartbeats of handlers that take long. At every point,
up to the scenario's number of faults in a schedule:

- *crash*: nothing of the process runs any more, no ``finally`` reaches the store; messages come back;
- *no answer*: StoreUnavailable is raised, and the request lands at once (a lost answer), never (a lost
  request), or at any point in between, even after its process has gone;
- *cut off*: the store answers this process no more;
- *stall*: time jumps past lease and allowance while the attempt goes on, unaware, at any later point;
- the handler *raises*, or *takes long* (to an end, or past its deadline), before or after its effect.

A renewal under way when its handler returns may land late too; that is no fault.

With a `Plan` the handler has **named steps** at a provider, which is part of the schedule: it honours
keys for ever, for a time, or not at all; the steps run one after the other or side by side; and the
consumer's policy is rerun, reconcile or quarantine.
A call of a step may be answered; and, as faults,

- get *no answer*: the caller has a time-out, and the effect comes at once, later, or never;
- be refused *for now* or *for good*, which surely did nothing;
- be *slow*: time passes, up to the step's deadline and beyond, while it is under way;
- be under way when its process *crashes*: the effect then comes at once, later, or never.

A question about a step may be slow, get no answer, or "cannot tell". **Later is not ever**: a call lands
within ``settle`` of when its caller stopped waiting, and a caller that dies without a word counts as
waiting until the step's deadline. That is what ``settle`` states about the provider; a call that lands
after it, at a provider that honours no keys, doubles, and nothing on our side could prevent that.

**What is promised** (checked by `ledger` at every step): an effect happens under a claim; it is executed
again only if the earlier attempt crashed, lost its lease or failed, so that a provider that honours the
downstream key counts it once; a record is taken over only after its lease, is never changed or deleted
by an attempt that was superseded, and never once completed; renewals stop at the deadline; a message is
acknowledged only with a completed record, and the caller has the recorded result; other content is
never processed under a key that is taken; every message is settled in the end, and none goes round for
ever; an inbox commits once, its marker with its document.

Of named steps (by `stepwise` and `books`): each happens at most once, whatever the policy, and once when
the record is completed; a step that is recorded as done stays so, with its result, and is not called
again; a call begins only under a claim whose lease outlives its deadline; no policy acts, by question,
call or quarantine, before the takeover is written, nor while an earlier call may still land; what may
have happened is never deleted or released, and stays uncertain for as long as it may land; a record is
quarantined only where the policy says so, names the step, and its messages are dead-lettered with the
reason.

**What is not explored.** More than one key; what the real services' SDKs do; a record that is lost or
read stale; an event loop that is blocked by a handler; clocks that disagree; a first arrival with
others between its first call and its answer (nobody could tell); pauses that end earlier than asked;
threads, which go on past every deadline; what an operator does. A claim may land after its message was
dead-lettered as a mismatch: it runs nothing and its lease ends, but until somebody releases it the key
is taken by that content. No store can take such a request back. A handler that raises after its
effect, with no effect declared, lets the record be deleted: that the effect happened is then
forgotten, which is what declared effects are for.

**How to read a trace.** Each line: number, virtual time, delivery (``B#2`` is the second delivery of
message B), what it asked for, what came of it. Lines with FAULT are the faults; "request 9 may land
later" comes back as "request 9 lands late"; the last line names the promise that does not hold.
`replay` runs a violation's choices again, up to any of them, and tells what might follow.

**Why merging states is sound.** Everything between two decisions is deterministic, so where a delivery
stands follows from what it was told; that, the store's content, times relative to now, late requests
and what the promises still need are compared. A delivery without an attempt is taken to decide by what
it read last, as the decision table says, and to remember what kind of record it took over. Every replay
is compared with the state it came from, so that a consumer with another source of chance is refused,
not explored wrongly.
"""

from .plan import Plan
from .scenario import CONSUMER, KEY, Form, Message, Scenario
from .scenarios import DEFAULT, QUICK, in_steps
from .search import Exploration, Replay, Violation, explore, replay, simplest
from .situation import Choice

__all__ = [
    "CONSUMER",
    "DEFAULT",
    "KEY",
    "QUICK",
    "Choice",
    "Exploration",
    "Form",
    "Message",
    "Plan",
    "Replay",
    "Scenario",
    "Violation",
    "explore",
    "in_steps",
    "replay",
    "simplest",
]
