import importlib.util
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "audit_models.py"


@pytest.mark.slow
def test_five_kinds_of_models_are_audited(tmp_path, capsys):
    specification = importlib.util.spec_from_file_location("audit_models", EXAMPLE)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    reports = module.main(rounds=2, folder=str(tmp_path))
    assert set(reports) == {"lstm", "gru", "transformer", "unicornn", "diagonal"}
    assert all(report.memory is not None and report.noise is not None for report in reports.values())
    assert set(reports["transformer"].refused) == {"gradients"}
    assert reports["diagonal"].memory.half_life_low <= reports["diagonal"].memory.half_life_high
    assert len(list(tmp_path.glob("*.html"))) == 5
    assert "--- unicornn" in capsys.readouterr().out
