"""What must hold of the histories of Maelstrom's workloads: each check gives its complaints, none if all is well."""

import json
import math
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

from tests.apps.maelstrom_driver import Body, Op

MISSING = object()


def known(ops: list[Op], *kinds: str) -> list[Op]:
    """The ones with an answer that is no error."""
    return [op for op in ops if op.request["type"] in kinds and op.reply is not None and op.reply["type"] != "error"]


# broadcast


def check_broadcast(history: list[Op], final: dict[str, list[Any]]) -> list[str]:
    sent = {json.dumps(op.request["message"]) for op in history if op.request["type"] == "broadcast"}
    acknowledged = {json.dumps(op.request["message"]) for op in known(history, "broadcast")}
    found = []
    for node, messages in final.items():
        values = [json.dumps(message) for message in messages]
        found += [f"{node} lacks {value}" for value in sorted(acknowledged - set(values))]
        found += [f"{node} has {value}, which nobody sent" for value in sorted(set(values) - sent)]
        if len(set(values)) != len(values):
            found.append(f"{node} has a message twice")
    return found


# lin-kv


def after(value: object, op: Op) -> tuple[bool, object]:
    """Whether this can be the next to happen to a register, and the register after it."""
    kind, request, reply = op.request["type"], op.request, op.reply
    code = reply.get("code") if reply is not None else None
    if kind == "read":
        fits = reply is None or (value is MISSING if code == 20 else value == reply.get("value", MISSING))
        return fits, value
    if kind == "write":
        return True, request["value"]
    if reply is None:
        return True, request["to"] if value == request["from"] else value
    if code == 20:
        return value is MISSING, value
    if code == 22:
        return value is not MISSING and value != request["from"], value
    return value == request["from"], request["to"]


def register_is_linearizable(ops: list[Op]) -> bool:
    """A search for an order that respects real time; what nobody knows to have happened may be left out."""
    ops = sorted(ops, key=lambda op: op.invoked)
    must = sum(1 << i for i, op in enumerate(ops) if op.reply is not None)
    seen: set[tuple[int, object]] = set()
    stack: list[tuple[int, object]] = [(0, MISSING)]
    while stack:
        done, value = stack.pop()
        if done & must == must:
            return True
        if (done, value) in seen:
            continue
        seen.add((done, value))
        first_return = min(op.returned for i, op in enumerate(ops) if not done >> i & 1)
        for i, op in enumerate(ops):
            if op.invoked > first_return:
                break
            if not done >> i & 1:
                fits, then = after(value, op)
                if fits:
                    stack.append((done | 1 << i, then))
    return False


def check_registers(history: list[Op]) -> list[str]:
    keys: dict[Any, list[Op]] = defaultdict(list)
    for op in history:
        keys[op.request["key"]].append(op)
    wrong = [key for key, ops in keys.items() if not register_is_linearizable(ops)]
    return [f"key {key}: {len(keys[key])} operations in no order" for key in wrong]


# txn-list-append


def appends(op: Op) -> list[tuple[Any, Any]]:
    return [(key, value) for kind, key, value in op.request["txn"] if kind == "append"]


def reads_before_own_appends(op: Op) -> tuple[dict[Any, list[Any]], list[str]]:
    """The list that a transaction found under each key that it read, its own appends taken off."""
    assert op.reply is not None
    found: dict[Any, list[Any]] = {}
    own: dict[Any, list[Any]] = defaultdict(list)
    problems = []
    for (kind, key, value), (_, _, result) in zip(op.request["txn"], op.reply["txn"], strict=True):
        if kind == "append":
            own[key].append(value)
            continue
        seen = list(result or [])
        before = seen[: len(seen) - len(own[key])]
        if before + own[key] != seen or found.setdefault(key, before) != before:
            problems.append(f"{op.request['txn']} does not see its own appends to {key}: {seen}")
    return found, problems


