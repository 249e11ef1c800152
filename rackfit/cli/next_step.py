"""What to do with a layout that was written: the command that exports it."""

from __future__ import annotations

from pathlib import Path

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from rackfit.quoting import shell_word


def next_target(instance: Instance, layout: Layout) -> tuple[str, str]:
    """What to export the layout to, and what else in words."""
    if instance.engine is not None:
        return instance.engine.engine, ""
    if any(stage.unlike for replica in layout.replicas for stage in replica.stages):
        return "json", ""  # engines want as many slots in every layer
    return "sglang", " (or vllm, trtllm, dynamo, slurm)"


def export_step(path: Path, instance: Instance, layout: Layout) -> str:
    """The command that exports the layout at a path."""
    target, others = next_target(instance, layout)
    return f"rackfit export {shell_word(str(path))} --to {target} --out launch{others}"
