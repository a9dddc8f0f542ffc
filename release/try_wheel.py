"""Try a wheel where little is allowed: ``python release/try_wheel.py dist/*.whl python3.11 python3.13``.

For each interpreter the wheel is installed into a fresh environment. Then a user who is not root, who cannot write to
the environment and has no home, fits, predicts and audits with the embedded digits. What happened goes to
``results/reliability/wheel.json``, and from there into the table of ``docs/reliability.md``.
"""

import argparse
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "reliability" / "wheel.json"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- wheel: written by make try-wheel -->", "<!-- end of wheel -->"

ESTIMATOR = """
import sostenuto as so
digits = so.datasets.load("digits")
model = so.RecurrentClassifier(layer="unicornn", epochs=2, random_state=0)
print(model.fit(digits.train.sequences, digits.train.targets).score(digits.test.sequences, digits.test.targets))
"""
STEPS = {
    "fit": ["sostenuto", "fit", "digits", "--model", "unicornn", "--epochs", "5", "--out", "run", "--quiet"],
    "predict": ["sostenuto", "predict", "run", "digits", "--out", "predictions.csv", "--quiet"],
    "audit": ["sostenuto", "audit", "run", "--quiet"],
    "in Python": ["python", "-c", ESTIMATOR],
}
MADE = {"fit": "run/report.html", "predict": "predictions.csv", "audit": "run/audit.html"}
FACTS = """
import json, os, platform, sys, torch, sostenuto
site = os.path.dirname(os.path.dirname(sostenuto.__file__))
inside = [folder for folder, _, _ in os.walk(site)]
print(json.dumps({
    "python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}",
    "torch": torch.__version__, "version": sostenuto.__version__,
    "root": os.geteuid() == 0, "home": os.environ.get("HOME"),
    "writable": sum(os.access(folder, os.W_OK) for folder in inside), "from the wheel": site.startswith(sys.prefix),
}))
"""


def tried(wheel: Path, interpreter: str, folder: Path) -> dict[str, Any]:
    """Install a wheel and run every step; say how each ended."""
    venv, work = folder / "venv", folder / "work"
    subprocess.run([interpreter, "-m", "venv", venv], check=True)
    install = [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile", wheel]
    subprocess.run([*install, "-c", ROOT / "constraints.txt"], check=True)
    for path in (venv, *venv.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222)
    work.mkdir()
    folder.chmod(0o755)
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(work, nobody.pw_uid, nobody.pw_gid)
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    known = {"PATH": f"{venv / 'bin'}:/usr/bin:/bin", "OMP_NUM_THREADS": "1", "TMPDIR": str(work), "LANG": "C.UTF-8"}

    def ran(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=work, env=known, capture_output=True, text=True, check=False, **user)

    facts = ran(["python", "-c", FACTS])
    if facts.returncode:
        raise SystemExit(f"{interpreter}: {facts.stderr}")
    outcome = json.loads(facts.stdout)
    outcome["steps"] = {}
    for name, command in STEPS.items():
        begun = time.monotonic()
        done = ran(command)
        well = done.returncode == 0 and "Traceback" not in done.stderr and (work / MADE.get(name, "")).exists()
        outcome["steps"][name] = {
            "exit code": done.returncode,
            "well": well,
            "warnings": done.stderr.count("expected a place that can be written to for compiled code"),
            "seconds": round(time.monotonic() - begun, 1),
            **({} if well else {"output": (done.stdout + done.stderr)[-3000:]}),
        }
    return outcome


def table(result: Path) -> str:
    """Lay the stored outcomes out as a table."""
    stored = json.loads(result.read_text(encoding="utf-8"))
    rows = [f"| Python | system | torch | {' | '.join(STEPS)} |", f"|---|---|---|{'---|' * len(STEPS)}"]
    for one in stored["interpreters"]:
        steps = [f"exit code {step['exit code']}, {step['seconds']:.0f} s" for step in one["steps"].values()]
        rows.append(f"| {one['python']} | {one['system']} | {one['torch']} | {' | '.join(steps)} |")
    warned = sum(step["warnings"] for one in stored["interpreters"] for step in one["steps"].values())
    said = f"`{stored['wheel']}`, tried on {stored['date']} on a busy machine"
    return "\n".join([*rows, "", f"{said}; {warned} warnings, one per command, that compiled code is kept elsewhere."])


def main() -> int:
    """Try the wheel under every interpreter that is here, and store what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("interpreters", nargs="+")
    given = parser.parse_args()
    outcomes = []
    for interpreter in given.interpreters:
        if shutil.which(interpreter) is None:
            print(f"{interpreter}: not here, left out", flush=True)
            continue
        # A user who is nobody has to reach the environment, which a folder below /root would forbid.
        folder = Path(tempfile.mkdtemp(prefix="wheel-"))
        try:
            outcomes.append(tried(given.wheel.resolve(), interpreter, folder))
        finally:
            subprocess.run(["chmod", "-R", "u+w", folder], check=True)
            shutil.rmtree(folder)
        print(json.dumps(outcomes[-1], indent=1), flush=True)
        result = {"wheel": given.wheel.name, "date": time.strftime("%Y-%m-%d"), "interpreters": outcomes}
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        text = PAGE.read_text(encoding="utf-8")
        before, after = text.partition(BEGIN)[0], text.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{table(RESULT)}\n\n{END}{after}", encoding="utf-8")
    return int(not all(sound(one) for one in outcomes))


def sound(outcome: dict[str, Any]) -> bool:
    """Say whether the conditions held, and every step ended well under them."""
    strict = outcome["from the wheel"] and not (outcome["root"] or outcome["home"] or outcome["writable"])
    return strict and all(step["well"] for step in outcome["steps"].values())


if __name__ == "__main__":
    sys.exit(main())
