"""Every exception that amcast raises on purpose.

AmcastError
├── UsageError              the caller's mistake: one clear line, exit code 2
│   ├── TopologyError       groups, replicas or processes that cannot be
│   ├── TraceError          a trace that cannot be read or written
│   └── WireError           bytes that are not a message
├── MulticastFailed         this multicast will not be delivered anywhere
├── OutcomeUnknown          the deadline passed: this multicast may have been delivered, or may still be
└── InvariantViolation      a protocol broke an invariant of its paper: a bug, never the user's fault
"""


class AmcastError(Exception):
    """Base of all errors raised by amcast."""


class UsageError(AmcastError):
    """Input that cannot be used: says what was seen, what was expected and what to do."""


class TopologyError(UsageError):
    """An impossible set of groups, replicas, clients or destinations."""


class TraceError(UsageError):
    """A trace that cannot be read, is malformed, or cannot be written."""


class WireError(UsageError):
    """Bytes that do not decode to a message."""


class MulticastFailed(AmcastError):
    """The multicast is not delivered and will not be."""


class OutcomeUnknown(AmcastError):
    """Nobody answered by the deadline: the multicast may have been delivered, or may be later."""


class InvariantViolation(AmcastError):
    """A numbered invariant of a paper does not hold in a run."""
