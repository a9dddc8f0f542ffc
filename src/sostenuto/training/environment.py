"""What a number was measured with: versions and machine."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

_PACKAGES = ("sostenuto", "torch", "numpy", "numba", "triton", "accelerate", "scikit-learn")


def environment(device: str = "cpu") -> dict[str, str]:
    """Name the versions of Python and the packages that matter, the processor and the device.

    >>> sorted(environment())[:2]
    ['accelerate', 'device']
    """
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found["torch"] = str(torch.__version__)
    is_gpu = device.startswith("cuda") and torch.cuda.is_available()
    found["device"] = torch.cuda.get_device_name() if is_gpu else f"{device}, {os.cpu_count()} cores"
    return found
