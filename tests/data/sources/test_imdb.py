import hashlib
import io
import json
import lzma
import tarfile

import numpy as np
import pytest

import sostenuto as so
from sostenuto.checks import FileFormatError
from sostenuto.data.sources import imdb
from sostenuto.data.sources.word_tokens import Vocabulary, tokenize

TRAIN = ["bad bad bad film", "A bad one.", "good film", "a GOOD good one<br /><br />yes"]
TEST = ["bad", "an unseen word"]


def put(folder, train=TRAIN, test=TEST) -> None:
    (folder / "imdb").mkdir(parents=True, exist_ok=True)
    for part, texts in (("train", train), ("test", test)):
        rows = [{"label": int(k >= len(texts) / 2), "id": k, "rating": 1, "text": text} for k, text in enumerate(texts)]
        with lzma.open(folder / "imdb" / f"imdb_{part}.jsonl.xz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def original() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for part, texts in (("test", TEST), ("train", TRAIN)):
            for k, text in reversed(list(enumerate(texts))):
                side = "pos" if k >= len(texts) / 2 else "neg"
                info = tarfile.TarInfo(f"aclImdb/{part}/{side}/{k}_7.txt")
                info.size = len(text.encode())
                archive.addfile(info, io.BytesIO(text.encode()))
        for name in ("aclImdb/train/unsup/0_0.txt", "aclImdb/README", "aclImdb/train/urls_pos.txt"):
            info = tarfile.TarInfo(name)
            info.size = 5
            archive.addfile(info, io.BytesIO(b"other"))
    return stream.getvalue()


def test_words_contractions_and_marks_are_tokens():
    assert tokenize("He DIDN'T say (1990's) 'yes'; I'll can't_x") == (
        ["he", "did", "n't", "say", "(", "1990", "'s", ")", "'", "yes", "'", ";", "i", "'ll", "ca", "n't", "_", "x"]
    )
    assert tokenize("naïve<br>café\x96") == ["naïve", "café", "\x96"]


def test_the_vocabulary_is_ordered_by_count_then_alphabet():
    for texts in (["b a", "c c a b"], ["a c b", "a b c"]):
        assert Vocabulary.of(texts, 3).words == ("<pad>", "<unk>", "a", "b", "c")


def test_ids_targets_and_vocabulary(data_folder):
    put(data_folder)
    data = so.datasets.load("imdb", data_folder)
    words = data.extras["vocabulary"]
    assert words[:7] == ("<pad>", "<unk>", "bad", "good", "a", "film", "one")
    decoded = {" ".join(words[index] for index in sequence) for sequence in data.train.sequences}
    assert decoded == {"bad bad bad film", "a bad one .", "good film", "a good good one yes"}
    assert all(sequence.dtype == np.int64 for sequence in data.train.sequences)
    assert data.train.is_tokens
    meaning = {
        words[sequence[-1]]: target for sequence, target in zip(data.train.sequences, data.train.targets, strict=True)
    }
    assert meaning == {"film": meaning["film"], ".": "negative", "yes": "positive"}
    assert sorted(sequence.tolist() for sequence in data.test.sequences) == [[1, 1, 1], [2]]
    assert "embedding" not in data.extras


def test_rare_words_are_unknown(data_folder, monkeypatch):
    put(data_folder)
    monkeypatch.setattr(imdb, "VOCABULARY_SIZE", 2)
    data = so.datasets.load("imdb", data_folder)
    assert data.extras["vocabulary"] == ("<pad>", "<unk>", "bad", "good")
    assert max(sequence.max() for sequence in data.train.sequences) == 3


def test_parts_are_shuffled_alike_every_time(data_folder):
    put(data_folder, train=[f"word{index}" for index in range(50)])
    first, second = (so.datasets.load("imdb", data_folder) for _ in range(2))
    assert first.train.checksum() == second.train.checksum()
    labels = first.train.targets == "positive"
    assert 0 < (labels[1:] != labels[:-1]).sum() < 49
    assert (labels[1:] != labels[:-1]).sum() > 5


def test_groups_are_blocks_of_neighbors_of_either_label(data_folder, monkeypatch):
    monkeypatch.setattr(imdb, "REVIEWS_A_GROUP", 10)
    put(data_folder, train=[f"word{index}" for index in range(50)])
    data = so.datasets.load("imdb", data_folder)
    words = np.array(data.extras["vocabulary"])
    number = np.array([int(words[one[0]].removeprefix("word")) for one in data.train.sequences])
    assert (data.train.groups == number % 25 // 10).all()


def test_the_original_archive_gives_the_same(data_folder, tmp_path):
    put(data_folder)
    lines = so.datasets.load("imdb", data_folder)
    other = tmp_path / "other"
    (other / "imdb").mkdir(parents=True)
    (other / "imdb" / "aclImdb_v1.tar.gz").write_bytes(original())
    archive = so.datasets.load("imdb", other)
    assert archive.train.checksum() == lines.train.checksum()
    assert archive.test.checksum() == lines.test.checksum()
    assert archive.extras["vocabulary"] == lines.extras["vocabulary"]


def test_downloads_verifies_and_converts(site, data_folder, monkeypatch):
    content = original()
    monkeypatch.setattr(imdb, "URL", site.put("aclImdb_v1.tar.gz", content))
    monkeypatch.setattr(imdb, "SHA256", hashlib.sha256(content).hexdigest())
    data = so.datasets.load("imdb", data_folder)
    put(data_folder)
    assert data.train.checksum() == so.datasets.load("imdb", data_folder).train.checksum()
    kept = data_folder.parent / "cache" / "imdb"
    assert sorted(path.name for path in kept.iterdir()) == ["imdb_test.jsonl.xz", "imdb_train.jsonl.xz"]
    assert imdb.read_lines(kept / "imdb_train.jsonl.xz")[0] == (0, TRAIN[0])


def test_vectors_are_found_for_the_words_that_have_one(data_folder):
    put(data_folder)
    vectors = np.arange(200, dtype=np.float32).reshape(2, 100)
    (data_folder / "glove100_imdb").mkdir()
    np.savez(data_folder / "glove100_imdb" / "glove100_imdb.npz", words=np.array("good\nbad"), vectors=vectors)
    data = so.datasets.load("imdb", data_folder)
    words, embedding = data.extras["vocabulary"], data.extras["embedding"]
    assert embedding.shape == (len(words), 100)
    assert embedding.dtype == np.float32
    assert np.array_equal(embedding[words.index("good")], vectors[0])
    assert np.array_equal(embedding[words.index("bad")], vectors[1])
    assert np.count_nonzero(embedding.any(axis=1)) == 2


def test_vectors_are_read_from_the_text_file_too(data_folder):
    put(data_folder)
    (data_folder / "glove").mkdir()
    path = data_folder / "glove" / "glove.6B.100d.txt"
    path.write_text("good " + " ".join(["0.5"] * 100) + "\nunasked 1 2\n", encoding="utf-8")
    data = so.datasets.load("imdb", data_folder)
    assert data.extras["embedding"][data.extras["vocabulary"].index("good")].tolist() == [0.5] * 100
    for line, message in (("good 1 2", "line 1: expected 100 numbers, got 2"), ("good x", "line 1: expected numbers")):
        path.write_text(line, encoding="utf-8")
        with pytest.raises(FileFormatError, match=message):
            so.datasets.load("imdb", data_folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected at least one review, got none"),
        ("{\n", "line 1: expected a JSON object"),
        ('{"label": 0, "text": "good"}\n[]\n', "line 2: expected a label of 0 or 1 and a text"),
        ('{"label": 2, "text": "good"}\n', "line 1: expected a label of 0 or 1 and a text"),
        ('{"label": 0}\n', "line 1: expected a label of 0 or 1 and a text"),
        ('{"label": 0, "text": " <br /> "}\n', "expected words in every review"),
    ],
)
def test_a_wrong_file_is_one_sentence(text, message, data_folder):
    put(data_folder)
    with lzma.open(data_folder / "imdb" / "imdb_test.jsonl.xz", "wt") as file:
        file.write(text)
    with pytest.raises(FileFormatError, match=message) as caught:
        so.datasets.load("imdb", data_folder)
    assert "imdb_test.jsonl.xz" in str(caught.value)


def test_a_damaged_file_is_one_sentence(data_folder):
    put(data_folder, train=[f"word{index} again" for index in range(500)])
    path = data_folder / "imdb" / "imdb_train.jsonl.xz"
    for content in (b"plain", path.read_bytes()[:-40]):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match="expected lines of JSON packed with xz, could not read it"):
            so.datasets.load("imdb", data_folder)


@pytest.mark.slow
def test_the_real_one(real_data):
    data = so.datasets.load("imdb")
    words, embedding = data.extras["vocabulary"], data.extras["embedding"]
    assert (len(data.train), len(data.test), len(words)) == (25000, 25000, 25002)
    assert words[2:8] == ("the", ".", ",", "and", "a", "of")
    for part in (data.train, data.test):
        assert (part.targets == "positive").sum() == 12500
        assert 0.4 < (part.targets[:1000] == "positive").mean() < 0.6
        assert min(sequence.min() for sequence in part.sequences) == 1
    assert embedding.shape == (25002, 100)
    covered = embedding.any(axis=1)
    assert covered.mean() > 0.95
    assert not covered[:2].any()
    assert embedding[words.index("the")][:2] == pytest.approx([-0.038194, -0.24487])
