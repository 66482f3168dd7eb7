"""Guards the rules of ARCHITECTURE.md and STYLE.md that a machine can check.

A rule is a function from a parsed file to complaints. RULES says where each one holds; EXAMPLES shows for each one a
snippet that it must reject and the nearest one that it must accept, so that no rule passes by being blind.
"""

import ast
import builtins
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import amcast.errors
from amcast.apps import APPLICATIONS
from amcast.checks import PROPERTIES
from amcast.protocols import PROTOCOLS
from tests.pace import allow

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "amcast"


@dataclass(frozen=True)
class File:
    path: str  # below src/amcast, with slashes
    text: str
    tree: ast.Module


def parsed(path: str, text: str) -> File:
    return File(path, text, ast.parse(text))


Complaints = Iterator[tuple[int, str]]
Rule = Callable[[File], Complaints]

# ---------------------------------------------------------------- imports and calls


def imports(file: File) -> Iterator[tuple[int, str]]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, node.module or ""


def imports_of(file: File, banned: frozenset[str]) -> Complaints:
    return ((line, f"imports {name}") for line, name in imports(file) if name.split(".")[0] in banned)


CLOCKS_RANDOMNESS_IO = frozenset(
    "asyncio builtins concurrent ctypes datetime fcntl fileinput glob http importlib inspect io logging mmap "
    "multiprocessing os pathlib platform queue random sched secrets select selectors shutil signal socket sqlite3 ssl "
    "subprocess sys tempfile threading time urllib uuid weakref zoneinfo".split()
)


def no_clock_randomness_or_io(file: File) -> Complaints:
    yield from imports_of(file, CLOCKS_RANDOMNESS_IO)
    yield from calls_of(file, frozenset({"open", "print", "input", "id", "breakpoint"}))
    hashes = [node for node in ast.walk(file.tree) if isinstance(node, ast.FunctionDef) and node.name == "__hash__"]
    for line, complaint in calls_of(file, frozenset({"hash"})):
        if not any(node.lineno <= line <= (node.end_lineno or 0) for node in hashes):
            yield line, complaint


# What a node, a client or a gateway sees of the world, it sees by its Machine and its event loop. Constants of these
# modules are no way out of it.
BESIDE_THE_MACHINE = frozenset("fcntl glob mmap os random secrets shutil socket tempfile time uuid".split())
OF_PATHS = frozenset(
    "chmod exists glob is_dir is_file iterdir mkdir open read_bytes read_text rename replace rglob rmdir stat touch "
    "unlink write_bytes write_text".split()
)
HARMLESS = frozenset({"os.strerror", "os.getpid"})  # the words for an error; what operators call this process


def the_machine_alone(file: File) -> Complaints:
    modules = set()
    for node in ast.walk(file.tree):
        match node:
            case ast.Import(names=names):
                modules |= {alias.asname or alias.name for alias in names if alias.name in BESIDE_THE_MACHINE}
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] in BESIDE_THE_MACHINE:
                for alias in names:
                    if not alias.name.isupper():
                        yield node.lineno, f"imports {alias.name} of {module}: use the Machine"
    for node in ast.walk(file.tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in modules:
                if f"{name}.{attr}" not in HARMLESS:
                    yield node.lineno, f"uses {name}.{attr}: use the Machine"
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in OF_PATHS and names_a_path(value):
                yield node.lineno, f"calls {attr}() of a path: use the Machine's files"
            case ast.Call(func=ast.Name(id="open")):
                yield node.lineno, "calls open(): use the Machine's files"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="datetime"), attr="now" | "today" | "utcnow")):
                yield node.lineno, "reads the clock: use the Machine's"


