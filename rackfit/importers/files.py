"""Which servers an engine's files start: one file, or a folder of them."""

from __future__ import annotations

import importlib
from pathlib import Path

from rackfit.importers.command_lines import read_processes
from rackfit.importers.servers import FoundServer
from topology.catalogue import is_file, is_folder
from topology.errors import InstanceError, Problem, option
from topology.names import shown

ENGINES = ("sglang", "trtllm", "vllm")
#: files of a folder that may start servers, and how many of them are read
_FILES, _MOST_FILES = (".sh", ".service", ".yaml", ".yml"), 200


def read_servers(engine: str, path: Path) -> list[FoundServer]:
    """Servers of one engine's file; of a folder, of its ``commands.sh``, else of all its scripts, units and manifests.

    Raises ``InstanceError``.
    """
    if engine not in ENGINES:
        raise InstanceError(
            Problem(option("from"), f"unknown engine {engine[:40]!r}; known: {', '.join(ENGINES)}")
        )
    module = importlib.import_module(f"rackfit.importers.from_{engine}")
    found: list[FoundServer]
    if is_folder(path) and not is_file(path / "commands.sh"):
        files = sorted(one for one in path.iterdir() if one.suffix in _FILES and is_file(one))
        files = files[:_MOST_FILES]
        found = [
            server for one in files for server in module.servers(read_processes(one, files), path)
        ]
        if not found:
            message = f"holds no {engine} command in {', '.join(_FILES)} files"
            raise InstanceError(Problem(shown(path, 300), message))
        return found
    path = path / "commands.sh" if is_folder(path) else path
    if not is_file(path):
        raise InstanceError(Problem(shown(path, 300), "no such file"))
    found = module.read(path)
    return found
