"""Gram matrices by tiles: the same numbers on threads, on a cluster and on disk, through crashes and lost workers."""

# ruff: noqa: N802, N803, N806 (X, Y and K are the names of the contract)

import errno
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

import sostenuto as so
from sostenuto.checks import FileFormatError, InputError, MissingExtraError, SostenutoError
from sostenuto.data.files.atomic import locked
from sostenuto.kernels import RBF
from sostenuto.kernels.gram import gram
from sostenuto.kernels.gram.cluster import computed_on_cluster, connect
from sostenuto.kernels.gram.fingerprint import fingerprint
from sostenuto.kernels.gram.packed import PackedSequences
from sostenuto.kernels.gram.storage import NpyStore, ZarrStore
from sostenuto.kernels.gram.tiles import TileGrid, Work, compute_tile
from tests.laws.kernel_laws import sample

zarr = pytest.importorskip("zarr")
distributed = pytest.importorskip("distributed")
KERNEL = RBF(2.0)
SIZE = 5
PATHS = ("gram.npy", "gram.zarr")


@pytest.fixture
def X():
    return sample(*np.random.default_rng(0).integers(2, 9, 23))


@pytest.fixture
def K(X):
    return so.kernels.gram(KERNEL, X, progress=False, tile_size=SIZE)


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def computed(X, **options):
    return so.kernels.gram(KERNEL, X, **{"progress": False, "tile_size": SIZE, **options})


class Failing(RBF):
    """Ends the computation after some tiles, as a crash would."""

    tiles = 0

    def gram(self, left, right):
        Failing.tiles -= 1
        if Failing.tiles < 0:
            raise KeyboardInterrupt
        return super().gram(left, right)


