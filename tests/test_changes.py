"""What a change touches: toys are added to a copy of the package, in the files that docs/architecture.md names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sostenuto
from tests import triton_interpreter
from tests.apart import run_apart

PACKAGE = Path(sostenuto.__file__).parent
PAGE = PACKAGE.parents[1] / "docs" / "architecture.md"

ACTIVATION = {
    "ops/activation.py": [
        (
            '    "modrelu": Activation(_modrelu, None),\n',
            '    "modrelu": Activation(_modrelu, None),\n'
            '    "softsign": Activation(torch.nn.functional.softsign, largest_value=1.0),\n',
        )
    ],
    "ops/_cpu/activation.py": [
        ("IDENTITY, MODRELU = range", "IDENTITY, MODRELU, SOFTSIGN = range"),
        (
            "    elif code == MODRELU:\n        _modrelu",
            "    elif code == SOFTSIGN:\n        for i in range(n):\n            a = y[i] + z[i]\n"
            "            out[i] = a / (one + abs(a))\n    elif code == MODRELU:\n        _modrelu",
        ),
        (
            "    elif code in (RELU, MODRELU):",
            "    elif code == SOFTSIGN:\n        for i in range(n):\n            apart = one - abs(activated[i])\n"
            "            cotangent[i] *= apart * apart\n    elif code in (RELU, MODRELU):",
        ),
    ],
    "ops/_gpu/activation.py": [
        (
            "    elif CODE == 5:\n",
            "    elif CODE == 6:\n        b_u = b_a / (1.0 + tl.abs(b_a))\n    elif CODE == 5:\n",
        ),
        (
            "    elif CODE == 1 or CODE == 5:\n",
            "    elif CODE == 6:\n        b_s = (1.0 - tl.abs(b_u)) * (1.0 - tl.abs(b_u))\n"
            "    elif CODE == 1 or CODE == 5:\n",
        ),
    ],
}
USE_ACTIVATION = """
layer = so.nn.StableRNN(2, 5, activation="softsign", step_size=0.1, form="symmetric")
x = torch.randn(7, 3, 2)
gradients = []
for backend in ("reference", "cpu"):
    layer.backend = backend
    layer.zero_grad()
    layer(x)[0].square().sum().backward()
    gradients.append([parameter.grad.clone() for parameter in layer.parameters()])
torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)
assert layer.memory_certificate(drive=1.0) is not None
assert layer.certificate("settling").holds
"""
USE_ACTIVATION_ON_GPU = """
from sostenuto.ops.diagonal import diagonal_scan
results = []
for backend in ("reference", "gpu"):
    x = torch.linspace(-2, 2, 24).reshape(4, 2, 3).requires_grad_()
    one = torch.ones(3)
    states, _ = diagonal_scan(x, torch.ones(2, 3), 0.5 * one, 0.1 * one, one, activation="softsign", backend=backend)
    states.square().sum().backward()
    results.append((states.detach(), x.grad))
torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
"""

LAYER = {
    "nn/leaky_rnn.py": '''
from torch import nn

from sostenuto.nn.base import Contract
from sostenuto.nn.dense import DenseLayer, DenseMap
from sostenuto.nn.fused import check_backend


class LeakyRNN(DenseLayer):
    """h ← 0.9 h + 0.1 tanh(W h + V u_t + b)."""

    continuous = False
    vector_field = Contract.vector_field

    def __init__(self, *arguments, backend="auto", **options):
        self.backend = check_backend(backend)
        super().__init__(*arguments, **options)

    def build(self, layer, reverse):
        self.new_parameter("weight_ih", layer, reverse, self.hidden_size, self.fan_in(layer))
        self.new_parameter("weight_hh", layer, reverse, self.hidden_size, self.hidden_size)
        self.new_parameter("bias_ih", layer, reverse, self.hidden_size)

    def reset_parameters(self):
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.3, 0.3)

    def discrete_map(self, layer=0, *, reverse=False, span=1.0):
        weight = self.weight("weight_hh", layer, reverse)
        return DenseMap(weight, weight.new_full((1, 1), 0.9), weight.new_full((1,), 0.1))
''',
    "nn/__init__.py": [
        (
            "    from sostenuto.nn.lipschitz_rnn",
            "    from sostenuto.nn.leaky_rnn import LeakyRNN\n    from sostenuto.nn.lipschitz_rnn",
        ),
        ('        "sru": "SRU",\n', '        "sru": "SRU",\n        "leaky": "LeakyRNN",\n'),
    ],
}
USE_LAYER = """
layer = so.nn.LeakyRNN(2, 4, 2, batch_first=True, bidirectional=True)
layer(torch.randn(3, 6, 2))[0].sum().backward()
one = so.nn.LeakyRNN(2, 4, batch_first=True)
x, state = torch.randn(3, 6, 2), None
for t in range(6):
    last, state = one.step(x[:, t], state)
