"""``sostenuto gram``: the Gram matrix of a data set, on this machine or on a cluster."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sostenuto.cli.errors import guarded
from sostenuto.cli.options import FILE_OPTIONS, DataDirOption, JsonOption, QuietOption, named_values, takes_settings
from sostenuto.cli.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

OSCILLATORS = "oscillators"


@guarded
@takes_settings(data=("task", *FILE_OPTIONS, "most_unpacked"))
def gram(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A file or a data-set name; its training part is used.")],
    out: Annotated[Path, typer.Option(help="File of the matrix, .zarr or .npy.")],
    settings: dict[str, dict[str, Any]],
    kernel: Annotated[str, typer.Option(help="rntk, ntk, oscillators, signature, rbf or polynomial.")] = "rntk",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="Kernel option, e.g. -o sigma_w=1.4. Repeatable."),
    ] = None,
    scheduler: Annotated[str, typer.Option(help="Address of a dask scheduler; default: this machine.")] = "",
    part: Annotated[str, typer.Option(help="Rows: train, test, or cross (test against train).")] = "train",
    unit_norm: Annotated[
        bool | None, typer.Option(help="Scale each sequence to norm 1; default: for every kernel but oscillators.")
    ] = None,
    tile_size: Annotated[int, typer.Option(help="Sequences per side of a tile.")] = 512,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compute a Gram matrix tile by tile; after a crash, the same call resumes it."""
    from sostenuto.checks import check_choice, require
    from sostenuto.data.source import open_dataset
    from sostenuto.estimators.rntk.base import unit_norm as scaled
    from sostenuto.kernels.gram import gram as compute
    from sostenuto.kernels.gram.cluster import connect
    from sostenuto.training.config import DataConfig, overlaid

    check_choice("part", part, ("train", "test", "cross"))
    data_settings = overlaid(DataConfig(), {**settings["data"], "source": data})
    dataset = open_dataset(data_settings, data_dir=data_dir)
    require(part == "train" or dataset.test is not None, "expected a test part", f"got none in {dataset.name}")

    unit_norm = kernel != OSCILLATORS if unit_norm is None else unit_norm

    def sequences(which: Any) -> list[Any]:
        require(not which.is_tokens, "expected channels of numbers", "got tokens", "choose another data set")
        return [scaled(sequence.astype(float)) for sequence in which.sequences] if unit_norm else list(which.sequences)

    left = sequences(dataset.train if part == "train" else dataset.test)
    right = sequences(dataset.train) if part == "cross" else None
    begun = time.perf_counter()
    client = connect(scheduler) if scheduler else None
    try:
        matrix = compute(
            _kernel(kernel, named_values(option), lambda: sequences(dataset.train)),
            left,
            right,
            client=client,
            out=out,
            progress=not quiet and not as_json,
            tile_size=tile_size,
        )
    finally:
        if client is not None:
            client.close()
    facts = {"matrix": str(out), "shape": list(matrix.shape), "seconds": round(time.perf_counter() - begun, 3)}
    print(json.dumps(facts) if as_json else table([(name, str(value)) for name, value in facts.items()]))


def _kernel(name: str, options: dict[str, Any], reference: "Callable[[], list[Any]]") -> Any:
    """Make the kernel; that of oscillators learns scales from a reference."""
    from sostenuto.checks import InputError, check_choice
    from sostenuto.estimators import OscillatorKernel
    from sostenuto.kernels import NTK, RBF, Polynomial, RecurrentNTK, Signature

    known: dict[str, Any] = {
        "rntk": RecurrentNTK,
        "ntk": NTK,
        OSCILLATORS: OscillatorKernel,
        "signature": Signature,
        "rbf": RBF,
        "polynomial": Polynomial,
    }
    check_choice("kernel", name, known)
    try:
        return OscillatorKernel(reference(), **options) if name == OSCILLATORS else known[name](**options)
    except TypeError as error:
        raise InputError(f"expected options of {known[name].__name__}, got {error}.") from error