def names_a_path(node: ast.expr) -> bool:
    """Return whether this looks like a path: `folder / name`, or something called so."""
    match node:
        case ast.BinOp(op=ast.Div()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_") in {"path", "folder", "file", "parent", "temporary", "aside", "data", "Path"}
        case ast.Call(func=ast.Name(id="Path")):
            return True
    return False


def calls_of(file: File, banned: frozenset[str]) -> Complaints:
    for node in ast.walk(file.tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in banned:
                yield node.lineno, f"calls {name}()"


YAML_THAT_RUNS_CODE = {"load", "load_all", "unsafe_load", "unsafe_load_all", "full_load", "full_load_all"}


def no_code_from_data(file: File) -> Complaints:
    yield from imports_of(file, frozenset({"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}))
    yield from calls_of(file, frozenset({"eval", "exec", "compile", "__import__"}))
    for node in ast.walk(file.tree):
        match node:
            case ast.Attribute(value=ast.Name(id="yaml"), attr=name) if name in YAML_THAT_RUNS_CODE:
                yield node.lineno, f"uses yaml.{name}"
            case ast.ImportFrom(module="yaml", names=names) if YAML_THAT_RUNS_CODE & {alias.name for alias in names}:
                yield node.lineno, "imports a loader of yaml that runs code"


def pyspark_only_in_spark(file: File) -> Complaints:
    return imports_of(file, frozenset({"pyspark"}))


def asyncio_only_in_runtime_apps_web(file: File) -> Complaints:
    return imports_of(file, frozenset({"asyncio", "uvloop"}))


# ---------------------------------------------------------------- iteration over sets

SET_NAMES = {"set", "frozenset", "Set", "FrozenSet", "AbstractSet", "MutableSet"}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}
OF_SETS_METHODS = {"get", "setdefault", "pop"}
ORDER_FREE = {"sorted", "set", "frozenset", "any", "all", "sum", "len", "min", "max"}
ORDERED = {"list", "tuple", "enumerate", "iter", "deque", "zip", "map", "filter", "reversed", "dict", "fromkeys"}
REASON = re.compile(r"# any order: \w")


def head(annotation: ast.expr | None) -> str:
    """set of set[int], collections.abc.Set or "set[int]"; of X | None the X."""
    match annotation:
        case ast.Constant(value=str(text)):
            return head(ast.parse(text, mode="eval").body)
        case ast.Subscript(value=value, slice=slice_) if head(value) in {"Final", "ClassVar", "Optional", "Annotated"}:
            return head(slice_.elts[0] if isinstance(slice_, ast.Tuple) else slice_)
        case ast.Subscript(value=value):
            return head(value)
        case ast.BinOp(left=left, right=right):
            return head(left) if head(left) != "None" else head(right)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return "None"


def element(annotation: ast.expr | None) -> ast.expr | None:
    """The type of what is looked up in a dict[K, V] or list[V]: V."""
    match annotation:
        case ast.Constant(value=str(text)):
            return element(ast.parse(text, mode="eval").body)
        case ast.Subscript(slice=slice_) if head(annotation) in {"dict", "defaultdict", "list", "Mapping", "Sequence"}:
            return slice_.elts[-1] if isinstance(slice_, ast.Tuple) else slice_
        case ast.Subscript(slice=slice_) if head(annotation.value) in {"Final", "ClassVar"}:
            return element(slice_)
    return None


class SetIteration(ast.NodeVisitor):
    """Best effort by what is written in the file: annotations, literals, and names assigned from them."""

    def __init__(self, file: File) -> None:
        self.found: list[tuple[int, str]] = []
        self.lines = file.text.splitlines()
        self.attributes: dict[str, ast.expr] = {}  # of any class here: name -> annotation
        self.functions: dict[str, ast.expr] = {}  # name -> annotated result
        self.scopes: list[dict[str, ast.expr]] = [{}]  # name -> annotation, or the set expression assigned
        for node in ast.walk(file.tree):
            match node:
                case ast.ClassDef(body=body):
                    for part in body:
                        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                            self.attributes[part.target.id] = part.annotation
                case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation):
                    self.attributes[name] = annotation
                case ast.FunctionDef(name=name, returns=ast.expr() as returns):
                    self.functions[name] = returns
        for node in ast.walk(file.tree):
            match node:
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=value) if name not in self.attributes:
                    if self.is_set(value):
                        self.attributes[name] = ast.Name("set")
        self.visit(file.tree)

    def annotation(self, node: ast.expr) -> ast.expr | None:
        match node:
            case ast.Name(id=name):
                return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)
            case ast.Attribute(attr=name):
                return self.attributes.get(name)
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                return self.functions.get(name)
            case ast.Subscript(value=value):
                return element(self.annotation(value))
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in OF_SETS_METHODS:
                return element(self.annotation(value))
        return None

    def is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=ast.Name(id="set" | "frozenset")):
                return True
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in SET_METHODS and self.is_set(value):
                return True
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
                return any(self.is_set(side) or self.is_keys(side) for side in (left, right))
            case ast.BoolOp(values=values):
                return any(self.is_set(value) for value in values)
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_set(body) or self.is_set(orelse)
            case ast.NamedExpr(value=value):
                return self.is_set(value)
        return head(self.annotation(node)) in SET_NAMES

    @staticmethod
    def is_keys(node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"

    def check(self, iterated: ast.expr, how: str) -> None:
        if self.is_set(iterated) and not REASON.search(self.lines[iterated.lineno - 1]):
            self.found.append((iterated.lineno, f"{how} a set, {ast.unparse(iterated)}: wrap it in sorted()"))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        self.scopes.append({argument.arg: argument.annotation for argument in arguments if argument.annotation})
        self.generic_visit(node)
        self.scopes.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.scopes[-1][node.target.id] = node.annotation
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.scopes[-1].pop(target.id, None)
                if self.is_set(node.value):
                    self.scopes[-1][target.id] = ast.Name("set")
                elif annotation := self.annotation(node.value):
                    self.scopes[-1][target.id] = annotation
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self.check(node.iter, "iterates over")
        match node.target, node.iter:  # for x in d.values(), for k, x in d.items()
            case (
                (ast.Name(id=name), ast.Call(func=ast.Attribute(value=mapping, attr="values")))
                | (ast.Tuple(elts=[_, ast.Name(id=name)]), ast.Call(func=ast.Attribute(value=mapping, attr="items")))
            ):  # fmt: skip
                if annotation := element(self.annotation(mapping)):
                    self.scopes[-1][name] = annotation
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp | ast.DictComp | ast.GeneratorExp) -> None:
        for generator in node.generators:
            self.check(generator.iter, "iterates over")
        self.generic_visit(node)

    visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_Starred(self, node: ast.Starred) -> None:
        self.check(node.value, "unpacks")
        self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> None:
        for part in node.elts:  # {*a, *b} is a set again
            self.visit(part.value if isinstance(part, ast.Starred) else part)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in ORDERED:
                for argument in node.args:
                    self.check(argument, f"{name}() of")
            case ast.Call(func=ast.Name(id="min" | "max"), keywords=[_, *_]):
                for argument in node.args:
                    self.check(argument, "a tie in min() or max() with a key picks by the order of")
            case ast.Call(func=ast.Attribute(attr="join" | "extend" | "extendleft" | "fromkeys"), args=[argument, *_]):
                self.check(argument, "iterates over")
            case ast.Call(func=ast.Attribute(value=value, attr="pop"), args=[]):
                self.check(value, "takes any element of")
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        free = name in ORDER_FREE and (name == "sorted" or not node.keywords)
        for part in ast.iter_child_nodes(node):
            if free and isinstance(part, ast.GeneratorExp | ast.ListComp):
                self.generic_visit(part)
            else:
                self.visit(part)


