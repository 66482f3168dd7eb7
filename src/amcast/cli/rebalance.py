"""`amcast cluster rebalance`: slots of the store go to other groups while it serves."""

import re
from typing import TYPE_CHECKING, Annotated

from typer import Option

from amcast.cli.kv import store_at
from amcast.cli.naming import Cluster
from amcast.cli.output import progress_bar
from amcast.errors import AmcastError, UsageError

if TYPE_CHECKING:
    from amcast.apps.kv.rebalancing import Rebalancing


def rebalance(
    cluster: Cluster,
    onto: Annotated[str | None, Option(metavar="GROUP", help="Who gets slots: as many as are its share.")] = None,
    slots: Annotated[
        int | None, Option(metavar="N", min=0, max=16384, help="How many slots --onto is to own in the end.")
    ] = None,
    from_: Annotated[
        str | None, Option("--from", metavar="GROUP", help="Who gives slots; without --onto: all that it has.")
    ] = None,
    show: Annotated[bool, Option("--show", help="Say who owns how many, and what is unfinished; move none.")] = False,
    client: Annotated[str | None, Option(metavar="NAME", help="Which client of the cluster to be.")] = None,
    timeout: Annotated[float, Option(min=0, help="Seconds for each step, of a few slots.")] = 30.0,
) -> int:
    """Spread the store's slots evenly over all groups, or move some, while it serves.

    It can be interrupted at any time, and the same command goes on.
    """
    from amcast.apps.kv import rebalancing
    from amcast.local.processes import Processes
    from amcast.service import connect

    config = store_at(cluster)
    connected = connect(config.path, client, deadline=timeout)
    groups = connected.config.groups
    target, giver = group_in("--onto", onto, groups), group_in("--from", from_, groups)
    if target is not None and target == giver:
        raise UsageError(f"--onto {onto} --from {from_}: expected two groups")
    if slots is not None and target is None:
        raise UsageError("--slots says how many slots --onto is to own: expected --onto GROUP as well")
    try:
        if show:
            found = rebalancing.rebalance(connected, timeout, None)
        else:
            wish = rebalancing.Wish(target, slots, giver)
            with (
                Processes(config).alone("slots"),
                progress_bar("{task.completed:,.0f} of {task.total:,.0f} slots") as bar,
            ):
                task = bar.add_task("moving", total=None)

                def progress(done: int, total: int) -> None:
                    bar.update(task, completed=done, total=total)

                found = rebalancing.rebalance(connected, timeout, wish, print, progress)
    except UsageError:
        raise
    except AmcastError as error:
        raise AmcastError(f"{error}; the same command goes on") from error
    print_owners(found)
    return 0


def print_owners(found: "Rebalancing") -> None:
    from amcast.apps.kv.rebalancing import owned_slots

    print(", ".join(f"g{group}: {count} slots" for group, count in owned_slots(found.slots).items()))
    for line in found.unfinished():
        print(f"under way: {line}; 'amcast cluster rebalance' goes on")


def group_in(option: str, name: str | None, groups: tuple[int, ...]) -> int | None:
    if name is None:
        return None
    if not re.fullmatch(r"g\d{1,4}", name) or int(name[1:]) not in groups:
        raise UsageError(f"{option} {name}: no such group; expected one of {', '.join(f'g{g}' for g in groups)}")
    return int(name[1:])
