"""Where data sets are looked for, and in which order."""

from pathlib import Path

import pytest

from sostenuto.checks import InputError
from sostenuto.data.download import DownloadError
from sostenuto.data.places import Places


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(str(folder))


def test_the_order_is_data_dir_then_environment_then_cache(tmp_path, monkeypatch):
    for name in ("given", "environment"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("SOSTENUTO_DATA", str(tmp_path / "environment"))
    monkeypatch.setenv("SOSTENUTO_CACHE", str(tmp_path / "cache"))
    places = Places.of(tmp_path / "given")
    assert [folder.name for folder in places.folders] == ["given", "environment", "cache"]
    forms = [("a.txt",)]
    for name in ("cache", "environment", "given"):
        put(tmp_path / name, "a.txt")
        found = places.find(forms)
        assert found is not None
        assert found[0].parent.name == name


def test_the_cache_follows_xdg(tmp_path, monkeypatch):
    monkeypatch.delenv("SOSTENUTO_DATA", raising=False)
    monkeypatch.delenv("SOSTENUTO_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Places.of().cache == tmp_path / "sostenuto"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Places.of().cache == tmp_path / ".cache" / "sostenuto"


@pytest.mark.parametrize("name", ["data_dir", "$SOSTENUTO_DATA"])
def test_a_folder_that_is_not_there_is_said(name, data_folder, monkeypatch):
    absent = data_folder / "absent"
    if name != "data_dir":
        monkeypatch.setenv("SOSTENUTO_DATA", str(absent))
    with pytest.raises(InputError) as caught:
        Places.of(absent if name == "data_dir" else None)
    assert str(caught.value) == f"expected {name} to be a folder, got {str(absent)!r}."


def test_a_form_counts_only_when_it_is_whole(data_folder):
    places = Places.of(data_folder)
    forms = [("x/train", "x/test"), ("x/both",)]
    put(data_folder, "x/train")
    assert places.find(forms) is None
    put(data_folder, "x/both")
    assert places.find(forms) == (data_folder / "x/both",)
    put(data_folder, "x/test")
    assert places.find(forms) == (data_folder / "x/train", data_folder / "x/test")


def test_what_is_here_is_not_downloaded(data_folder):
    put(data_folder, "a.txt")
    places = Places.of(data_folder)
    assert places.obtain("a", [("a.txt",)], pytest.fail, "put a.txt") == (data_folder / "a.txt",)


def test_what_is_nowhere_is_downloaded_into_the_cache(data_folder):
    places = Places.of(data_folder)
    found = places.obtain("x/a", [("a.txt",)], lambda cache: put(cache, "a.txt"), "put a.txt")
    assert found == (places.cache / "a.txt",)
    assert [path.name for path in places.cache.iterdir()] == ["a.txt"]


def test_without_a_connection_it_says_what_to_put_where(data_folder):
    places = Places.of(data_folder)

    def download(cache: Path) -> None:
        raise DownloadError("http://x/a: no route")

    with pytest.raises(InputError) as caught:
        places.obtain("a", [("a.txt",)], download, "put a.txt (from http://x/a)")
    assert str(caught.value) == (
        f"expected the data set 'a' on disk, found it neither in {data_folder}, {places.cache} nor online "
        f"(http://x/a: no route); put a.txt (from http://x/a), under {data_folder}."
    )
    with pytest.raises(InputError, match="it has no public address"):
        places.obtain("a", [("a.txt",)], None, "put a.txt")


def test_a_cache_that_cannot_be_written_is_one_sentence(data_folder, monkeypatch):
    (data_folder / "file").write_text("")
    monkeypatch.setenv("SOSTENUTO_CACHE", str(data_folder / "file" / "cache"))
    with pytest.raises(InputError, match=r"expected the data set 'a' on disk.*put a"):
        Places.of(data_folder).obtain("a", [("a",)], pytest.fail, "put a")
