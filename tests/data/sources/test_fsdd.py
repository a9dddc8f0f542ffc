import io
import wave
import zipfile

import numpy as np
import pytest

import sostenuto as so
from sostenuto.checks import FileFormatError
from sostenuto.data.sources import fsdd

RANDOM = np.random.RandomState(0)
TAKES = {
    (digit, speaker, take): RANDOM.randint(-32768, 32768, 20 + take).astype(np.int16)
    for digit in range(3)
    for speaker in ("anna", "yo_el")
    for take in (0, 4, 5, 10)
}


def recording(samples: np.ndarray, rate: int = 8000, width: int = 2) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2" if width == 2 else np.uint8).tobytes())
    return stream.getvalue()


def packed(extra: dict[str, bytes] | None = None) -> bytes:
    root = "free-spoken-digit-dataset-1.0.10"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr(f"{root}/README.md", "about")
        file.writestr(f"{root}/acquire_data/other.wav", b"not a take")
        for (digit, speaker, take), samples in reversed(TAKES.items()):
            file.writestr(f"{root}/recordings/{digit}_{speaker}_{take}.wav", recording(samples))
        for name, content in (extra or {}).items():
            file.writestr(f"{root}/recordings/{name}", content)
    return stream.getvalue()


def put(folder, content: bytes) -> None:
    (folder / "fsdd").mkdir()
    (folder / "fsdd" / "free-spoken-digit-dataset-1.0.10.zip").write_bytes(content)


def check(data) -> None:
    assert (len(data.train), len(data.test)) == (12, 12)
    keys = sorted(TAKES)
    for part, wanted in (
        (data.train, [key for key in keys if key[2] > 4]),
        (data.test, [key for key in keys if key[2] < 5]),
    ):
        assert part.targets.tolist() == [str(digit) for digit, _, _ in wanted]
        assert part.groups.tolist() == [speaker for _, speaker, _ in wanted]
        for sequence, key in zip(part.sequences, wanted, strict=True):
            assert np.array_equal(sequence[:, 0] * 32768, TAKES[key])


def test_reads_the_archive(data_folder):
    put(data_folder, packed())
    check(so.datasets.load("fsdd", data_folder))


def test_downloads_and_converts(site, data_folder, monkeypatch):
    monkeypatch.setattr(fsdd, "URL", site.put("v1.0.10.zip", packed()))
    check(so.datasets.load("fsdd", data_folder))
    check(so.datasets.load("fsdd", data_folder))
    assert len(site.requests) == 1
    kept = sorted(path.name for path in (data_folder.parent / "cache" / "fsdd").iterdir())
    assert kept == ["checksums.json", "fsdd.npz"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.wav", recording(np.zeros(3)), r"expected recordings named DIGIT_SPEAKER_TAKE\.wav, got 'x'"),
        ("1_a_1.wav", b"noise", r"expected 1_a_1\.wav to be a WAV recording"),
        ("1_a_1.wav", recording(np.zeros(3), rate=44100), "at 8000 Hz, got 1 channels of 16 bits at 44100 Hz"),
        ("1_a_1.wav", recording(np.zeros(3), width=1), "expected 1_a_1.wav to be 16-bit"),
        ("1_a_1.wav", recording(np.zeros(0)), "0 samples"),
    ],
)
def test_a_wrong_recording_is_one_sentence(name, content, message, data_folder):
    put(data_folder, packed({name: content}))
    with pytest.raises(FileFormatError, match=message):
        so.datasets.load("fsdd", data_folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": np.array([0, 5])}, "expected 3 growing offsets from 0 to 9"),
        ({"offsets": np.array([0, 5, 8])}, "growing offsets"),
        ({"offsets": np.array([0, 0, 9])}, "growing offsets"),
        ({"audio": np.zeros(9)}, "expected int16 audio, got float64"),
        ({"label": np.array([1])}, "expected as many rows"),
        ({"speaker": np.array([0, 1])}, "expected a name for every speaker"),
    ],
)
def test_a_wrong_file_is_one_sentence(change, message, data_folder):
    arrays = {
        "audio": np.zeros(9, np.int16),
        "offsets": np.array([0, 5, 9]),
        "label": np.array([1, 2]),
        "speaker": np.array([0, 0]),
        "speaker_names": np.array(["anna"]),
        "is_test": np.array([True, False]),
    }
    (data_folder / "fsdd").mkdir()
    np.savez(data_folder / "fsdd" / "fsdd.npz", **arrays)
    assert len(so.datasets.load("fsdd", data_folder).train) == 1
    np.savez(data_folder / "fsdd" / "fsdd.npz", **(arrays | change))
    with pytest.raises(FileFormatError, match=message):
        so.datasets.load("fsdd", data_folder)


def test_the_real_one(real_data):
    data = so.datasets.load("fsdd")
    assert (len(data.train), len(data.test)) == (2700, 300)
    lengths = [len(sequence) for part in (data.train, data.test) for sequence in part.sequences]
    assert (min(lengths), max(lengths)) == (1148, 18262)
    assert sorted(set(data.train.groups)) == ["george", "jackson", "lucas", "nicolas", "theo", "yweweler"]
    assert all((data.test.targets == str(digit)).sum() == 30 for digit in range(10))
    assert max(float(abs(sequence).max()) for sequence in data.train.sequences) <= 1.0
