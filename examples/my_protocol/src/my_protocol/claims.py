"""What is claimed of the sequencer in numbers: `amcast claims sequencer` measures it."""

from typing import Final

from amcast.claims.measures import collision_free
from amcast.claims.scenario import Claims, Scenario, deltas

PAPER: Final = "docs/adding-a-protocol.md"
CLAIMS: Final = Claims(
    "sequencer",
    (
        Scenario("latency to the sequencer's own group", "The protocol", deltas(1), collision_free(1), PAPER),
        Scenario("latency to four groups", "The protocol", deltas(2), collision_free(4), PAPER),
    ),
)