torch.testing.assert_close(last, one(x)[0][:, -1])
assert so.nn.Stack(2, 4, layer="leaky")(torch.randn(5, 3, 2))[0].shape == (5, 3, 4)
model = so.RecurrentClassifier("leaky", hidden_size=4, epochs=1).fit(np.random.randn(12, 6, 2), [0, 1] * 6)
assert model.predict(np.random.randn(2, 6, 2)).shape == (2,)
"""

AUDIT = {
    "audits/stability/largest.py": """
from dataclasses import dataclass
from typing import Any

from sostenuto.audits.base import AuditResult, Check, Judged
from sostenuto.audits.context import AuditContext


@dataclass(frozen=True, kw_only=True)
class Largest(AuditResult):
    value: float

    def summary(self) -> str:
        return f"The largest answer is {self.value:.3g}."

    def plot(self, ax: Any) -> None:
        ax.bar([0], [self.value])


def _run(context: AuditContext) -> Largest:
    X = context.arguments[0]
    return Largest(model=type(context.model).__name__, method="the largest answer", seed=0,
                   value=float(context.model(X).detach().abs().max()))


CHECK = Check(name="largest", title="How large are its answers?", caption="The largest answer.", order=99,
              result=Largest, run=_run, judge=lambda result, limits: Judged("good", "Small"))
"""
}
USE_AUDIT = """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 2))
report = so.audit(model, torch.randn(20, 3, 2), torch.arange(20) % 2, checks=["largest"])
assert report.results["largest"].value > 0
report.save(folder + "/page.html")
page = open(folder + "/page.html").read()
assert "How large are its answers?" in page and "The largest answer is" in page
"""

FORMAT = {
    "data/files/lines.py": """
import numpy as np

from sostenuto.data.dataset import SequenceSet
from sostenuto.data.files.text import read_lines


def read(path, options):
    rows = [line.split() for line in read_lines(path) if line.strip()]
    sequences = [np.array(row[1:], float)[:, None] for row in rows]
    return SequenceSet(sequences, np.array([row[0] for row in rows]), options.task or "classification")
