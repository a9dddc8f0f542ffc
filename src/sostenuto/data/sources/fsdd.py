"""The free spoken digit data set: raw audio of ten spoken digits, truly long sequences of unequal length."""

import io
import wave
from pathlib import Path

import numpy as np

from sostenuto.checks import FileFormatError
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.download import fetch_recorded, members
from sostenuto.data.places import Places
from sostenuto.data.registry import Entry, Source
from sostenuto.data.sources.arrays import check_same_length, load_arrays, save_arrays

URL = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/v1.0.10.zip"
FORMS = (("fsdd/fsdd.npz",), ("fsdd/free-spoken-digit-dataset-1.0.10.zip",))
TEST_TAKES = 5
"""Takes 0 to 4 of every speaker and digit are the test part, by the data set's own rule."""

_AXES = {"audio": 1, "offsets": 1, "label": 1, "speaker": 1, "speaker_names": 1, "is_test": 1}
_ORIGIN = "Free Spoken Digit Dataset 1.0.10 (Jackson et al. 2018)"
_ADVICE = f"put {URL} as {FORMS[1][0]}"


def load(name: str, places: Places) -> Dataset:
    """Build ``fsdd``: (time, 1) audio in [-1, 1] at 8 kHz, 1148 to 18262 steps, grouped by speaker."""
    path = places.obtain(name, FORMS, _download, _ADVICE)[0]
    arrays = _checked(path, load_arrays(path, _AXES)) if path.suffix == ".npz" else read_recordings(path)
    audio = (arrays["audio"].astype(np.float32) / 32768)[:, None]
    whole = SequenceSet(
        sequences=np.split(audio, arrays["offsets"][1:-1]),
        targets=arrays["label"].astype(str),
        task="classification",
        groups=arrays["speaker_names"][arrays["speaker"]],
        channel_names=("sound pressure",),
        target_name="digit",
    )
    test = arrays["is_test"].astype(bool)
    return Dataset(
        name=name,
        train=whole.take(np.flatnonzero(~test)),
        test=whole.take(np.flatnonzero(test)),
        description="spoken digits, raw audio at 8 kHz; groups are the speakers",
        origin=_ORIGIN,
    )


def _checked(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    check_same_length(path, arrays, "label", "speaker", "is_test")
    offsets, count = arrays["offsets"], len(arrays["label"])
    whole = len(offsets) == count + 1 and offsets[0] == 0 and offsets[-1] == len(arrays["audio"])
    if not whole or (np.diff(offsets) <= 0).any():
        expected = f"expected {count + 1} growing offsets from 0 to {len(arrays['audio'])}"
        raise FileFormatError(path, expected, f"got {len(offsets)} that do not", "replace the file")
    if arrays["audio"].dtype != np.int16:
        raise FileFormatError(path, "expected int16 audio", f"got {arrays['audio'].dtype}", "replace the file")
    if arrays["speaker"].min() < 0 or arrays["speaker"].max() >= len(arrays["speaker_names"]):
        raise FileFormatError(path, "expected a name for every speaker", f"got {len(arrays['speaker_names'])} names")
    return arrays


def read_recordings(path: Path) -> dict[str, np.ndarray]:
    """Read ``recordings/DIGIT_SPEAKER_TAKE.wav`` from the archive, sorted by digit, speaker and take."""
    recordings: dict[tuple[int, str, int], np.ndarray] = {}
    for name, content in members(path, lambda name: name.suffix == ".wav" and name.parent.name == "recordings"):
        recordings[_key(path, name.stem)] = _samples(path, name.name, content)
    if not recordings:
        raise FileFormatError(path, "expected recordings/DIGIT_SPEAKER_TAKE.wav in the archive", "got none")
    keys = sorted(recordings)
    names = sorted({speaker for _, speaker, _ in keys})
    return {
        "audio": np.concatenate([recordings[key] for key in keys]),
        "offsets": np.cumsum([0, *(len(recordings[key]) for key in keys)]),
        "label": np.array([digit for digit, _, _ in keys], dtype=np.int8),
        "speaker": np.array([names.index(speaker) for _, speaker, _ in keys], dtype=np.int8),
        "speaker_names": np.array(names),
        "is_test": np.array([take < TEST_TAKES for _, _, take in keys]),
    }


def _key(path: Path, stem: str) -> tuple[int, str, int]:
    digit, _, rest = stem.partition("_")
    speaker, _, take = rest.rpartition("_")
    if not (digit.isdecimal() and speaker and take.isdecimal()):
        raise FileFormatError(path, "expected recordings named DIGIT_SPEAKER_TAKE.wav", f"got {stem!r}")
    return int(digit), speaker, int(take)


def _samples(path: Path, name: str, content: bytes) -> np.ndarray:
    try:
        with wave.open(io.BytesIO(content)) as recording:
            form = (recording.getnchannels(), recording.getsampwidth(), recording.getframerate())
            samples = np.frombuffer(recording.readframes(recording.getnframes()), "<i2" if form[1] == 2 else np.uint8)
    except (wave.Error, EOFError) as error:
        raise FileFormatError(path, f"expected {name} to be a WAV recording", f"could not read it ({error})") from error
    if form != (1, 2, 8000) or len(samples) == 0:
        got = f"got {form[0]} channels of {8 * form[1]} bits at {form[2]} Hz, {len(samples)} samples"
        raise FileFormatError(path, f"expected {name} to be 16-bit mono at 8000 Hz", got)
    return samples.astype(np.int16)


def _download(cache: Path) -> None:
    archive = cache / FORMS[1][0]
    try:
        arrays = fetch_recorded(URL, archive, cache / "fsdd" / "checksums.json", read_recordings)
        save_arrays(cache / FORMS[0][0], arrays)
    finally:
        archive.unlink(missing_ok=True)


SOURCE = Source(
    prefix="fsdd",
    entries=(
        Entry(
            name="fsdd",
            title="Free Spoken Digit Dataset, raw audio at 8 kHz, six speakers",
            task="classification",
            steps="1148 to 18262",
            channels="1",
            classes="10",
            sizes="2700 / 300",
            origin=_ORIGIN,
            license="CC BY-SA 4.0",
        ),
    ),
    names=("fsdd",),
    load=load,
    local=lambda places: ("fsdd",) if places.find(FORMS) else (),
)
