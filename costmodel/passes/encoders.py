"""Image and audio encoders: what one prompt's images and sound cost before its prefill. No hardware."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.models.spec import ModelSpec, Tower
from costmodel.question.workload import Workload
from topology.errors import InstanceError, Problem


@dataclass(frozen=True, slots=True)
class Encoder:
    """A tower at work: FLOPs of one prompt, and the bytes it reads once a pass."""

    flops_per_prompt: float
    weight_bytes: float


def encoders_of(spec: ModelSpec, workload: Workload) -> tuple[Encoder, ...]:
    """The encoders that a request's images and sound pass; none where it has neither.

    Raises ``InstanceError`` where the model has no such tower.
    """
    found = []
    if workload.images:
        found.append(_at_work(spec.vision, workload.images, workload.image_patches, "images"))
    if workload.audio_frames:
        found.append(_at_work(spec.audio, 1.0, workload.audio_frames, "audio_frames"))
    return tuple(found)


def _at_work(tower: Tower | None, times: float, positions: int, key: str) -> Encoder:
    r"""FLOPs ``n p (2 W + 4 p d l)``: ``n`` images of ``p`` positions, ``W`` parameters, width ``d``, depth ``l``.

    Two per parameter and position, and attention of every position to all of its image: scores and
    values, two FLOPs per channel each.
    """
    if tower is None:
        raise InstanceError(
            Problem(
                f"workload.{key}",
                f"is {times * positions if key == 'audio_frames' else times:g}, but no such tower is "
                "read of the model's config",
            )
        )
    per_position = 2.0 * tower.params + 4.0 * positions * tower.width * tower.depth
    return Encoder(times * positions * per_position, tower.num_bytes)
