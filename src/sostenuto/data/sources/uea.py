"""The UEA archive: sets of series with several channels, ``uea/NAME``; EigenWorms is one of them."""

from sostenuto.data.dataset import Dataset
from sostenuto.data.places import Places
from sostenuto.data.registry import Entry, Source
from sostenuto.data.sources import tser
from sostenuto.data.sources.archive import PAGE, URL, download_zip, local_names, part_forms, read_dataset

_LIST = """
ArticularyWordRecognition AtrialFibrillation BasicMotions CharacterTrajectories Cricket DuckDuckGeese ERing
EigenWorms Epilepsy EthanolConcentration FaceDetection FingerMovements HandMovementDirection Handwriting Heartbeat
InsectWingbeat JapaneseVowels LSST Libras MotorImagery NATOPS PEMS-SF PenDigits PhonemeSpectra RacketSports
SelfRegulationSCP1 SelfRegulationSCP2 SpokenArabicDigits StandWalkJump UWaveGestureLibrary
"""
NAMES = tuple(_LIST.split())
_ORIGIN = "UEA multivariate time series classification archive 2018 (Bagnall et al. 2018)"


def load(name: str, places: Places) -> Dataset:
    """Build ``uea/NAME`` from ``uea/NAME/NAME_TRAIN.ts`` and ``_TEST`` (also ``.gz``), or from ``uea_npz/NAME.npz``.

    An ``.npz`` file holds ``X_train``, ``y_train``, ``X_test``, ``y_test`` with ``X`` of shape (n, time, channel).
    """
    short = name.removeprefix("uea/")
    advice = f"put {short}_TRAIN.ts and {short}_TEST.ts (from {URL}{short}.zip; see {PAGE}) in a folder uea/{short}"
    forms = (*part_forms(short, ("uea",), (".ts",)), (f"uea_npz/{short}.npz",))
    paths = places.obtain(name, forms, lambda cache: download_zip(short, cache / "uea" / short), advice)
    return read_dataset(name, paths, "classification", _ORIGIN)


def local(places: Places) -> tuple[str, ...]:
    """Name the local sets, without the regression sets among them."""
    here = local_names(places, ("uea",), (".ts",)) - set(tser.NAMES)
    here |= {path.stem for path in places.matching("uea_npz/*.npz")}
    return tuple(f"uea/{name}" for name in sorted(here))


SOURCE = Source(
    prefix="uea",
    entries=(
        Entry(
            name="uea/NAME",
            title=f"UEA archive, {len(NAMES)} sets of many-channel series (EigenWorms: 17984 steps)",
            task="classification",
            steps="2 to 17984",
            channels="2 to 1345",
            classes="2 to 39",
            sizes="12 to 30000 / 15 to 20000",
            origin=_ORIGIN,
            license="research use; cite Bagnall et al. 2018",
        ),
    ),
    names=tuple(f"uea/{name}" for name in NAMES),
    load=load,
    local=local,
)
