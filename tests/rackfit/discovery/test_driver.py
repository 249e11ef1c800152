"""What ``nvidia-smi -q -x`` says of an unwell fabric, of screens and of nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rackfit.discovery.asking import found_in, refusal, sizes
from tests.rackfit.discovery.samples import smi_fabric

GPU = "<gpu><product_name>{}</product_name><fb_memory_usage><total>{} MiB</total></fb_memory_usage></gpu>"
LOG = "<nvidia_smi_log><attached_gpus>{}</attached_gpus>{}</nvidia_smi_log>"


@pytest.mark.parametrize(
    ("health", "reason"),
    [
        ({"summary": "Healthy", "incorrect_configuration": "None"}, None),
        ({"summary": "N/A", "access_timeout_recovery": "False"}, None),
        ({"summary": "Unhealthy", "incorrect_configuration": "Incompatible Gpu Fw"},
         "incorrect configuration: Incompatible Gpu Fw"),
        ({"summary": "Limited Capacity"}, "health: Limited Capacity"),
        ({"access_timeout_recovery": "True"}, "recovers from a time-out"),
        ({"route_recovery_in_progress": "True"}, "a route recovers"),
        ({"summary": "Unhealthy", "route_unhealthy": "True"}, "route unhealthy"),
    ],
)  # fmt: skip
def test_a_fabric_that_is_called_unwell_fails_its_gpu(
    health: dict[str, str], reason: str | None, tmp_path: Path
) -> None:
    """The fields and words of the fabric's health in NVML."""
    found = found_in(tmp_path, "h.xml", smi_fabric("Completed", bandwidth="Full", **health))
    assert found.failed == ({"r0": f"h: NVLink fabric: {reason}"} if reason else {})


def test_a_card_for_screens_is_no_gpu_of_the_host(tmp_path: Path) -> None:
    gpu, screen = GPU.format("NVIDIA A100-SXM4-80GB", 81920), GPU.format("NVIDIA DGX Display", 4096)
    found = found_in(tmp_path, "h.xml", LOG.format(5, gpu * 3 + screen + gpu))
    assert sizes(found) == [4]
    assert not found.failed
    assert any("1 DGX Display left out" in note for note in found.notes)


def test_a_host_of_no_gpus_is_called_one(tmp_path: Path) -> None:
    said = refusal(tmp_path, "h.xml", LOG.format(0, ""))
    assert "0 GPUs attached, none in the log" in said
    said = refusal(tmp_path, "h.xml", "<nvidia_smi_log></nvidia_smi_log>")
    assert "no number of attached GPUs" in said


def test_a_log_with_its_document_type_says_what_to_do(tmp_path: Path) -> None:
    """As ``nvidia-smi -q -x --dtd`` prints it: the log comes after thousands of characters."""
    types = "\n".join(f"<!ELEMENT e{number} (#PCDATA)>" for number in range(400))
    text = f'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log [\n{types}\n]>\n{LOG.format(0, "")}'
    assert "leave the DOCTYPE out (of nvidia-smi: without --dtd)" in refusal(
        tmp_path, "h.xml", text
    )
