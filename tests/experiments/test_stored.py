"""Which results are kept, found again and listed."""

from dataclasses import replace

import pytest

from sostenuto.checks import FileFormatError, InputError
from sostenuto.experiments.listing import listed
from sostenuto.experiments.runner import reproduce
from sostenuto.experiments.stored import last_result, read_result, store


@pytest.fixture
def result(write_toy, tmp_path):
    return reproduce("toy2009/figure-1", out=tmp_path / "out", root=write_toy(), device="cpu", progress=False)


def test_a_lesser_protocol_never_replaces_a_fuller_one(result, tmp_path):
    kept = store(result, tmp_path)
    assert kept == tmp_path / "toy2009_figure-1.json"
    for protocol in ("quick", "reduced"):
        with pytest.raises(InputError, match=f"got one of the {protocol} protocol; remove the file first"):
            store(replace(result, protocol=protocol), tmp_path)
    assert read_result(kept) == result
    later = replace(result, date="2999-01-01")
    store(later, tmp_path)
    assert read_result(kept) == later


def test_a_fuller_protocol_replaces_a_lesser_one(result, tmp_path):
    store(replace(result, protocol="quick"), tmp_path)
    store(result, tmp_path)
    assert read_result(tmp_path / "toy2009_figure-1.json").protocol == "full"


def test_the_fullest_and_then_the_latest_result_is_shown(result, write_toy, tmp_path):
    runs, root = tmp_path / "runs", write_toy()
    assert last_result("toy2009/figure-1", runs) is None
    for protocol, date in (("full", "2020"), ("quick", "2024")):
        path = runs / "toy2009" / "figure-1" / protocol / "result.json"
        path.parent.mkdir(parents=True)
        path.write_text(replace(result, protocol=protocol, date=date).to_json())
    found = last_result("toy2009/figure-1", runs)
    assert found is not None
    assert (found.protocol, found.date) == ("full", "2020")
    (line,) = listed(root=root, runs=runs)
    assert (line.name, line.verdict, line.protocol, line.missing) == ("toy2009/figure-1", "reproduced", "full", ())


def test_a_damaged_result_is_refused_by_name(tmp_path):
    (tmp_path / "result.json").write_text('{"name": "x"}')
    with pytest.raises(FileFormatError, match=r"result\.json: expected a result"):
        read_result(tmp_path / "result.json")
