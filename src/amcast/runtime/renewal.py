"""What a node reads again while it runs, on SIGHUP: certificates and CA, and what clients may do.

All of it is read before any of it is used, so that a file that is half written or wrong changes nothing. New
connections are judged by the new certificates; those that are there stay. Clients are judged anew at once: requests
that were taken stay taken, and who is in the file no more is sent away. All else in the file is for the next start.
"""

from dataclasses import replace
from ssl import SSLContext
from typing import TYPE_CHECKING

from amcast.errors import UsageError
from amcast.runtime.config import load_config
from amcast.runtime.tls import renew

if TYPE_CHECKING:
    from amcast.runtime.node import Node


def read_again(node: "Node", contexts: list[SSLContext]) -> None:
    """Go by the files as they are now; say in the log if they cannot be used."""
    try:
        config = replace(node.config, clients=load_config(node.config.path).clients)
        for context in contexts:
            renew(context, config, node.me.name)
    except UsageError as error:
        node.log.error("clients and certificates not read again", reason=str(error))
        return
    node.config = config
    node.serving.look_again()
    node.log.info("clients and certificates read again", clients=len(config.clients), certificates=len(contexts))
