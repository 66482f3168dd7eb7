"""An event in one line, as a person would say it."""

from amcast.core.trace import Event

_VERBS = {
    "multicast": "multicasts",
    "deliver": "delivers",
    "optdeliver": "delivers optimistically",
    "crash": "crashes",
    "restart": "comes back",
    "leader": "leads",
    "start": "starts",
}


def described(event: Event, most: int = 3) -> str:
    """Say what happened, without where: `sends Accept to g0/1, about c0:1`."""
    match event.kind:
        case "send":
            return f"sends {event.type} to {event.peer}{_about(event, most)}"
        case "receive":
            return f"receives {event.type} from {event.peer}{_about(event, most)}"
    verb = _VERBS.get(event.kind, event.kind)
    if event.kind == "multicast":
        return f"{verb} {event.message} to {', '.join(event.dest or ())}"
    return f"{verb} {event.message}" if event.message is not None else verb


def _about(event: Event, most: int) -> str:
    names = event.about or ()
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f", about {', '.join(names[:most])}{more}" if names else ""
