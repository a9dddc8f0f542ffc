"""The UCR archive: 128 sets of one-channel series, ``ucr/NAME``."""

from sostenuto.data.dataset import Dataset
from sostenuto.data.places import Places
from sostenuto.data.registry import Entry, Source
from sostenuto.data.sources.archive import PAGE, URL, download_zip, local_names, part_forms, read_dataset

_LIST = """
ACSF1 Adiac AllGestureWiimoteX AllGestureWiimoteY AllGestureWiimoteZ ArrowHead BME Beef BeetleFly BirdChicken CBF
Car Chinatown ChlorineConcentration CinCECGTorso Coffee Computers CricketX CricketY CricketZ Crop
DiatomSizeReduction DistalPhalanxOutlineAgeGroup DistalPhalanxOutlineCorrect DistalPhalanxTW DodgerLoopDay
DodgerLoopGame DodgerLoopWeekend ECG200 ECG5000 ECGFiveDays EOGHorizontalSignal EOGVerticalSignal Earthquakes
ElectricDevices EthanolLevel FaceAll FaceFour FacesUCR FiftyWords Fish FordA FordB FreezerRegularTrain
FreezerSmallTrain Fungi GestureMidAirD1 GestureMidAirD2 GestureMidAirD3 GesturePebbleZ1 GesturePebbleZ2 GunPoint
GunPointAgeSpan GunPointMaleVersusFemale GunPointOldVersusYoung Ham HandOutlines Haptics Herring HouseTwenty
InlineSkate InsectEPGRegularTrain InsectEPGSmallTrain InsectWingbeatSound ItalyPowerDemand LargeKitchenAppliances
Lightning2 Lightning7 Mallat Meat MedicalImages MelbournePedestrian MiddlePhalanxOutlineAgeGroup
MiddlePhalanxOutlineCorrect MiddlePhalanxTW MixedShapesRegularTrain MixedShapesSmallTrain MoteStrain
NonInvasiveFetalECGThorax1 NonInvasiveFetalECGThorax2 OSULeaf OliveOil PLAID PhalangesOutlinesCorrect Phoneme
PickupGestureWiimoteZ PigAirwayPressure PigArtPressure PigCVP Plane PowerCons ProximalPhalanxOutlineAgeGroup
ProximalPhalanxOutlineCorrect ProximalPhalanxTW RefrigerationDevices Rock ScreenType SemgHandGenderCh2
SemgHandMovementCh2 SemgHandSubjectCh2 ShakeGestureWiimoteZ ShapeletSim ShapesAll SmallKitchenAppliances
SmoothSubspace SonyAIBORobotSurface1 SonyAIBORobotSurface2 StarLightCurves Strawberry SwedishLeaf Symbols
SyntheticControl ToeSegmentation1 ToeSegmentation2 Trace TwoLeadECG TwoPatterns UMD UWaveGestureLibraryAll
UWaveGestureLibraryX UWaveGestureLibraryY UWaveGestureLibraryZ Wafer Wine WordSynonyms Worms WormsTwoClass Yoga
"""
NAMES = tuple(_LIST.split())
FOLDERS = ("ucr", "uea")
SUFFIXES = (".tsv", ".ts", ".txt")
_ORIGIN = "UCR time series archive 2018 (Dau et al. 2019)"


def load(name: str, places: Places) -> Dataset:
    """Build ``ucr/NAME`` from ``ucr/NAME/NAME_TRAIN.tsv`` and ``_TEST`` (or ``.ts``, ``.txt``; each also ``.gz``)."""
    short = name.removeprefix("ucr/")
    files = f"{short}_TRAIN.tsv and {short}_TEST.tsv (or .ts, from {URL}{short}.zip; see {PAGE})"
    advice = f"put {files} in a folder ucr/{short}"
    forms = part_forms(short, FOLDERS, SUFFIXES)
    paths = places.obtain(name, forms, lambda cache: download_zip(short, cache / "ucr" / short), advice)
    return read_dataset(name, paths, "classification", _ORIGIN)


def local(places: Places) -> tuple[str, ...]:
    """Name the local sets: all under ``ucr``, and the UCR sets that lie with the UEA ones."""
    here = local_names(places, ("ucr",), SUFFIXES) | (local_names(places, ("uea",), SUFFIXES) & set(NAMES))
    return tuple(f"ucr/{name}" for name in sorted(here))


SOURCE = Source(
    prefix="ucr",
    entries=(
        Entry(
            name="ucr/NAME",
            title=f"UCR archive, {len(NAMES)} sets of one-channel series",
            task="classification",
            steps="15 to 2844",
            channels="1",
            classes="2 to 60",
            sizes="16 to 8926 / 20 to 16800",
            origin=_ORIGIN,
            license="research use; cite Dau et al. 2019",
        ),
    ),
    names=tuple(f"ucr/{name}" for name in NAMES),
    load=load,
    local=local,
)
