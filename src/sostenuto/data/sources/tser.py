"""Time series extrinsic regression, ``tser/NAME``: a number for each series (heart rate, respiratory rate, …)."""

from pathlib import Path

from sostenuto.data.dataset import Dataset
from sostenuto.data.download import fetch_recorded
from sostenuto.data.places import Places
from sostenuto.data.registry import Entry, Source
from sostenuto.data.sources.archive import local_names, part_forms, read_dataset

RECORDS = {
    "AppliancesEnergy": 3902637,
    "AustraliaRainfall": 3902654,
    "BIDMC32HR": 4001456,
    "BIDMC32RR": 4001463,
    "BIDMC32SpO2": 4001464,
    "BeijingPM10Quality": 3902667,
    "BeijingPM25Quality": 3902671,
    "BenzeneConcentration": 3902673,
    "Covid3Month": 3902690,
    "FloodModeling1": 3902694,
    "FloodModeling2": 3902696,
    "FloodModeling3": 3902698,
    "HouseholdPowerConsumption1": 3902704,
    "HouseholdPowerConsumption2": 3902706,
    "IEEEPPG": 3902710,
    "LiveFuelMoistureContent": 4632439,
    "NewsHeadlineSentiment": 3902718,
    "NewsTitleSentiment": 3902726,
    "PPGDalia": 3902728,
}
"""The Zenodo record of each set in the Monash archive."""

_LIST = """
AcousticContaminationMadrid AluminiumConcentration BarCrawl6min BeijingIntAirportPM25Quality BinanceCoinSentiment
BitcoinSentiment BoronConcentration CalciumConcentration CardanoSentiment ChilledWaterPredictor CopperConcentration
Covid19Andalusia DailyOilGasPrices DailyTemperatureLatitude DhakaHourlyAirQuality ElectricMotorTemperature
ElectricityPredictor EthereumSentiment GasSensorArrayAcetone GasSensorArrayEthanol HotwaterPredictor
IronConcentration LPGasMonitoringHomeActivity MadridPM10Quality MagnesiumConcentration ManganeseConcentration
MethaneMonitoringHomeActivity MetroInterstateTrafficVolume NaturalGasPricesSentiment OccupancyDetectionLight
ParkingBirmingham PhosphorusConcentration PotassiumConcentration PrecipitationAndalusia SierraNevadaMountainsSnow
SodiumConcentration SolarRadiationAndalusia SteamPredictor SulphurConcentration Tecator TetuanEnergyConsumption
VentilatorPressure WaveDataTension WindTurbinePower ZincConcentration
"""
OTHERS = tuple(_LIST.split())
"""Later additions, to be fetched by hand from the archive's page."""

NAMES = tuple(sorted((*RECORDS, *OTHERS)))
FOLDERS = ("tser", "uea")
URL = "https://zenodo.org/record/"
PAGE = "http://tseregression.org"
_ORIGIN = "Monash, UEA and UCR time series extrinsic regression archive (Tan et al. 2021)"


def load(name: str, places: Places) -> Dataset:
    """Build ``tser/NAME`` from ``tser/NAME/NAME_TRAIN.ts`` and ``_TEST`` (also ``.gz``, also under ``uea``)."""
    short = name.removeprefix("tser/")
    record = RECORDS.get(short)
    source = PAGE if record is None else f"{URL}{record}"
    advice = f"put {short}_TRAIN.ts and {short}_TEST.ts of {source} in a folder tser/{short}"

    def download(cache: Path) -> None:
        from sostenuto.data.files import read

        for part in ("TRAIN", "TEST"):
            file = f"{short}_{part}.ts"
            address = f"{URL}{record}/files/{file}?download=1"
            target, book = cache / "tser" / short / file, cache / "tser" / "checksums.json"
            fetch_recorded(address, target, book, lambda path: read(path, task="regression"))

    forms = part_forms(short, FOLDERS, (".ts",))
    paths = places.obtain(name, forms, None if record is None else download, advice)
    return read_dataset(name, paths, "regression", _ORIGIN)


def local(places: Places) -> tuple[str, ...]:
    """Name the local sets: all under ``tser``, and the regression sets that lie with the UEA ones."""
    here = local_names(places, ("tser",), (".ts",)) | (local_names(places, ("uea",), (".ts",)) & set(NAMES))
    return tuple(f"tser/{name}" for name in sorted(here))


SOURCE = Source(
    prefix="tser",
    entries=(
        Entry(
            name="tser/NAME",
            title=f"TSER archive, {len(NAMES)} regression sets (BIDMC32RR, BIDMC32HR: vital signs, 4000 steps)",
            task="regression",
            steps="up to 4000",
            channels="1 or more",
            classes="",
            sizes="varies",
            origin=_ORIGIN,
            license="research use; cite Tan et al. 2021 and the set's own authors",
        ),
    ),
    names=tuple(f"tser/{name}" for name in NAMES),
    load=load,
    local=local,
)
