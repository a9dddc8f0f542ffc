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


def name_of(one: Distribution) -> str:
    """Give a package's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()


def needs(one: Distribution) -> list[str]:
    """Name what a package requires here, without its extras."""
    wanted = [Requirement(text) for text in one.requires or []]
    return sorted({row.name for row in wanted if row.marker is None or row.marker.evaluate({"extra": ""})})


def license_of(one: Distribution) -> dict[str, Any]:
    """Give a package's license as its own metadata state it: an SPDX expression, or a name in words."""
    expression = one.metadata.get("License-Expression")
    if expression:
        return {"expression": expression}
    rows = [row.rpartition(" :: ")[2] for row in one.metadata.get_all("Classifier") or [] if row.startswith("License")]
    words = ", ".join(rows) or next(iter((one.metadata.get("License") or "").split("\n")), "").strip()
    if not words:
        raise SystemExit(f"expected a license in the metadata of {name_of(one)}, got none")
    return {"license": {"name": words}}


def bill(package: str) -> dict[str, Any]:
    """Collect a package and all that it needs, in the form of CycloneDX."""
    found: dict[str, tuple[dict[str, Any], list[str]]] = {}
    waiting = [package]
    while waiting:
        one = distribution(waiting.pop())
        name, version = name_of(one), one.version
        if name in found:
            continue
        required = needs(one)
        waiting += required
        reference = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
        component = {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference}
        found[name] = ({**component, "licenses": [license_of(one)]}, [name_of(distribution(row)) for row in required])
    references = {name: component["bom-ref"] for name, (component, _) in found.items()}
    subject = found[name_of(distribution(package))][0]
    content: dict[str, Any] = {
        "components": [component for _, (component, _) in sorted(found.items()) if component is not subject],
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[row] for row in set(rows))}
            for name, (_, rows) in sorted(found.items())
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