def no_iteration_over_sets(file: File) -> Complaints:
    return iter(SetIteration(file).found)


# ---------------------------------------------------------------- size and names

# Advice, not limits: what is longer because it is one idea stands here, with that idea. An entry that is needed no more
# is a complaint, too.
FILE_LINES = 600
LONG_FILES: dict[str, str] = {
    "runtime/client.py": "the client of a cluster: what it may be asked, and what it hears of members and leaders",
    "sim/world.py": "the event loop and what can happen to a process: one class whose parts share all of its state",
    "protocols/white_box/replica.py": "Figures 3 and 4 of the White-Box paper, line by line",
    "protocols/primcast/replica.py": "PrimCast, its change of primaries and how replicas come back: one state",
    "protocols/allconcur/allconcur_plus.py": "Algorithms 1 to 6 of its paper, line by line, and its variants",
    "protocols/optimistic/baseline.py": "Algorithm 1 of the paper, with joins, leaves and dead senders: one state",
}
FUNCTION_LINES = 80
LONG_FUNCTIONS: dict[str, str] = {}  # by path:name


def too_long(lines: int, limit: int, name: str, allowed: dict[str, str]) -> Iterator[str]:
    if lines > limit and name not in allowed:
        yield f"has {lines} lines, more than {limit}: split it, or say in tests/test_tidy.py which one idea it is"
    if lines <= limit and name in allowed:
        yield f"has {lines} lines: tests/test_tidy.py need not allow more than {limit} any more"


