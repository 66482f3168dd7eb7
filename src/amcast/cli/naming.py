"""Names that users type, looked up with a hint at what they may have meant."""

from difflib import get_close_matches

from amcast.core.process import Protocol
from amcast.errors import UsageError


def protocol_named(name: str) -> Protocol:
    """The protocol with this name; UsageError, with the closest names, if there is none."""
    from amcast.protocols import PROTOCOLS

    found = PROTOCOLS.get(name)
    if found is not None:
        return found
    close = get_close_matches(name.lower().replace("-", "_"), PROTOCOLS, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"expected one of {', '.join(PROTOCOLS)};"
    raise UsageError(f"unknown protocol {name!r}: {hint} 'amcast protocols' lists them")
