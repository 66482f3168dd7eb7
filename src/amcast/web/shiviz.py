"""A run as a log for ShiViz: vector clocks, two lines per event. Its parser is quadratic, so the log is short."""

import json
from typing import Final

from amcast.web.runs import LOST, DrawnRun
from amcast.web.sentences import described

MOST_EVENTS: Final = 2_000
PATTERN: Final = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"


def shiviz_log(run: DrawnRun) -> str:
    """Return the log of the first events of a run, which are causally complete."""
    hosts = {name: "_".join(name.split()) for name in run.processes}
    source = {end: start for start, end in run.arrows if end != LOST}
    clocks: dict[str, dict[str, int]] = {name: {} for name in run.processes}
    of_event: dict[int, dict[str, int]] = {}
    lines: list[str] = []
    for place, event in enumerate(run.events[:MOST_EVENTS]):
        clock = clocks[event.process]
        for host, count in of_event.get(source.get(place, LOST), {}).items():
            clock[host] = max(clock.get(host, 0), count)
        here = hosts[event.process]
        clock[here] = clock.get(here, 0) + 1
        of_event[place] = dict(clock)
        lines += [f"{here} {json.dumps(clock)}", described(event)]
    return "\n".join(lines) + "\n"
