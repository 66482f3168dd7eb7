"""Rows of the table of protocols: atomic broadcast to one group, without a leader."""

from typing import Final

from amcast.core.process import Factory, Protocol
from amcast.core.wire import Message
from amcast.protocols import lcr
from amcast.protocols.allconcur import allconcur, allconcur_plus, allgather
from amcast.protocols.allconcur import messages as allconcur_messages
from amcast.protocols.allconcur.rounds import RoundClient

F_CRASHES: Final = "f crashes, G_R of degree f + 1"


def row(
    name: str,
    title: str,
    replica: Factory,
    messages: tuple[type[Message], ...],
    tolerates: str,
    latency: str,
    detector: str,
    uniform: bool = True,
) -> Protocol:
    return Protocol(
        name=name,
        title=title,
        replica=replica,
        client=RoundClient,
        order="total",
        tolerates=tolerates,
        latency=latency,
        messages=messages,
        broadcast=True,
        single_group=True,
        detector=detector,
        reliable_links=True,
        uniform=uniform,
        joins=name.startswith("allconcur"),
    )


PLUS: Final = allconcur_messages.MESSAGES
ROWS: Final = (
    row("allgather", "AllGather", allgather.AllGather, allgather.MESSAGES, "no failure", "tree depth", ""),
    row("allconcur", "AllConcur", allconcur.AllConcur, PLUS, F_CRASHES, "diameter of G_R", "P"),
    row(
        "allconcur_ea", "AllConcur with eventual accuracy", allconcur.AllConcurEA, allconcur.MESSAGES,
        f"{F_CRASHES}; suspicions", "2 diameters of G_R", "◇P",
    ),
    row(
        "allconcur_plus", "AllConcur+", allconcur_plus.AllConcurPlus, PLUS,
        f"{F_CRASHES}; not uniform", "2 tree depths", "P", uniform=False,
    ),
    row(
        "allconcur_plus_uniform", "AllConcur+, uniform", allconcur_plus.AllConcurPlusUniform, PLUS,
        f"{F_CRASHES}, a minority", "2 tree depths + 1", "P",
    ),
    row(
        "allconcur_plus_rerun", "AllConcur+, rerunning reliably", allconcur_plus.AllConcurPlusRerun, PLUS,
        f"{F_CRASHES}; not uniform", "2 tree depths", "P", uniform=False,
    ),
    row(
        "allconcur_plus_merge", "AllConcur+, rerunning in one round", allconcur_plus.AllConcurPlusMerge, PLUS,
        f"{F_CRASHES}; not uniform", "2 tree depths", "P", uniform=False,
    ),
    row(
        "allconcur_plus_ea", "AllConcur+ with eventual accuracy", allconcur.AllConcurPlusEA, allconcur.MESSAGES,
        f"{F_CRASHES}; suspicions", "2 tree depths and more", "◇P",
    ),
    row("lcr", "LCR", lcr.Lcr, lcr.MESSAGES, "any number of crashes, with P", "2(n - 1)", "P"),
)  # fmt: skip
BROADCASTS: Final[dict[str, Protocol]] = {protocol.name: protocol for protocol in ROWS}
