"""A GPU and the native packages that an engine asks for, pretended, so that its own code reads options without them.

Answers of the pretended device are those of a real one (name, compute capability, memory); whatever a native package
would compute is a mock and is never looked at.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import MagicMock

#: packages of kernels that no CPU environment has
NATIVE = frozenset(
    [
        "cuda",
        "cuda_python",
        "cutlass",
        "cutlass_dsl",
        "deep_ep",
        "deep_gemm",
        "deepseek_recipe",
        "flash_attn",
        "flash_mla",
        "flashinfer",
        "flashinfer_jit_cache",
        "humming",
        "nvshmem",
        "quack",
        "sgl_deep_gemm",
        "sgl_kernel",
        "smg_grpc_servicer",
        "tilelang",
        "tml_renderers",
        "torch_memory_saver",
        "torchcodec",
        "decord",
        "triton_kernels",
    ]
)


#: packages for images and sound, pretended only where they are not installed
ABSENT = frozenset({"torchvision", "torchaudio", "timm", "numba"})
#: operators of compiled extensions, by the start of their names
_EXTENSIONS = ("_C", "_moe_C", "_vllm", "_qutlass")


@dataclass(frozen=True)
class Device:
    """One GPU: as drivers name it, its compute capability, MiB of memory; GPUs of a host."""

    name: str
    capability: tuple[int, int]
    mib: int
    per_host: int

    @property
    def total_bytes(self) -> int:
        """Memory."""
        return self.mib * 2**20


#: names and memory as nvidia-smi prints them
DEVICES = {
    "h100": Device("NVIDIA H100 80GB HBM3", (9, 0), 81_559, 8),
    "h200": Device("NVIDIA H200", (9, 0), 143_771, 8),
    "b200": Device("NVIDIA B200", (10, 0), 183_359, 8),
    "gb200": Device("NVIDIA GB200", (10, 0), 189_471, 4),
}


class _Pretended(types.ModuleType):
    """A module whose every name is a mock."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "0.7.2"
        if name.startswith("__"):
            raise AttributeError(name)
        found = MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, found)
        return found


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: frozenset[str]):
        self.names = names

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = _Pretended(spec.name)
        module.__path__ = []
        module.__file__ = __file__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing runs."""


def pretend(device: Device, count: int) -> None:
    """Make ``torch`` see ``count`` GPUs and imports find native packages."""
    import torch
    from transformers import AutoConfig, AutoProcessor, AutoTokenizer, PreTrainedModel  # noqa: F401

    for name in ("tvm_ffi", "xgrammar"):  # before they look for CUDA
        with contextlib.suppress(ImportError):
            __import__(name)
    sys.meta_path.insert(0, _Finder(NATIVE))
    sys.meta_path.append(_Finder(ABSENT))
    cuda = torch.cuda
    properties = types.SimpleNamespace(
        name=device.name,
        major=device.capability[0],
        minor=device.capability[1],
        total_memory=device.total_bytes,
        multi_processor_count=132 if device.capability[0] == 9 else 148,
        shared_memory_per_block_optin=232_448,
        warp_size=32,
        gcnArchName="",
    )
    cuda.is_available = lambda: True
    cuda.device_count = lambda: count
    cuda.current_device = lambda: 0
    cuda.get_device_capability = lambda *_, **__: device.capability
    cuda.get_device_properties = lambda *_, **__: properties
    cuda.get_device_name = lambda *_, **__: device.name
    cuda.mem_get_info = lambda *_, **__: (device.total_bytes, device.total_bytes)
    torch.version.cuda = "13.0"
    torch.backends.cuda.is_built = lambda: True


def pretend_vllm(device: Device, count: int) -> None:
    """vLLM's own platform object and compiled extensions, for a GPU that is not there."""
    import torch._ops
    import torch.library

    for name in ("_C", "_moe_C", "_C_stable_libtorch", "_moe_C_stable_libtorch", "_qutlass_C"):
        sys.modules[f"vllm.{name}"] = types.ModuleType(f"vllm.{name}")
    for name in ("vllm.vllm_flash_attn", "vllm.vllm_flash_attn.flash_attn_interface"):
        module = _Pretended(name)
        module.__path__ = []
        sys.modules[name] = module
    torch.library.register_fake = lambda op, func=None, *_, **__: (
        (lambda given: given) if func is None else None
    )
    plain = torch._ops._OpNamespace.__getattr__

    def operator(space: Any, name: str) -> Any:
        try:
            return plain(space, name)
        except AttributeError:
            if name.startswith("__") or not space.name.startswith(_EXTENSIONS):
                raise
            return MagicMock(name=name)

    torch._ops._OpNamespace.__getattr__ = operator
    import vllm.platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class Pretended(NonNvmlCudaPlatform):  # type: ignore[misc]
        """A CUDA platform that answers for the device."""

    answers = {
        "get_device_capability": DeviceCapability(*device.capability),
        "get_device_name": device.name,
        "get_device_total_memory": device.total_bytes,
        "device_count": count,
        "num_compute_units": 132,
        "is_fully_connected": True,
        "is_integrated_gpu": False,
        "get_device_uuid": "GPU-0",
        "import_kernels": None,
    }
    for name, value in answers.items():
        setattr(Pretended, name, classmethod(lambda _cls, *_, _value=value, **__: _value))
    vllm.platforms._current_platform = Pretended()
    import vllm.model_executor.models.registry as registry

    # inspecting a class imports its kernels: what configurations ask of it is the same for all decoders
    looked_up = registry._ModelRegistry.inspect_model_cls
    registry._run_in_subprocess = lambda call: call()

    def inspect(self: Any, names: Any, config: Any) -> Any:
        wanted = [names] if isinstance(names, str) else list(names)
        return looked_up(self, ["LlamaForCausalLM"], config)[0], wanted[0]

    registry._ModelRegistry.inspect_model_cls = inspect
