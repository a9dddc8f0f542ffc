"""Texts and tensors in one safetensors file, nothing to execute; a digest of both shows what was altered since."""

import hashlib
import json
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from sostenuto.checks import require
from sostenuto.version import __version__

UNREADABLE = (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RuntimeError)
"""What reading a damaged or foreign file raises."""
_ENTRY = "sostenuto"


def seal(form: str, texts: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """Lay out JSON values and tensors of a named format; the same ones give the same bytes.

    All texts stand in one entry of the metadata, because safetensors writes entries in any order.

    >>> unseal("numbers-1", seal("numbers-1", {"unit": "m"}, {}))[0]["unit"]
    'm'
    """
    header = json.dumps({"format": form, "version": __version__, **texts}, sort_keys=True)
    return save(tensors, metadata={_ENTRY: json.dumps({"header": header, "sha256": _digest(header, tensors)})})


def unseal(form: str, content: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what `seal` laid out; one of `UNREADABLE` where it is damaged, altered, of another format or newer."""
    size = int.from_bytes(content[:8], "little")
    envelope = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][_ENTRY])
    header, tensors = envelope["header"], load(content)
    whole = envelope["sha256"] == _digest(header, tensors)
    require(whole, "expected the content that was written", "got altered bytes")
    texts = json.loads(header)
    require(texts["format"] == form, f"expected a file of format {form}", f"got {texts['format']!r}")
    _check_version(texts["version"])
    return texts, tensors


def _check_version(written: str) -> None:
    """Refuse what a newer sostenuto wrote, which may mean something that this one does not know.

    >>> _check_version("99.0")
    Traceback (most recent call last):
    ...
    sostenuto.checks.InputError: expected a file of sostenuto ... or older, got one of 99.0; install a newer sostenuto.
    """
    own, other = ([int(part) for part in version.split(".")[:2]] for version in (__version__, written))
    hint = "install a newer sostenuto"
    require(other <= own, f"expected a file of sostenuto {__version__} or older", f"got one of {written}", hint)


def _digest(header: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()
