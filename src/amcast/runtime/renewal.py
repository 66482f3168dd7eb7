"""What a node reads again while it runs, on SIGHUP: certificates and CA, and what clients may do.

All of it is read before any of it is used, so that a file that is half written or wrong changes nothing. New
connections go by the new certificates, and trust the CAs that are in their file now and no others. Of the connections
that are there, those end whose other end has its certificate from a CA that was dropped; the others stay. Clients are
judged anew at once: requests that were taken stay taken, and who is in the file no more is sent away. All else in the
file is for the next start.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cryptography.x509 import Certificate

from amcast.errors import UsageError
from amcast.runtime.certificates import read_certificates
from amcast.runtime.config import load_config
from amcast.runtime.tls import Renewable, trusted

if TYPE_CHECKING:
    from amcast.runtime.node import Node


def read_again(node: "Node", contexts: Sequence[Renewable]) -> None:
    """Go by the files as they are now; say in the log if they cannot be used."""
    try:
        config = replace(node.config, clients=load_config(node.config.path).clients)
        authorities = read_certificates(config.tls.ca) if config.tls is not None else []
        made = [context.make() for context in contexts]
    except UsageError as error:
        node.log.error("clients and certificates not read again", reason=str(error))
        return
    node.config = config
    dropped = [context.take(new) for context, new in zip(contexts, made, strict=True)]
    node.serving.look_again()
    if any(dropped):
        hang_up(node, authorities)
    node.log.info("clients and certificates read again", clients=len(config.clients), certificates=len(contexts))


def hang_up(node: "Node", authorities: list[Certificate]) -> None:
    """End the connections to all who could not come again with the certificate that they have shown."""
    accepted = [*node.serving.sessions.values(), *node.incoming.here]
    dialled = [link.connection for link in node.links.values() if link.connection is not None]
    gone = [end.transport for end in accepted if not trusted(end.transport, authorities)]
    gone += [end.transport for end in dialled if not trusted(end.transport, authorities)]
    for transport in gone:  # without a word: whoever has a newer certificate comes back
        transport.abort()
    node.serving.door.drop_all()  # who is half-way in came by what was trusted before
    node.incoming.door.drop_all()
