"""docs/experiments.md tells what ``results/experiments`` holds, and every stored result is whole."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sostenuto.experiments.alemohammad2021.table_1.run import unequal_choice
from sostenuto.experiments.catalog import find, names
from sostenuto.experiments.expectation import MEASURED, NOT_RUN, ORDER, overall
from sostenuto.experiments.provenance import code_digest
from sostenuto.experiments.stored import read_result
from sostenuto.experiments.summary import page, replaced, stem, stored_results

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
FOLDER = ROOT / "results" / "experiments"
FILES = sorted(FOLDER.glob("*.json"))
RESULTS = stored_results(FOLDER)


def test_the_page_is_in_step_with_the_results():
    assert replaced(PAGE, FOLDER) == PAGE, "run: make verdicts"


def test_failures_come_first():
    places = [ORDER.index(one.verdict) for one in RESULTS]
    assert places == sorted(places)
    assert len(RESULTS) == len(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
class TestStored:
    def test_is_of_an_item_and_a_protocol_that_are_there(self, path):
        result = read_result(path)
        assert path.stem == stem(result)
        experiment = find(result.name)
        assert result.protocol in experiment.protocols
        assert [one.name for one in result.numbers] == list(experiment.expected)
        assert result.verdict == overall(result.numbers)

    def test_is_judged_by_the_rules(self, path):
        """The stored verdict of a number is what the rules make of it now."""
        result = read_result(path)
        for one, expectation in zip(result.numbers, find(result.name).expected.values(), strict=True):
            if one.value is not None and one.expected is not None:
                assert one.verdict == expectation.judge(one.value, one.spread, one.count), one.name
            if one.verdict in ("undecided", "not judged"):
                assert one.why, one.name

    def test_says_where_each_number_comes_from(self, path):
        result = read_result(path)
        assert result.command.startswith(f"sostenuto reproduce {result.name} --protocol {result.protocol} --seed ")
        assert result.commit
        assert result.code
        for one in result.numbers:
            assert one.recipe or one.verdict in (NOT_RUN, "not measured"), one.name
            assert one.value is None or len(one.seeds) == one.count, one.name
            if "with views" in one.name and one.value is not None:
                assert "with views (" in one.recipe, one.name
            if "with views (" in one.recipe:
                assert "with views" in one.name, one.name
        written = page(result)
        assert all(text in written for text in (result.command, result.commit, result.code))


def test_no_order_is_judged_where_kernels_were_chosen_among_unequally_many():
    """224 recurrent kernels beside 22 radial ones: first among them is no law."""
    (table,) = (one for one in RESULTS if one.name == "alemohammad2021/table-1")
    wide = [one for one in table.numbers if one.law and "(wide)" in one.name]
    assert len(wide) == 6
    for one in wide:
        columns = [part.rsplit(" ", 1)[0] for part in one.evidence.split(": ")[-1].split(", ")]
        assert (one.verdict, one.why) == ("not judged", unequal_choice(columns))


def test_every_record_that_an_item_names_is_there():
    for name in names():
        for record in re.findall(r"results/experiments/[\w-]+\.json", find(name).about):
            assert (ROOT / record).is_file(), f"{name} names {record}"


def test_every_item_is_told_of():
    for name in names():
        assert f"{name}" in PAGE
    assert MEASURED not in {one.verdict for one in RESULTS}


def test_an_edit_of_the_code_changes_its_digest_and_one_of_its_words_does_not(tmp_path):
    source = tmp_path / "run.py"
    source.write_text("from sostenuto.experiments.tasks.contest import compete\n")
    first = code_digest(source)
    source.write_text('"""Said."""\nfrom sostenuto.experiments.tasks.contest import compete  # why\n')
    second = code_digest(source)
    source.write_text('"""Said otherwise."""\n\nfrom sostenuto.experiments.tasks.contest import compete\n')
    assert code_digest(source) == second != first
    source.write_text("from sostenuto.experiments.tasks.sweeps import sweep\n")
    assert code_digest(source) not in (first, second)


@pytest.mark.parametrize("name", ["wang2024/figure-1", "alemohammad2021/figure-4a"])
def test_a_digest_covers_all_that_a_run_loads(name, tmp_path):
    """Modules loaded beyond those of the frame, by name at run time too, are among the files digested."""
    code = f"""
import sys
import subprocess
import sys
from pathlib import Path
from sostenuto.experiments import Workbench
from sostenuto.experiments.catalog import find
from sostenuto.experiments.provenance import PACKAGE, _shows, imported
frame, item = set(sys.modules), find({name!r})
bench = Workbench(item, item.settings("quick"), protocol="quick", folder=Path({str(tmp_path)!r}), progress=False)
item.load()(bench.settings, bench)
files = [getattr(sys.modules[one], "__file__", None) for one in set(sys.modules) - frame if "sostenuto." in one]
loaded = {{Path(file) for file in files if file}}
missed = {{path for path in loaded if not _shows(path)}} - imported(item.folder / "run.py")
assert loaded and not missed, missed
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
