"""Compiles the modules of compiled.txt with mypyc where that can be done; everything else is in pyproject.toml.

Without mypy or a C compiler the install is plain Python, and one line says so. AMCAST_COMPILE decides the rest:
    unset   whatever goes wrong while compiling, the install goes on as plain Python
    1       what mypyc or the C compiler rejects is an error, and compiling is quick rather than thorough (the Makefile)
    0       do not compile
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

WISH = os.environ.get("AMCAST_COMPILE", "")

# What mypyc sees is the same everywhere: no configuration, nothing of what is or is not installed. Types are judged by
# `make check`; here, modules that are not compiled are read for their types alone.
MYPY = ["--config-file=", "--no-site-packages", "--follow-imports=silent", "--ignore-missing-imports"]


def sources() -> list[str]:
    lines = Path(__file__).with_name("compiled.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def probe_compiler() -> None:
    """Compile one line against Python's headers: a compiler alone is not enough."""
    if sys.platform == "win32":
        return
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    include = sysconfig.get_paths()["include"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\n")
        try:
            arguments = [*command, f"-I{include}", "-c", str(source), "-o", str(source.with_suffix(".o"))]
            subprocess.run(arguments, check=True, capture_output=True)
        except OSError as problem:
            raise FileNotFoundError(f"no C compiler ({command[0]})") from problem
        except subprocess.CalledProcessError as problem:
            raise FileNotFoundError(f"{command[0]} fails to compile against the headers in {include}") from problem


def say_plain(reason: str) -> None:
    print(f"warning: amcast is not compiled, it runs as plain Python: {reason}", file=sys.stderr)


def extensions() -> list[Extension]:
    from mypyc.build import mypycify

    probe_compiler()
    level = "1" if WISH == "1" else "2"
    found: list[Extension] = mypycify([*MYPY, *sources()], opt_level=level, debug_level="0", group_name="amcast")
    if WISH != "1" and sys.platform != "win32":
        for extension in found:
            extension.extra_compile_args.append("-Wno-error")  # a newer compiler's new warning is no reason to be slow
    return found


def extensions_if_possible() -> list[Extension]:
    try:
        return extensions()
    except (ImportError, FileNotFoundError) as missing:
        reason = str(missing)
    except SystemExit:  # how mypycify says that it found errors, which it has printed
        if WISH == "1":
            raise
        reason = "mypyc found errors"
    say_plain(reason)
    return []


class AllOrNothing(build_ext):
    """Builds all extensions, or none: each is only the name of a module in the one library that holds their code."""

    def run(self) -> None:
        try:
            super().run()
        except (BaseError, CCompilerError) as problem:
            if WISH == "1":
                raise
            say_plain(str(problem))
            for built in self.get_outputs():
                Path(built).unlink(missing_ok=True)
            self.extensions = []


# Only a build needs the extensions: metadata and source archives should not wait for a compiler.
BUILDS = {"build", "build_ext", "bdist_wheel", "editable_wheel", "develop", "install"}
setup(
    ext_modules=extensions_if_possible() if WISH != "0" and BUILDS & set(sys.argv) else [],
    cmdclass={"build_ext": AllOrNothing},
)
