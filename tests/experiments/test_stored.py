"""Which results are kept, found again and listed."""

from dataclasses import replace

import pytest

from sostenuto.checks import FileFormatError
from sostenuto.experiments.listing import listed
from sostenuto.experiments.runner import reproduce
from sostenuto.experiments.stored import last_results, read_result, reruns, store
from sostenuto.experiments.summary import lands


@pytest.fixture
def result(write_toy, tmp_path):
    return reproduce("toy2009/figure-1", out=tmp_path / "out", root=write_toy(), device="cpu", progress=False)


def test_each_protocol_keeps_its_own_result(result, tmp_path):
    kept = store(result, tmp_path)
    assert kept == tmp_path / "toy2009_figure-1_paper.json"
    for protocol in ("quick", "ours", "reduced"):
        assert store(replace(result, protocol=protocol), tmp_path) == tmp_path / f"toy2009_figure-1_{protocol}.json"
    assert read_result(kept) == result
    later = replace(result, date="2999-01-01")
    store(later, tmp_path)
    assert read_result(kept) == later


def test_other_seeds_stand_beside_the_result(result, tmp_path):
    store(result, tmp_path)
    other = [replace(one, value=one.value and one.value + 1) for one in result.numbers]
    path = store(replace(result, seed=7, numbers=tuple(other)), tmp_path)
    assert path == tmp_path / "reruns" / "toy2009_figure-1_paper_7.json"
    assert read_result(tmp_path / "toy2009_figure-1_paper.json") == result
    (again,) = reruns(result, tmp_path)
    assert (again.seed, again.tables) == (7, ())
    assert lands(result.numbers[0], again.numbers[0]) == "one run"
    assert lands(result.numbers[1], again.numbers[1]) == "alike"
    assert lands(result.numbers[1], replace(again.numbers[1], verdict="law fails")) == "otherwise"


def test_the_latest_result_of_each_protocol_is_shown(result, write_toy, tmp_path):
    runs, root = tmp_path / "runs", write_toy()
    assert last_results("toy2009/figure-1", runs) == []
    for protocol, date in (("quick", "2024"), ("paper", "2020")):
        path = runs / "toy2009" / "figure-1" / protocol / "result.json"
        path.parent.mkdir(parents=True)
        path.write_text(replace(result, protocol=protocol, date=date).to_json())
    found = [(one.protocol, one.date) for one in last_results("toy2009/figure-1", runs)]
    assert found == [("paper", "2020"), ("quick", "2024")]
    (line,) = listed(root=root, runs=runs)
    assert (line.name, line.missing) == ("toy2009/figure-1", ())
    assert [(one.verdict, one.protocol) for one in line.results] == [("reproduced", "paper"), ("reproduced", "quick")]


def test_a_damaged_result_is_refused_by_name(tmp_path):
    (tmp_path / "result.json").write_text('{"name": "x"}')
    with pytest.raises(FileFormatError, match=r"result\.json: expected a result"):
        read_result(tmp_path / "result.json")
