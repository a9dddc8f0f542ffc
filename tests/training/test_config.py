import math
import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sostenuto.checks import FileFormatError, InputError
from sostenuto.training.config import DataConfig, ModelConfig, RunConfig, TrainingConfig, dump_toml

# Everything but lone surrogates, which no UTF-8 file can hold.
TEXT = st.text(st.characters(exclude_categories=("Cs",)))
SCALARS = TEXT | st.integers() | st.booleans() | st.floats(allow_nan=False)
TABLES = st.recursive(
    st.dictionaries(TEXT, SCALARS | st.lists(SCALARS)),
    lambda inner: st.dictionaries(TEXT, SCALARS | inner),
    max_leaves=8,
)


@given(TABLES)
@example(
    {"a": 'say "x" \\ \' \n\r\t\0\x7f\x1b', "": "", "ключ": "значение", "a.b": 1, "\U000e0001": "\U000f0000💩\u2028"}
)
def test_toml_is_read_back_as_it_was(table: dict[str, Any]):
    assert tomllib.loads(dump_toml(table)) == table


@given(source=TEXT, target=TEXT, word=TEXT, rate=st.floats(1e-300, 1e300), seed=st.integers(0, 2**63 - 1))
@example('C:\\new\\"x".csv', "\x00\x85\u2029", "ä\U0010ffff", 0.1, 0)
def test_run_config_round_trip(source: str, target: str, word: str, rate: float, seed: int):
    config = RunConfig(
        DataConfig(source=source, target=target, missing="mask", validation=0.0),
        ModelConfig(layer="gru", options={"hidden_size": 8, "word": word, "step_size": [0.1, 2.0], "positive": True}),
        TrainingConfig(learning_rate=rate, step_epochs=(3, 7), seed=seed, ema_decay=0.5),
    )
    assert RunConfig.from_toml(config.to_toml()) == config


def test_the_file_is_utf8_and_every_key_is_there(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(RunConfig(DataConfig(source="größe.csv")).to_toml(), encoding="utf-8")
    assert RunConfig.load(path).data.source == "größe.csv"
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    assert written["training"].keys() == vars(TrainingConfig()).keys()


def test_numbers_that_are_not_finite_and_numpys():
    text = dump_toml({"a": math.inf, "b": -math.inf, "c": math.nan, "d": np.float64(0.1)})
    read = tomllib.loads(text)
    assert (read["a"], read["b"], read["d"]) == (math.inf, -math.inf, 0.1)
    assert math.isnan(read["c"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[training]\nepoch = 3", r"expected keys of training among epochs, .*, got epoch; \[training\] has epochs\."),
        ("seed = 3", r"among data, model, training, got seed; \[training\] has seed\."),
        ("[trainings]", "expected keys of a run among data, model, training, got trainings"),
        ("[training]\nepochs = 'ten'", r"expected training\.epochs to be a whole number, got 'ten'\."),
        ("[training]\nepochs = 2.0", r"expected training\.epochs to be a whole number, got 2\.0\."),
        ("[training]\nepochs = true", r"expected training\.epochs to be a whole number, got True\."),
        ("[training]\nlearning_rate = '0.1'", r"expected training\.learning_rate to be a number, got '0\.1'\."),
        ("[training]\nlearning_rate = false", r"expected training\.learning_rate to be a number, got False\."),
        ("[training]\nstep_epochs = 3", r"expected training\.step_epochs to be a list of whole numbers, got 3\."),
        ("[training]\nstep_epochs = [1, 'b']", r"expected training\.step_epochs to be a list of whole numbers"),
        ("[training]\nstep_epochs = [0]", "expected step_epochs to be a whole number of at least 1, got 0"),
        ("[data]\nsource = 3", r"expected data\.source to be a text, got 3\."),
        ("data = 3", r"expected data to be a table, got 3\."),
        ("[model]\noptions = 3", r"expected model\.options to be a table, got 3\."),
        ("[model.options]\nreadout = 'mean'", "expected options of the layer alone, got readout"),
        ("[model]\nreadout = 'median'", "expected readout to be one of 'last', 'mean', 'max', got 'median'"),
        ("[model]\nembedding_size = 0", "embedding_size"),
        ("[training]\nepochs = 0", "expected epochs to be a whole number of at least 1, got 0"),
        ("[training]\nlearning_rate = nan", "expected learning_rate to be a finite number above 0, got nan"),
        ("[training]\nseed = 9223372036854775808", "expected seed to be below"),
        ("[training]\nema_decay = 1.0", "ema_decay"),
        ("[training]\noptimizer = 'lion'", "optimizer to be one of 'adamw', 'adam', 'sgd', 'muon', got 'lion'"),
        ("[training]\nschedule = 'warm'", "schedule"),
        ("[data]\nvalidation = 1.5", "validation"),
        ("[data]\nlayout = 'tbc'", "layout"),
    ],
)
def test_what_is_wrong_is_refused_by_name(text, message):
    with pytest.raises(InputError, match=message):
        RunConfig.from_toml(text)


def test_whole_numbers_serve_as_numbers():
    assert RunConfig.from_toml("[training]\nlearning_rate = 1").training.learning_rate == 1.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[training\n", "expected TOML, got"),
        (b"\xff", "expected TOML, got"),
        (b"[training]\nepochs = 0\n", "expected epochs"),
        (None, "expected a readable config file, got No such file"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, message):
    path = tmp_path / "config.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        RunConfig.load(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_folder_is_no_config(tmp_path):
    with pytest.raises(FileFormatError, match="expected a readable config file"):
        RunConfig.load(tmp_path)


def test_what_toml_cannot_hold_is_refused():
    with pytest.raises(InputError, match="expected a string, number, boolean or list in a config, got NoneType"):
        dump_toml({"a": None})
    with pytest.raises(InputError, match="expected text that UTF-8 can hold"):
        dump_toml({"source": "caf\udce9.csv"})
