"""The arguments of an installed engine, from its own parser: names, types and choices."""

from __future__ import annotations

import argparse
import re
from typing import Any


def arguments_of(engine: str) -> dict[str, dict[str, Any]]:
    """Every argument by its first long name: ``type``, ``choices``, ``aliases``, ``many``, ``deprecated``."""
    actions = {"vllm": _vllm, "sglang": _sglang}[engine]()
    found = {}
    for action in actions:
        names = list(action.option_strings)
        if not names or isinstance(action, argparse._HelpAction):
            continue
        first = next((name for name in names if name.startswith("--")), names[0])
        found[first] = _described(action, [name for name in names if name != first])
    return dict(sorted(found.items()))


def _described(action: argparse.Action, others: list[str]) -> dict[str, Any]:
    spec: dict[str, Any] = {"type": "flag" if action.nargs == 0 else _type(action)}
    if action.nargs in ("+", "*"):
        spec["many"] = True
    if action.choices is not None and action.nargs != 0:
        spec["choices"] = sorted({str(choice) for choice in action.choices if choice is not None})
    if others:
        spec["aliases"] = sorted(others)
    words = " ".join((action.help or "").split())
    if "deprecated" in words.lower() or type(action).__name__.startswith("Deprecated"):
        until = re.search(r"removed (?:in|after) (v?\d[\w.-]*\w)", words)
        spec["deprecated"] = until.group(1) if until else "soon"
    return spec


def _type(action: argparse.Action) -> str:
    """The type of an argument's value, by what its own conversion makes of a few words."""
    convert = action.type
    if convert is None or convert is str:
        return "str"
    for word, kinds in (
        # a reader of JSON makes a number of the second word too
        ("{}", ((dict, "json"), (list, "json"))),
        ("4096", ((int, "int"), (float, "float"))),
    ):
        try:
            value = convert(word)  # type: ignore[operator]
        except Exception:
            continue
        for kind, name in kinds:
            if isinstance(value, kind) and not isinstance(value, bool):
                return name
        if word == "{}" and not isinstance(value, str):
            return "json"
    return "str"


def _sglang() -> list[argparse.Action]:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser._actions


def _vllm() -> list[argparse.Action]:
    import vllm.platforms
    from vllm.platforms.interface import UnspecifiedPlatform

    class NoDevice(UnspecifiedPlatform):
        device_type = "cuda"

    # the parser asks which device there is, and does not start without one
    vllm.platforms._current_platform = NoDevice()
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    commands = FlexibleArgumentParser().add_subparsers(dest="command")
    parser: argparse.ArgumentParser = ServeSubcommand().subparser_init(commands)
    return parser._actions