def check_lists(history: list[Op], final: dict[Any, list[Any]]) -> list[str]:
    """Strict serializability: no cycle among what follows from the lists and from real time."""
    problems = [f"an element twice in {values}" for values in final.values() if len(set(values)) < len(values)]
    writer: dict[tuple[Any, Any], int] = {}
    happened: list[Op] = []
    for op in history:
        present = [value in final.get(key, []) for key, value in appends(op)]
        if op.reply is None and not any(present):
            continue
        if not all(present):
            problems.append(f"{appends(op)}: in the end, there is {present}")
        for append in appends(op):
            writer[append] = len(happened)
        happened.append(op)
    problems += [f"nobody appended {v} to {k}" for k, values in final.items() for v in values if (k, v) not in writer]
    before: dict[int, set[int]] = {i: set() for i in range(len(happened))}  # transaction -> those before it
    for key, values in final.items():
        for one, other in pairwise(values):
            if (key, one) in writer and (key, other) in writer:
                before[writer[key, other]].add(writer[key, one])
    for i, op in enumerate(happened):
        if op.reply is None:
            continue
        found, own = reads_before_own_appends(op)
        problems += own
        for key, values in found.items():
            whole = final.get(key, [])
            if whole[: len(values)] != values:
                problems.append(f"{values} under {key} is no prefix of {whole}")
                continue
            if values and (key, values[-1]) in writer:
                before[i].add(writer[key, values[-1]])
            if len(values) < len(whole) and (key, whole[len(values)]) in writer:
                before[writer[key, whole[len(values)]]].add(i)
    for i, op in enumerate(happened):
        before[i] |= {j for j, other in enumerate(happened) if other.returned < op.invoked}
        before[i].discard(i)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        problems.append(f"a cycle: {[happened[i].request['txn'] for i in error.args[1]]}")
    return problems


# kafka


def check_logs(history: list[Op], final: dict[str, list[tuple[int, Any]]]) -> list[str]:
    """Offsets unique and in the order of real time, polls without gaps, nothing acknowledged lost, commits kept."""
    problems = []
    at: dict[tuple[str, int], Any] = {(key, offset): msg for key, rows in final.items() for offset, msg in rows}
    sends = known(history, "send")
    for op in sends:
        assert op.reply is not None
        place = op.request["key"], op.reply["offset"]
        if at.get(place, MISSING) != op.request["msg"]:
            problems.append(f"{op.request['msg']} was sent to {place}, where there is {at.get(place)}")
    for one in sends:
        for other in sends:
            if one.request["key"] == other.request["key"] and one.returned < other.invoked:
                assert one.reply is not None and other.reply is not None
                if one.reply["offset"] >= other.reply["offset"]:
                    problems.append(f"offset {other.reply['offset']} of {other.request} after {one.reply['offset']}")
    attempted = {(op.request["key"], op.request["msg"]) for op in history if op.request["type"] == "send"}
    stored = [(key, msg) for key, rows in final.items() for _, msg in rows]
    if len(set(stored)) != len(stored):
        problems.append("a message is there twice")
    problems += [f"nobody sent {entry}" for entry in stored if entry not in attempted]
    for op in known(history, "poll"):
        assert op.reply is not None
        for key, rows in op.reply["msgs"].items():
            first = op.request["offsets"][key]
            if [offset for offset, _ in rows] != list(range(first, first + len(rows))):
                problems.append(f"a poll of {key} from {first} gave {rows}")
            problems += [f"{key} at {o}: polled {m}, is {at.get((key, o))}" for o, m in rows if at.get((key, o)) != m]
    return problems + check_commits(history)


def check_commits(history: list[Op]) -> list[str]:
    problems = []
    commits = [op for op in history if op.request["type"] == "commit_offsets"]
    for op in known(history, "list_committed_offsets"):
        assert op.reply is not None
        for key in op.request["keys"]:
            listed = op.reply["offsets"].get(key, -1)
            least = highest([c for c in commits if c.returned < op.invoked], key)
            most = highest([c for c in commits if c.invoked < op.returned], key)
            if not least <= listed <= most:
                problems.append(f"{key} is committed up to {listed}, expected {least} to {most}")
    return problems


def highest(commits: list[Op], key: str) -> int:
    return max((op.request["offsets"].get(key, -1) for op in commits), default=-1)


# histories made by hand


def op(request: Body, reply: Body | None, invoked: float, returned: float = math.inf) -> Op:
    return Op("n0", request, reply, invoked, returned)