class TestTiles:
    def test_they_make_the_matrix(self, X, K):
        np.testing.assert_allclose(K, KERNEL(X), rtol=1e-14)
        np.testing.assert_array_equal(K, K.T)
        np.testing.assert_allclose(computed(X, Y=X[:7]), KERNEL(X, X[:7]), rtol=1e-14)
        np.testing.assert_allclose(computed(X, tile_size=1000), K, rtol=1e-14)

    def test_each_pair_of_a_symmetric_matrix_is_computed_once(self, X):
        seen = []

        class Watching(RBF):
            def gram(self, left, right):
                seen.append((len(left), len(right)))
                return super().gram(left, right)

        so.kernels.gram(Watching(), X, progress=False, tile_size=SIZE)
        assert len(seen) == 15
        seen.clear()
        so.kernels.gram(Watching(), X, X, progress=False, tile_size=SIZE)
        assert len(seen) == 25

    @pytest.mark.parametrize("threads", [1, 3])
    def test_threads_give_the_same_bits(self, X, K, threads):
        torch.set_num_threads(threads)
        np.testing.assert_array_equal(computed(X), K)

    def test_combined_kernels(self, X):
        combined = 2.0 * KERNEL + RBF(0.5) * KERNEL + WhiteKernel(0.1)
        found = so.kernels.gram(combined, X, progress=False, tile_size=SIZE)
        np.testing.assert_allclose(found, combined(X), rtol=1e-14)

    def test_a_bar_shows_the_tiles(self, X, capsys):
        computed(X, progress=True)
        assert "15/15" in capsys.readouterr().err

    def test_the_name_is_the_function_however_it_is_reached(self):
        program = (
            "import sostenuto.kernels.gram, sostenuto as so; from sostenuto.kernels import gram; "
            "print(so.kernels.gram is gram, callable(gram), 'distributed' in __import__('sys').modules)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["True", "True", "False"]

    def test_bad_input_is_refused(self, X):
        with pytest.raises(InputError, match="X: sequence 1: expected at least one step"):
            computed([X[0], np.zeros((0, 2))])
        with pytest.raises(InputError, match="Y: expected 2 channels as in X, got 3"):
            computed(X, Y=sample(4, channels=3))
        with pytest.raises(InputError, match=r"expected a kernel on sequences, got .*Matern.* takes vectors"):
            so.kernels.gram(KERNEL + Matern(), X)
        with pytest.raises(InputError, match=r"expected a kernel of sostenuto\.kernels, got str"):
            so.kernels.gram("rbf", X)
        with pytest.raises(InputError, match="expected tile_size to be a whole number of at least 1, got 0"):
            computed(X, tile_size=0)


class TestDisk:
    @pytest.mark.parametrize("name", PATHS)
    def test_it_holds_the_same_matrix(self, X, K, tmp_path, name):
        found = computed(X, out=tmp_path / name)
        np.testing.assert_array_equal(found[:], K)
        np.testing.assert_array_equal(computed(X, Y=X[:7], out=tmp_path / f"cross-{name}")[:], computed(X, Y=X[:7]))

    def test_others_can_read_it(self, X, K, tmp_path):
        for name in PATHS:
            computed(X, out=tmp_path / name)
        np.testing.assert_array_equal(np.load(tmp_path / "gram.npy"), K)
        array = zarr.open_array(tmp_path / "gram.zarr", mode="r")
        assert array.chunks == (SIZE, SIZE)
        assert array.attrs["complete"] is True
        assert not (tmp_path / "gram.npy.part").exists()

    @pytest.mark.parametrize("name", PATHS)
    def test_a_crash_costs_only_what_was_under_way(self, X, K, tmp_path, name, monkeypatch):
        monkeypatch.setattr(Failing, "tiles", 6)
        with pytest.raises(KeyboardInterrupt):
            so.kernels.gram(Failing(2.0), X, out=tmp_path / name, progress=False, tile_size=SIZE)
        assert not (tmp_path / "gram.npy").exists()
        monkeypatch.setattr(Failing, "tiles", 9)
        found = so.kernels.gram(Failing(2.0), X, out=tmp_path / name, progress=False, tile_size=SIZE)
        np.testing.assert_array_equal(found[:], K)
        assert Failing.tiles == 0
        again = so.kernels.gram(Failing(2.0), X, out=tmp_path / name, progress=False, tile_size=SIZE)
        np.testing.assert_array_equal(again[:], K)

    @pytest.mark.parametrize("name", PATHS)
    def test_a_process_killed_midway_is_resumed(self, tmp_path, name):
        program = f"""
import os, numpy as np
from sostenuto.kernels import RBF, gram
from sostenuto.kernels.gram import storage
storage._COMMIT_SECONDS = 0.0
class Dying(RBF):
    left = 8
    def gram(self, left, right):
        Dying.left -= 1
        if Dying.left < 0:
            os.kill(os.getpid(), 9)
        return super().gram(left, right)
Dying.__module__, Dying.__qualname__ = "sostenuto.kernels.rbf", "RBF"
X = np.random.default_rng(0).normal(size=(23, 6))
gram(Dying(2.0), X, out={str(tmp_path / name)!r}, progress=False, tile_size={SIZE})
"""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        journal = tmp_path / f"{name}.journal"
        assert len(journal.read_text().splitlines()) >= 7
        with journal.open("a") as file:
            file.write("3 ")
        X = np.random.default_rng(0).normal(size=(23, 6))
        np.testing.assert_array_equal(computed(X, out=tmp_path / name)[:], computed(X))

    @pytest.mark.parametrize("name", PATHS)
    def test_another_matrix_is_refused(self, X, tmp_path, name):
        path = tmp_path / name
        computed(X, out=path)
        changed = [x.copy() for x in X]
        changed[4][0, 0] += 1e-9
        others = (
            lambda: so.kernels.gram(RBF(2.0 + 1e-12), X, out=path, progress=False, tile_size=SIZE),
            lambda: computed(changed, out=path),
            lambda: computed(X, Y=X, out=path),
            lambda: computed(X, out=path, tile_size=6),
            lambda: so.kernels.gram(KERNEL * KERNEL, X, out=path, progress=False, tile_size=SIZE),
        )
        for call in others:
            with pytest.raises(InputError, match="expected the matrix of this kernel, these sequences and this tile"):
                call()
        bounded = RBF(2.0, length_scale_bounds="fixed")
        so.kernels.gram(bounded, X, out=path, progress=False, tile_size=SIZE)

    @pytest.mark.parametrize("name", PATHS)
    def test_what_lies_in_the_way_is_refused(self, X, tmp_path, name):
        (tmp_path / name).write_text("mine")
        with pytest.raises(InputError, match="expected a new path for the matrix, got one in use"):
            computed(X, out=tmp_path / name)
        assert (tmp_path / name).read_text() == "mine"

    @pytest.mark.parametrize("content", ["nonsense", "{}\n", "nonsense\n", json.dumps({"format": "other"}) + "\n"])
    def test_a_damaged_journal_is_refused(self, X, tmp_path, content):
        (tmp_path / "gram.npy.journal").write_text(content)
        with pytest.raises(FileFormatError, match="expected a journal of tiles"):
            computed(X, out=tmp_path / "gram.npy")

    @pytest.mark.parametrize("name", PATHS)
    @pytest.mark.parametrize("cut", ["before the journal", "in its first line", "before the matrix", "in the matrix"])
    def test_what_was_cut_short_before_the_first_tile_is_begun_again(self, X, K, tmp_path, name, cut, monkeypatch):
        out, journal = tmp_path / name, tmp_path / f"{name}.journal"
        store = NpyStore if name.endswith(".npy") else ZarrStore
        monkeypatch.setattr(store, "create", lambda self: self.working_path.write_text("half"))
        with pytest.raises((ValueError, OSError)):
            computed(X, out=out)
        monkeypatch.undo()
        first = journal.read_text()
        made = next(path for path in tmp_path.iterdir() if path != journal)
        if cut != "in the matrix":
            made.unlink()
        if cut in ("before the journal", "in its first line"):
            journal.write_text("" if cut == "before the journal" else first[:20])
        np.testing.assert_array_equal(np.asarray(computed(X, out=out)), K)

    @pytest.mark.parametrize("name", PATHS)
    def test_a_second_writer_is_refused(self, X, K, tmp_path, name):
        out = tmp_path / name
        with locked(tmp_path / f"{name}.journal", "held"):
            with pytest.raises(InputError, match="got one being computed; wait for it"):
                computed(X, out=out)
            assert not out.exists()
        np.testing.assert_array_equal(np.asarray(computed(X, out=out)), K)

    def test_a_journal_without_its_matrix_is_refused(self, X, tmp_path):
        computed(X, out=tmp_path / "gram.npy")
        (tmp_path / "gram.npy").unlink()
        with pytest.raises(FileFormatError, match=r"expected the matrix .* beside it, got none; delete the journal"):
            computed(X, out=tmp_path / "gram.npy")

    def test_other_suffixes_are_refused(self, X, tmp_path):
        with pytest.raises(InputError, match=r"expected out to end in \.zarr or \.npy, got"):
            computed(X, out=tmp_path / "gram.csv")

    def test_only_tiles_are_held(self, tmp_path):
        """The matrix has 32 MB; the process grows by a few tiles of half a megabyte."""
        program = f"""
import resource, numpy as np
from sostenuto.kernels import RBF, gram
X = np.random.default_rng(0).normal(size=(2000, 3))
gram(RBF(), X[:300], out={str(tmp_path / "a.zarr")!r}, progress=False, tile_size=256)
gram(RBF(), X[:300], out={str(tmp_path / "a.npy")!r}, progress=False, tile_size=256)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
gram(RBF(), X, out={str(tmp_path / "b.zarr")!r}, progress=False, tile_size=256)
gram(RBF(), X, out={str(tmp_path / "b.npy")!r}, progress=False, tile_size=256)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert int(done.stdout) < 12_000


class TestFingerprint:
    def test_functions_count_by_what_they_do(self):
        left = PackedSequences.pack(sample(3, 4))

        class Activated(RBF):
            def __init__(self, activation=None, length_scale=1.0, length_scale_bounds="fixed"):
                super().__init__(length_scale, length_scale_bounds)
                self.activation = activation

        def scaled(factor):
            return lambda x: factor * x

        def mark(activation):
            return fingerprint(Activated(activation), left, None, 4)

        assert mark(scaled(2.0)) == mark(scaled(2.0)) != mark(scaled(3.0))
        assert mark(np.tanh) != mark(np.sin)
        assert mark(torch.nn.Linear(1, 1)) != mark(torch.nn.Linear(1, 1))
        assert mark((1, 2)) != mark((1, (2,)))
        with pytest.raises(InputError, match="expected activation to be made of numbers"):
            mark(object())


class TestCluster:
    def test_workers_give_the_same_bits(self, X, K, client, tmp_path):
        np.testing.assert_array_equal(computed(X, client=client), K)
        np.testing.assert_array_equal(computed(X, Y=X[:7], client=client), computed(X, Y=X[:7]))
        np.testing.assert_array_equal(computed(X, client=client, out=tmp_path / "gram.zarr")[:], K)

    @pytest.mark.parametrize("victims", [1, 2])
    def test_lost_workers_cost_nothing_but_time(self, X, K, client, victims):
        """With both workers the sequences are lost as well and have to be sent again."""
        client.wait_for_workers(2, timeout="60s")
        grid = TileGrid(len(X), None, SIZE)
        work = Work(KERNEL, PackedSequences.pack(X), None, grid)
        found = np.full(grid.shape, np.nan)
        killed = 0
        for tile, block in computed_on_cluster(work, list(grid.tiles()), client):
            if not killed:
                for process in list(client.run(os.getpid).values())[:victims]:
                    os.kill(process, signal.SIGKILL)
                    killed += 1
            for where, values in grid.placed(tile, block):
                found[where] = values
        assert killed == victims
        np.testing.assert_array_equal(found, K)

    @pytest.mark.parametrize("error", [KeyError("tcp://127.0.0.1:35455"), distributed.comm.CommClosedError("closed")])
    @pytest.mark.parametrize("lost", [2, 9])
    def test_workers_lost_while_the_sequences_are_sent(self, X, K, client, monkeypatch, error, lost):
        """Dask tells of them by whatever error its own way meets."""
        client.wait_for_workers(1, timeout="60s")
        scatter, calls = client.scatter, []

        def losing(*arguments, **options):
            calls.append(0)
            if len(calls) <= lost:
                raise error
            return scatter(*arguments, **options)

        monkeypatch.setattr(client, "scatter", losing)
        monkeypatch.setattr("time.sleep", lambda _: None)
        if lost == 2:
            np.testing.assert_array_equal(computed(X, client=client), K)
        else:
            with pytest.raises(SostenutoError, match="the cluster lost the sequences 4 times in a row"):
                computed(X, client=client)

    def test_an_error_of_the_kernel_comes_through(self, client):
        grid = TileGrid(2, None, 1)
        broken = Work(RBF(), PackedSequences.pack([np.full((2, 1), np.nan)] * 2), None, grid)
        assert np.isnan(compute_tile(broken.kernel, broken.left, None, grid, (0, 1))).all()
        with pytest.raises(TypeError):
            next(computed_on_cluster(Work(None, broken.left, None, grid), [(0, 0)], client))

    def test_other_clients_are_refused(self, X):
        with pytest.raises(InputError, match=r"expected a distributed\.Client as client, got str"):
            computed(X, client="tcp://127.0.0.1:1")

    def test_no_scheduler_is_said(self, monkeypatch):
        with pytest.raises(InputError, match="expected a scheduler at 'nonsense://x'"):
            connect("nonsense://x")


@pytest.mark.parametrize(("hidden", "options"), [("zarr", {"out": "gram.zarr"}), ("distributed", {"client": 1})])
def test_a_missing_extra_is_named(X, tmp_path, monkeypatch, hidden, options):
    monkeypatch.setitem(sys.modules, hidden, None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingExtraError, match=rf"needs the package '{hidden}'.*pip install 'sostenuto\[cluster\]'"):
        computed(X, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
@pytest.mark.parametrize("is_whole", [False, True])
def test_numbers_that_the_disk_changed_are_computed_again(tmp_path, suffix, is_whole):
    if suffix == ".zarr":
        pytest.importorskip("zarr")
    sequences = np.random.default_rng(0).normal(size=(7, 5))
    expected = gram(RBF(), sequences, progress=False, tile_size=3)
    out = tmp_path / f"gram{suffix}"
    gram(RBF(), sequences, out=out, progress=False, tile_size=3)
    journal = out.with_name(f"{out.name}.journal")
    if not is_whole:
        lines = journal.read_text().splitlines()
        journal.write_text("\n".join(lines[:-2]) + "\n")  # neither whole nor the last tile
    damage(out, suffix)
    with pytest.warns(UserWarning, match="1 of [56] tiles on the disk are not what was written"):
        again = gram(RBF(), sequences, out=out, progress=False, tile_size=3)
    np.testing.assert_array_equal(np.asarray(again[:]), expected)
    np.testing.assert_array_equal(np.asarray(gram(RBF(), sequences, out=out, progress=False, tile_size=3)[:]), expected)


def damage(out, suffix):
    """Change one number on the disk, or lose a chunk."""
    if suffix == ".zarr":
        (out / "c" / "0" / "1").unlink()
        return
    matrix = np.lib.format.open_memmap(out, mode="r+")
    matrix[0, 4] += 1e-9
    matrix.flush()


def test_a_disk_that_does_not_keep_what_is_written_is_told_of(tmp_path, monkeypatch):
    from sostenuto.kernels.gram.storage import NpyStore

    sequences, place = np.random.default_rng(0).normal(size=(7, 5)), NpyStore.place
    forgetful = lambda store, where, values: place(store, where, values * (where[0].start != 3))  # noqa: E731
    monkeypatch.setattr(NpyStore, "place", forgetful)
    with pytest.raises(FileFormatError, match="expected the numbers that were written, got others in 3 tiles"):
        gram(RBF(), sequences, out=tmp_path / "gram.npy", progress=False, tile_size=3)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="3 of 6 tiles"):
        again = gram(RBF(), sequences, out=tmp_path / "gram.npy", progress=False, tile_size=3)
    np.testing.assert_array_equal(again, gram(RBF(), sequences, progress=False, tile_size=3))


@pytest.mark.parametrize("place", ["seen", "unseen"])
def test_a_full_disk_is_refused_before_the_first_tile(tmp_path, monkeypatch, place):
    if place == "seen":
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    else:
        monkeypatch.setattr("os.posix_fallocate", full_disk)
    with pytest.raises(InputError, match="expected room for"):
        gram(RBF(), np.zeros((7, 5)), out=tmp_path / "gram.npy", progress=False)
    assert list(tmp_path.iterdir()) == []


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_that_was_cut_short_is_refused(tmp_path):
    out = tmp_path / "gram.npy"
    gram(RBF(), np.ones((7, 5)), out=out, progress=False)
    with out.open("rb+") as file:
        file.truncate(300)
    with pytest.raises(FileFormatError, match="expected at least 392 bytes, got 300"):
        gram(RBF(), np.ones((7, 5)), out=out, progress=False)