def small_files(file: File) -> Complaints:
    lines = file.text.count("\n")
    yield from ((lines, complaint) for complaint in too_long(lines, FILE_LINES, file.path, LONG_FILES))


def small_functions(file: File) -> Complaints:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            for complaint in too_long(lines, FUNCTION_LINES, f"{file.path}:{node.name}", LONG_FUNCTIONS):
                yield node.lineno, f"{node.name} {complaint}"


EMPTY_NAMES = re.compile(r"(utils?|helpers?|common|managers?|misc)")


def module_names_say_something(file: File) -> Complaints:
    for part in re.split(r"[/_.]", file.path):
        if EMPTY_NAMES.fullmatch(part):
            yield 1, f"{part!r} says nothing: name it for its one idea"


def nothing_left_to_do(file: File) -> Complaints:
    for number, line in enumerate(file.text.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield number, "a note to do: do it or file an issue"


def no_struct_where_compiled(file: File) -> Complaints:
    """mypyc drops the class keywords of a msgspec.Struct without a word, and the wire format with them."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ClassDef) and any(head(base) == "Struct" for base in node.bases):
            yield node.lineno, f"{node.name} is a msgspec.Struct in a package that mypyc compiles"


def is_error(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, BaseException)


ERRORS = frozenset(
    name for module in (builtins, amcast.errors) for name, found in vars(module).items() if is_error(found)
)


def errors_in_one_tree(file: File) -> Complaints:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ClassDef) and any(head(base) in ERRORS for base in node.bases):
            yield node.lineno, f"{node.name} is an exception: errors.py has all of them, as one tree"


# ---------------------------------------------------------------- the rules on the sources

DETERMINISTIC = ("core/", "protocols/")
COMPILED = frozenset(
    line.removeprefix("src/amcast/") for line in (ROOT / "compiled.txt").read_text().splitlines() if line[:1] not in "#"
)


def everywhere(path: str) -> bool:
    return True


NAMES = (frozenset(PROTOCOLS) | frozenset(APPLICATIONS)) - {"log", *PROPERTIES}  # which are words for other things, too
NAMED_THERE = ("claims/", "report/figures/", "cli/demo.py")  # a paper's claims, its figures and the tour name protocols


def no_decision_by_name(file: File) -> Complaints:
    """Ask what a protocol or an application can do: a comparison with its name leaves out those of other packages."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Compare):
            parts = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
            parts = list(node.args)
        else:
            continue
        for part in parts:
            if isinstance(part, ast.Constant) and part.value in NAMES:
                yield node.lineno, f"decides by the name {part.value!r}: ask for a capability or a field of the row"


# What only the commands run, before a node or beside it, and the machine itself.
NOT_SIMULATED = (
    "runtime/machine.py",
    "runtime/certificates.py",
    "runtime/config.py",
    "runtime/loop.py",
    "apps/kv/users_file.py",
)


RULES: dict[Rule, Callable[[str], bool]] = {
    the_machine_alone: lambda path: path.startswith(("runtime/", "apps/kv/")) and path not in NOT_SIMULATED,
    # Which packages are installed is looked up, but no process sees it.
    no_clock_randomness_or_io: lambda path: path.startswith(DETERMINISTIC) and path != "core/plugins.py",
    no_decision_by_name: lambda path: not path.startswith(NAMED_THERE),
    no_iteration_over_sets: lambda path: path.startswith(DETERMINISTIC),
    no_struct_where_compiled: lambda path: path in COMPILED,
    no_code_from_data: everywhere,
    errors_in_one_tree: lambda path: path not in ("errors.py", "swarm/cluster/jobs.py"),  # Died is no error
    pyspark_only_in_spark: lambda path: not path.startswith("spark/"),
    asyncio_only_in_runtime_apps_web: lambda path: (
        not path.startswith(("runtime/", "apps/", "web/", "local/", "swarm/cluster/"))
    ),
    small_files: everywhere,
    small_functions: everywhere,
    module_names_say_something: everywhere,
    nothing_left_to_do: everywhere,
}


@pytest.fixture(scope="module")
def sources() -> list[File]:
    found = [
        parsed(path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")
    ]
    assert any(file.path.startswith("core/") for file in found)
    return sorted(found, key=lambda file: file.path)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_sources_follow(rule: Rule, sources: list[File]) -> None:
    broken = [
        f"src/amcast/{file.path}:{line}: {complaint}"
        for file in sources
        if RULES[rule](file.path)
        for line, complaint in rule(file)
    ]
    assert not broken, "\n" + "\n".join(broken)


# ---------------------------------------------------------------- each rule can fail

LONG_FUNCTION = "def f():\n" + "    x = 1\n" * FUNCTION_LINES
LONG_FILE = "x = 1\n" * (FILE_LINES + 1)

# s is a set, many a dict of sets, maybe a set or None, row a list; so are the attributes
KNOWN = """
class P:
    many: dict[int, set[int]]
    def __init__(self):
        self.s: Final[set[int]] = g()
        self.row: list[int] = []
        self.guessed = set()
    def some(self) -> set[int]: ...
    def all(self) -> list[int]: ...
    def f(self, s: set[int], many: "dict[int, set[int]]", row: list[int], maybe: set[int] | None = None):
        """

SET_EXAMPLES: list[tuple[str, str]] = [
    ("for x in {1, 2}: pass", "for x in (1, 2): pass"),
    ("for x in set(row): pass", "for x in sorted(set(row)): pass"),
    ("for x in frozenset(row): pass", "for x in dict.fromkeys(row): pass"),
    ("for x in s: pass", "for x in row: pass"),
    ("for x in self.s: pass", "for x in self.row: pass"),
    ("for x in self.guessed: pass", "for x in sorted(self.guessed): pass"),
    ("for x in other.s: pass", "for x in other.row: pass"),
    ("for x in self.some(): pass", "for x in self.all(): pass"),
    ("for x in many[1]: pass", "for x in many: pass"),
    ("for x in self.many.get(1, ()): pass", "for x in self.many.get(1, ()) == s: pass"),
    ("for x in s - self.s: pass", "for x in sorted(s - self.s): pass"),
    ("for x in s.union(row): pass", "for x in row.copy(): pass"),
    ("for x in many.keys() - row: pass", "for x in many.keys(): pass"),
    ("for x in maybe or (): pass", "for x in row or (): pass"),
    ("for k, v in many.items(): list(v)", "for k, v in many.items(): len(v)"),
    ("for v in self.many.values(): tuple(v)", "for v in self.many.values(): sorted(v)"),
    ("a = s; list(a)", "a = s; a = row; list(a)"),
    ("a = set(); enumerate(a)", "a = []; enumerate(a)"),
    ("a: set[int] = g(); next(iter(a))", "a: list[int] = g(); next(iter(a))"),
    ("[x for x in s]", "{x for x in s}"),
    ("{x: 1 for x in s}", "sorted(x for x in s)"),
    ("g(x for x in s)", "any(x for x in s)"),
    ("[*s]", "{*s}"),
    ("max(s, key=g)", "max(s)"),
    ("row.extend(s)", "s.update(s)"),
    ("s.pop()", "row.pop()"),
    ("self.s.pop()", "self.many.pop(1)"),
    ("for x in s: n += x  # any order:", "for x in s: n += x  # any order: a sum"),
]

EXAMPLES: list[tuple[Rule, str, str]] = [  # rule, rejected, accepted
    (the_machine_alone, "import time\nnow = time.time()", "now = machine.clock.wall_ns()"),
    (the_machine_alone, "import os as o\no.fsync(1)", "import os\nos.strerror(1)"),
    (the_machine_alone, "from random import uniform", "from socket import SOCK_STREAM"),
    (the_machine_alone, "from os.path import exists", "from os import O_RDONLY"),
    (the_machine_alone, "open('x')", "files.open(path)"),
    (the_machine_alone, "(folder / 'x').unlink()", "files.remove(folder / 'x')"),
    (the_machine_alone, "self._path.read_bytes()", "self._files.exists(path)"),
    (the_machine_alone, "Path('x').mkdir()", "text.replace('a', 'b')"),
    (the_machine_alone, "datetime.now(UTC)", "datetime.fromtimestamp(now, UTC)"),
    (no_clock_randomness_or_io, "import time", "import math"),
    (no_decision_by_name, "if table.name == 'skeen': ...", "if table.durable: ..."),
    (no_decision_by_name, "x = name in ('baseline', 'fastcast')", "x = name in ('first', 'last')"),
    (no_decision_by_name, "x = name.startswith('allconcur')", "x = name.startswith('g0/')"),
    (no_decision_by_name, "if config.app != 'ledger': ...", "if application(config.app) is not LEDGER: ..."),
    (no_decision_by_name, "match name:\n    case 'lcr': ...", "match name:\n    case 'order': ..."),
    (no_clock_randomness_or_io, "from datetime import datetime", "from dataclasses import dataclass"),
    (no_clock_randomness_or_io, "import random as r", "import heapq as h"),
    (no_clock_randomness_or_io, "import os.path", "import struct"),
    (no_clock_randomness_or_io, "def f():\n    import io", "def f():\n    import bisect"),
    (no_clock_randomness_or_io, "import collections, sys", "import collections, enum"),
    (no_clock_randomness_or_io, "import socket", "from .socket import x"),
    (no_clock_randomness_or_io, "import asyncio", "import itertools"),
    (no_clock_randomness_or_io, "import threading", "import typing"),
    (no_clock_randomness_or_io, "import uuid", "import abc"),
    (no_clock_randomness_or_io, "import secrets", "import zlib"),
    (no_clock_randomness_or_io, "from pathlib import Path", "from typing import Final"),
    (no_clock_randomness_or_io, "import subprocess", "import functools"),
    (no_clock_randomness_or_io, "f = open('x')", "f = door.open('x')"),
    (no_clock_randomness_or_io, "print(1)", "page.print(1)"),
    (no_clock_randomness_or_io, "input()", "self.input()"),
    (no_clock_randomness_or_io, "key = id(x)", "key = x.id"),
    (no_clock_randomness_or_io, "h = hash('a')", "class A:\n    def __hash__(self):\n        return hash(self.n)"),
    *((no_iteration_over_sets, KNOWN + rejected, KNOWN + accepted) for rejected, accepted in SET_EXAMPLES),
    (no_struct_where_compiled, "class A(msgspec.Struct, tag=True): pass", "class A(Message): pass"),
    (no_struct_where_compiled, "class A(Struct): pass", "class Struct: pass"),
    (no_code_from_data, "import pickle", "import msgspec"),
    (no_code_from_data, "from pickle import loads", "from json import loads"),
    (no_code_from_data, "eval('1')", "model.eval()"),
    (no_code_from_data, "exec('1')", "cursor.exec('1')"),
    (no_code_from_data, "compile('1', '', 'eval')", "re.compile('1')"),
    (no_code_from_data, "import yaml\nyaml.load(f)", "import yaml\nyaml.safe_load(f)"),
    (no_code_from_data, "from yaml import load", "import yaml"),
    (errors_in_one_tree, "class A(Exception): pass", "class A(Struct): pass"),
    (errors_in_one_tree, "class A(errors.UsageError): pass", "class UsageError: pass"),
    (pyspark_only_in_spark, "from pyspark.sql import SparkSession", "import pyarrow"),
    (pyspark_only_in_spark, "def f():\n    import pyspark", "def f():\n    import numpy"),
    (asyncio_only_in_runtime_apps_web, "import asyncio", "import heapq"),
    (asyncio_only_in_runtime_apps_web, "from asyncio import Queue", "from queue import Queue"),
    (small_files, LONG_FILE, LONG_FILE.removesuffix("x = 1\n")),
    (small_functions, LONG_FUNCTION, LONG_FUNCTION.removesuffix("    x = 1\n")),
    (small_functions, "class A:\n    async " + LONG_FUNCTION.replace("\n", "\n    ").strip(), "class A: ..."),
    (nothing_left_to_do, "x = 1  # TODO later", "x = 1  # the todo list of the scheduler"),
    (nothing_left_to_do, "# FIXME", "# fixed point"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "rejected", "accepted"), EXAMPLES, ids=[rule.__name__ for rule, _, _ in EXAMPLES])
def test_rule_can_fail(rule: Rule, rejected: str, accepted: str) -> None:
    assert list(rule(parsed("core/snippet.py", rejected))), rejected
    assert not list(rule(parsed("core/snippet.py", accepted))), accepted


@pytest.mark.parametrize("name", ["sim/utils.py", "core/test_helper.py", "common/clock.py", "sim/link_manager.py"])
def test_empty_module_names_are_rejected(name: str) -> None:
    assert list(module_names_say_something(parsed(name, "")))
    assert not list(module_names_say_something(parsed("sim/utility_functions_of_economics.py", "")))


def test_what_is_long_on_purpose(sources: list[File], monkeypatch: pytest.MonkeyPatch) -> None:
    functions = {
        f"{file.path}:{node.name}"
        for file in sources
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert LONG_FILES.keys() <= {file.path for file in sources}, "a file that is gone"
    assert LONG_FUNCTIONS.keys() <= functions, "a function that is gone"
    assert all((LONG_FILES | LONG_FUNCTIONS).values()), "an entry says why"
    monkeypatch.setitem(LONG_FILES, "sim/a.py", "one idea")
    monkeypatch.setitem(LONG_FUNCTIONS, "sim/a.py:f", "one idea")
    for rule, long in ((small_files, LONG_FILE), (small_functions, LONG_FUNCTION)):
        assert not list(rule(parsed("sim/a.py", long)))
        assert list(rule(parsed("sim/b.py", long)))
        assert "any more" in str(list(rule(parsed("sim/a.py", "def f(): ...\n"))))


def test_every_rule_has_an_example() -> None:
    assert RULES.keys() - {rule for rule, _, _ in EXAMPLES} == {module_names_say_something}


def test_rules_hold_where_they_should() -> None:
    assert [rule for rule in RULES if not RULES[rule]("core/process.py")] == [the_machine_alone]
    assert [rule for rule in RULES if not RULES[rule]("spark/a.py")] == [
        the_machine_alone, no_clock_randomness_or_io, no_iteration_over_sets, no_struct_where_compiled,
        pyspark_only_in_spark,
    ]  # fmt: skip
    assert RULES[the_machine_alone]("runtime/node.py") and not RULES[the_machine_alone]("runtime/machine.py")
    assert not RULES[asyncio_only_in_runtime_apps_web]("runtime/node.py")


# ---------------------------------------------------------------- who may import whom: import-linter's contracts


def lint_imports(folder: Path, *, package_in: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    environment = os.environ | {"PYTHONPATH": str(package_in)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=allow(120), check=False
    )


def test_imports_keep_the_contracts() -> None:
    done = lint_imports(ROOT, package_in=ROOT / "src")
    assert done.returncode == 0, done.stdout + done.stderr


PACKAGES = "core protocols tracefile sim explorer checks runtime apps swarm claims local web spark report cli".split()


@pytest.mark.parametrize(
    ("module", "imported", "kept"),
    [
        ("sim", "amcast.core", True),
        ("sim", "amcast.protocols", True),
        ("checks", "amcast.core", True),
        ("apps", "amcast.runtime", True),
        ("spark", "amcast.sim", True),
        ("spark", "pyspark.sql", True),
        ("report", "amcast.spark", True),
        ("runtime", "asyncio", True),
        ("web", "asyncio", True),
        ("cli", "amcast.report", True),
        ("core", "amcast.sim", False),
        ("core", "amcast.cli", False),
        ("protocols", "amcast.sim", False),
        ("sim", "amcast.explorer", False),
        ("sim", "amcast.runtime", False),
        ("checks", "amcast.tracefile", False),
        ("explorer", "amcast.sim", False),
        ("swarm", "amcast.claims", False),
        ("sim", "amcast.spark", False),
        ("spark", "amcast.report", False),
        ("web", "amcast.spark", False),
        ("report", "pyspark.sql", False),
        ("checks", "pyspark.sql", False),
        ("sim", "asyncio", False),
        ("spark", "asyncio", False),
    ],
)
def test_contracts_can_fail(tmp_path: Path, module: str, imported: str, kept: bool) -> None:
    for package in PACKAGES:
        (tmp_path / "amcast" / package).mkdir(parents=True)
        (tmp_path / "amcast" / package / "__init__.py").touch()
    (tmp_path / "amcast" / "__init__.py").touch()
    (tmp_path / "amcast" / module / "part.py").write_text(f"import {imported}\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    done = lint_imports(tmp_path, package_in=tmp_path)
    assert (done.returncode == 0) == kept, done.stdout + done.stderr
    assert kept or "BROKEN" in done.stdout, done.stdout + done.stderr


def test_contracts_hold_where_packages_are_missing(tmp_path: Path) -> None:
    (tmp_path / "amcast" / "core").mkdir(parents=True)
    for package in ("amcast", "amcast/core"):
        (tmp_path / package / "__init__.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert lint_imports(tmp_path, package_in=tmp_path).returncode == 0


# ---------------------------------------------------------------- decisions, locked versions


def test_every_decision_is_a_dated_record_that_the_architecture_names() -> None:
    records = sorted((ROOT / "docs" / "decisions").iterdir())
    assert [record.name[:5] for record in records] == [f"{number:04d}-" for number in range(1, len(records) + 1)]
    architecture = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for record in records:
        title, dated, *rest = record.read_text(encoding="utf-8").splitlines()
        assert re.fullmatch(r"Decided \d{4}-\d\d-\d\d\.", dated), record
        assert f"- [{title.removeprefix('# ')}](docs/decisions/{record.name})\n" in architecture
        assert [line[2:5] for line in rest if line.startswith("**")] == ["Why", "Wha", "So."], record


def test_the_architecture_names_files_that_are_there() -> None:
    architecture = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = architecture[architecture.index("## Where is") : architecture.index("## Decisions")]
    named = re.findall(r"`([a-z_0-9]+/[a-z_/0-9.]*)`", table)
    assert len(named) >= 25
    assert not [name for name in named if not (ROOT / "src" / "amcast" / name).exists()]


def test_the_lock_covers_all_extras_and_the_tools() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for lines in (*project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()):
        asked += [line for line in lines if isinstance(line, str) and not line.startswith("amcast[")]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"(?m)^([a-z0-9-]+)==\S+(.*(?:\n    --hash=.*)+)", lock))
    for requirement in asked:
        name = re.split(r"[^\w-]", requirement)[0].lower().replace("_", "-")
        assert "sha256:" in locked.get(name, ""), f"{requirement}: run make lock"