""",
    "data/files/__init__.py": [
        ('".npz": "npz",', '".npz": "npz", ".steps": "lines",'),
    ],
}
USE_FORMAT = """
from sostenuto.data.files import read
open(folder + "/train.steps", "w").write("up 1 2 3\\ndown 3 2\\n" * 6)
data = read(folder + "/train.steps")
assert data.targets.tolist() == ["up", "down"] * 6 and len(data.sequences[1]) == 2
"""

ATTACK = {
    "audits/robustness/attacks.py": [
        (
            "def projected_ascent(",
            "def one_step(loss, values, norm, epsilon):\n    moved = values.clone().requires_grad_()\n"
            "    with torch.enable_grad():\n        harm = loss(moved).sum()\n"
            "    return epsilon * steepest(input_gradient(harm, moved), norm)\n\n\ndef projected_ascent(",
        )
    ],
    "audits/robustness/adversarial.py": [
        ("    projected_ascent,\n", "    one_step,\n    projected_ascent,\n"),
        ('    "deepfool": "DeepFool,', '    "one-step": "One step along the gradient",\n    "deepfool": "DeepFool,'),
        ('{"pgd": self._pgd,', '{"one-step": self._one_step, "pgd": self._pgd,'),
        (
            "    def _pgd(",
            "    def _one_step(self, rows, radius, zeros):\n"
            "        return [one_step(self._objective(rows), zeros, self.norm, radius)]\n\n    def _pgd(",
        ),
    ],
}
USE_ATTACK = """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 2))
X = torch.randn(40, 3, 2)
y = model(X).argmax(1)
found = so.audits.adversarial_accuracy(model, X, y, attack="one-step", epsilons=(0.01, 10.0))
assert found.score[-1] < 0.2 < found.score[0], found.score
"""

BASELINE = {
    "models/baselines.py": [
        (
            "    name, words = _ridge_words(encoding)\n",
            "    if classes:\n"
            '        done.append(_timed("first class", "the first class always",\n'
            "                           lambda: torch.zeros_like(most_common_class(train, test))))\n"
            "    name, words = _ridge_words(encoding)\n",
        )
    ]
}
USE_BASELINE = """
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.models.baselines import baseline_predictions
read = SequenceSet([np.random.randn(5, 1) for _ in range(12)], np.array(["a", "b"] * 6), "classification")
encoding = Encoding.fit(read)
batch = encoding.encode(read)
names = [each.name for each in baseline_predictions(batch, batch, encoding)]
assert "first class" in names, names
"""

CERTIFICATE = {
    "nn/certificates/bounded.py": '''
from sostenuto.nn.certificates.certificate import Certificate, fails
from sostenuto.nn.certificates.unit import DenseUnit


def certify_bounded(unit: DenseUnit) -> Certificate:
    """Test whether ‖W‖ < 1."""
    size = float(unit.weight.norm())
    said = "‖W‖ < 1"
    return Certificate("bounded", size < 1, "norm", said, reason="" if size < 1 else fails(said, size))
''',
    "nn/certificates/__init__.py": [
        ('        "contraction": "certify', '        "bounded": "certify_bounded",\n        "contraction": "certify'),
        (
            "    from sostenuto.nn.certificates.certificate import",
            "    from sostenuto.nn.certificates.bounded import certify_bounded\n"
            "    from sostenuto.nn.certificates.certificate import",
        ),
    ],
}
USE_CERTIFICATE = """
layer = so.nn.LipschitzRNN(2, 4)
assert layer.certificate("bounded").holds == bool(layer.weight_hh_l0.norm() < 1)
assert not so.nn.GRU(2, 4).certificate("bounded").holds
"""

TOYS = {
    "an activation of the dense and diagonal recurrences": (ACTIVATION, USE_ACTIVATION),
    "a layer": (LAYER, USE_LAYER),
    "a kind of certificate": (CERTIFICATE, USE_CERTIFICATE),
    "an audit": (AUDIT, USE_AUDIT),
    "a data format": (FORMAT, USE_FORMAT),
    "an attack": (ATTACK, USE_ATTACK),
    "a baseline": (BASELINE, USE_BASELINE),
}


def claimed(change: str) -> tuple[str, str]:
    """Give the files that the page names for a change, and how many it says they are."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    (row,) = [row for row in rows if row[1].strip() == change]
    return row[2], row[3]


@pytest.mark.parametrize("change", TOYS)
def test_a_change_touches_the_files_that_the_page_names(change: str, tmp_path: Path) -> None:
    edits, program = TOYS[change]
    files, count = claimed(change)
    named = [re.sub("<[^>]*>", "[^/]+", re.escape(name).replace(r"\<", "<")) for name in re.findall("`([^`]*)`", files)]
    for path in edits:
        assert any(re.fullmatch(name, path) for name in named), f"{path} is not among {named}"
    assert str(len(edits)) in count
    copied = tmp_path / "sostenuto"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__", "experiments"))
    for path, edit in edits.items():
        if isinstance(edit, str):
            assert not (copied / path).exists()
            (copied / path).write_text(edit)
            continue
        text = (copied / path).read_text()
        for old, new in edit:
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
            text = text.replace(old, new)
        (copied / path).write_text(text)
    start = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfolder = {str(tmp_path)!r}\n"
        "import numpy as np, torch\nimport sostenuto as so\n"
        "assert so.__file__.startswith(folder)\n"
    )
    run_apart(start + program)
    if edits is ACTIVATION and not triton_interpreter.why_not():
        # Triton decides at its import, which the processes of `run_apart` are past; beside a GPU it would use that.
        environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run([sys.executable, "-c", start + USE_ACTIVATION_ON_GPU], env=environment, check=True)
