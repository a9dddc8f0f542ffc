"""Write the bill of materials of an installed package: ``python release/sbom.py FOLDER`` (``make dist``).

CycloneDX 1.6: every package that a base install of sostenuto brings along, with its version, license and what it needs
in turn, as they are installed beside the interpreter that runs this.
"""

import json
import os
import re
import sys
import uuid
from datetime import UTC, datetime
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

# Packages whose metadata state no license, with the one that their publisher names.
STATED_ELSEWHERE = {"cuda-toolkit": "NVIDIA CUDA Toolkit End User License Agreement"}


def name_of(one: Distribution) -> str:
    """Give a package's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()


def needs(one: Distribution, extras: frozenset[str]) -> list[Requirement]:
    """List what a package requires here, with the extras that were asked of it."""
    wanted = [Requirement(text) for text in one.requires or []]

    def is_needed(row: Requirement) -> bool:
        return row.marker is None or any(row.marker.evaluate({"extra": extra}) for extra in ("", *extras))

    return [row for row in wanted if is_needed(row)]


def license_of(one: Distribution) -> dict[str, Any]:
    """Give a package's license as its own metadata state it: an SPDX expression, or a name in words."""
    expression = one.metadata.get("License-Expression")
    if expression:
        return {"expression": expression}
    rows = [row.rpartition(" :: ")[2] for row in one.metadata.get_all("Classifier") or [] if row.startswith("License")]
    words = ", ".join(rows) or (one.metadata.get("License") or "").partition("\n")[0].strip()
    words = words or STATED_ELSEWHERE.get(name_of(one), "")
    if not words:
        raise SystemExit(f"expected a license in the metadata of {name_of(one)}, got none")
    return {"license": {"name": words}}


def bill(package: str) -> dict[str, Any]:
    """Collect a package and all that it needs, in the form of CycloneDX."""
    components: dict[str, dict[str, Any]] = {}
    edges: dict[str, set[str]] = {}
    waiting, seen = [Requirement(package)], set()
    while waiting:
        row = waiting.pop()
        one, extras = distribution(row.name), frozenset(row.extras)
        name, version = name_of(one), one.version
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        required = needs(one, extras)
        waiting += required
        reference = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
        part = {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference}
        components[name] = {**part, "licenses": [license_of(one)]}
        edges.setdefault(name, set()).update(name_of(distribution(other.name)) for other in required)
    references = {name: component["bom-ref"] for name, component in components.items()}
    subject = components.pop(name_of(distribution(package)))
    content: dict[str, Any] = {
        "components": [component for _, component in sorted(components.items())],
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[row] for row in rows)}
            for name, rows in sorted(edges.items())
        ],
    }
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", datetime.now(UTC).timestamp()))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([subject, content]))}",
        "version": 1,
        "metadata": {"timestamp": datetime.fromtimestamp(seconds, UTC).isoformat(), "component": subject},
        **content,
    }


if __name__ == "__main__":
    made = bill("sostenuto")
    target = Path(sys.argv[1]) / f"sostenuto-{made['metadata']['component']['version']}.cdx.json"
    target.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
