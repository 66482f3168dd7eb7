"""What a failing seed leaves behind: its moves, as few as still fail, and the full trace of these."""

import time
from collections.abc import Sequence
from pathlib import Path

from amcast.core.protocol import Protocol
from amcast.protocols import protocol
from amcast.swarm.adversary.moves import Move, spell
from amcast.swarm.adversary.seeds import Run, moves_of, outcome_of, play

LONGEST = 20.0  # seconds that shortening may take


def failure_class(problem: str) -> str:
    """Return what kind of failure this is: the property that is violated, or the error up to its first name."""
    return problem.partition(":")[0]


def shorten(table: Protocol, seed: int, moves: Sequence[Move], seconds: float = LONGEST) -> Run:
    """Leave out moves, many at a time first, as long as the run fails in the same way; return the shortest run."""
    best = play(table, seed, moves=moves)
    wanted = failure_class(outcome_of(best).problem)
    assert wanted, f"seed {seed} does not fail with these {len(moves)} moves"
    stop = time.monotonic() + seconds
    size = max(1, len(best.machine.moves) // 2)
    while True:
        at, before = 0, len(best.machine.moves)
        while at < len(best.machine.moves):
            if time.monotonic() > stop:
                return best
            made = best.machine.moves
            tried = play(table, seed, moves=made[:at] + made[at + size :])
            shorter = len(tried.machine.moves) < len(made)
            if shorter and failure_class(outcome_of(tried).problem) == wanted:
                best = tried
            else:
                at += size
        if size > 1:
            size //= 2
        elif len(best.machine.moves) == before:
            return best


def keep_failing_moves(plan: str, name: str, seed: int, folder: Path) -> str:
    """Write moves.txt, the shortest list of moves that was found to fail, and the full trace of them."""
    from amcast.tracefile import ParquetRecorder, prepare_out  # needs pyarrow, which no other part of a swarm does

    prepare_out(folder, force=True)
    table = protocol(name)
    drawn = play(table, seed, moves=moves_of(table, seed, plan) if plan else None)
    shortest = shorten(table, seed, drawn.machine.moves)
    outcome, topology = outcome_of(shortest), shortest.machine.topology
    with ParquetRecorder(folder, full=True) as recorder:
        told = play(table, seed, recorder, shortest.machine.moves).machine.told
    head = (
        f"# {name}, seed {seed}: {outcome.problem}\n# {outcome.config}\n"
        f"# {len(shortest.machine.moves)} of {len(drawn.machine.moves)} moves; then the calm\n"
        f"# replay: amcast swarm {name} --adversary --seeds 1 --first-seed {seed} --plan {folder / 'moves.txt'}\n"
    )
    lines = [spell(topology, move) for move in shortest.machine.moves]
    body = "".join(f"{line:<24}# {what}\n" if what else f"{line}\n" for line, what in zip(lines, told, strict=True))
    (folder / "moves.txt").write_text(head + body)
    return str(folder)
