"""Names, listings, and what happens to a name nobody knows."""

import json
from pathlib import Path

import pytest

import sostenuto as so
from sostenuto.checks import InputError
from sostenuto.data import registry, sources
from sostenuto.data.registry import Entry

SHARED = {"__init__", "archive", "arrays", "glove", "noise_padding", "pixels", "word_tokens"}


def test_every_source_file_is_registered():
    files = {path.stem for path in Path(sources.__path__[0]).glob("*.py")}
    assert files - SHARED == set(registry.MODULES)


def test_names_are_unique_and_begin_with_their_source():
    names = [name for source in registry.sources() for name in source.names]
    assert len(set(names)) == len(names)
    for source in registry.sources():
        assert all(name.split("/")[0] == source.prefix for name in source.names)
        listed = {entry.name for entry in source.entries}
        assert listed == set(source.names) or listed == {f"{source.prefix}/NAME"}


def test_archives_have_the_published_number_of_sets():
    counts = {source.prefix: len(source.names) for source in registry.sources()}
    assert (counts["ucr"], counts["uea"], counts["tser"]) == (128, 30, 64)


def test_without_data_only_embedded_and_generated_sets_are_available(data_folder):
    entries = so.datasets.list(data_folder)
    here = {entry.name for entry in entries if entry.available and not entry.name.startswith("task/")}
    assert here == {"digits", "digits/permuted", "digits/noise-padded"}
    assert not (data_folder.parent / "cache").exists()


def test_a_listing_shows_what_is_here(data_folder):
    for name in ("ucr/Mine/Mine_TRAIN.tsv", "ucr/Mine/Mine_TEST.tsv", "ucr/Half/Half_TRAIN.tsv", "uea_npz/Other.npz"):
        (data_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (data_folder / name).touch()
    local = {entry.name: entry.local for entry in so.datasets.list(data_folder)}
    assert local["ucr/NAME"] == ("ucr/Mine",)
    assert local["uea/NAME"] == ("uea/Other",)
    assert local["mnist"] == ()


def test_an_entry_is_a_record():
    entry = so.datasets.list()[0]
    assert Entry.from_dict(json.loads(entry.to_json())) == entry
    with pytest.raises(AttributeError):
        entry.name = "other"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ucr/GunPont", "'ucr/GunPoint'"),
        ("ucr/nsectEPGRegular", "'ucr/InsectEPGRegularTrain'"),
        ("ucr/Faceall", "'ucr/FaceAll'"),
        ("uea/Covid3Month", "'tser/Covid3Month'"),
        ("MNIST", "'mnist'"),
        ("cifar10", "'cifar10/pixels'"),
        ("mnist/permutted", "'mnist/permuted'"),
    ],
)
def test_an_unknown_name_is_answered_with_close_ones(name, meant, data_folder):
    with pytest.raises(InputError) as caught:
        so.datasets.load(name, data_folder)
    message = str(caught.value)
    assert message.startswith(f"expected the name of a data set, got {name!r}; did you mean ")
    assert meant in message
    assert "datasets.list()" in message


@pytest.mark.parametrize("name", ["", "nothing like it", "ucr", "ucr/", "ucr/../../etc", "/etc/passwd"])
def test_a_strange_name_is_one_sentence(name, data_folder):
    with pytest.raises(InputError, match="expected the name of a data set"):
        so.datasets.load(name, data_folder)


@pytest.mark.parametrize(
    "name",
    ["mnist", "cifar10/pixels", "ucr/Coffee", "uea/EigenWorms", "tser/BIDMC32RR", "tser/Tecator", "imdb", "fsdd"],
)
def test_offline_every_source_says_what_to_put_where(name, data_folder, no_site, monkeypatch):
    from sostenuto.data.sources import archive, cifar10, fsdd, imdb, mnist, tser

    for module in (archive, cifar10, fsdd, imdb, mnist, tser):
        monkeypatch.setattr(module, "URL", no_site)
    with pytest.raises(InputError) as caught:
        so.datasets.load(name, data_folder)
    message = str(caught.value)
    assert message.startswith(f"expected the data set {name!r} on disk, found it neither in {data_folder}, ")
    assert "; put " in message
    assert message.endswith(f", under {data_folder}.")
    assert list((data_folder.parent / "cache").rglob("*.part")) == []


def test_google_stock_has_no_address(data_folder):
    with pytest.raises(InputError, match=r"no public address.*put google_stock/GOOG\.csv \(columns Date, Open"):
        so.datasets.load("google-stock", data_folder)


def test_the_shared_data_is_seen(real_data):
    entries = {entry.name: entry for entry in so.datasets.list()}
    assert all(entry.available for entry in entries.values())
    assert len(entries["ucr/NAME"].local) >= 59
    assert set(entries["tser/NAME"].local) == {"tser/CardanoSentiment", "tser/Covid3Month", "tser/Tecator"}
    assert "uea/Covid3Month" not in entries["uea/NAME"].local
