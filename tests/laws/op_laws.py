"""What every scan must do. An op's test inherits `ScanLaws` and names how to make inputs, how to call the op on a
backend, and the recurrence once more as a plain numpy loop."""

# ruff: noqa: N803, N806 (T, B, H are the names inside ops)

from functools import cache

import numpy as np
import pytest
import torch

from sostenuto.ops.backend import DTYPES

GPU = "cuda" if torch.cuda.is_available() else "cpu"
"""Where the GPU kernels compute: on a GPU, else on the CPU under Triton's interpreter."""
TIMES = (1, 2, 63, 257)
LOOP = 1e-11
FLOAT64 = 1e-10
FLOAT32 = 1e-5


def claims_float64(backend):
    """Whether a backend computes in float64: the reference, "auto" and every backend that lists it."""
    return torch.float64 in DTYPES.get(backend, (torch.float64,))


def finest(backend):
    """Give the finest precision that a backend claims."""
    return torch.float64 if claims_float64(backend) else torch.float32


def marked(backends):
    """List backends as parameters; those that need a GPU carry its mark."""
    return [pytest.param(name, marks=pytest.mark.gpu) if name == "gpu" else name for name in backends]


def close(got, expected, tolerance):
    """Compare relative to the largest entry: a sum over time cancels, so small entries carry the noise of the big."""
    got, expected = got.cpu(), expected.cpu()
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance * max(expected.abs().max().item(), 1e-3))


def compare(got, expected, tolerance):
    """Compare two pairs (results, gradients by name)."""
    for one, other in zip(got[0], expected[0], strict=True):
        close(one, other, tolerance)
    assert got[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        close(got[1][name], gradient, tolerance)


def values_of(pair):
    """List the results and then the gradients of a pair."""
    return [*pair[0], *pair[1].values()]


def largest_error(got, truth):
    """Give the largest error of any result or gradient, relative to its largest entry."""
    pairs = zip(values_of(got), values_of(truth), strict=True)
    return max(((a.double().cpu() - b.cpu()).abs().max() / max(b.abs().max().item(), 1e-3)).item() for a, b in pairs)


def weights_of(results, *, only=None):
    """Draw what arrives at each result in the backward pass: at all of them, or ``only`` at one."""
    generator = torch.Generator().manual_seed(7)
    drawn = [torch.randn(result.shape, generator=generator, dtype=torch.float64).to(result) for result in results]
    return [weight if only in (None, index) else torch.zeros_like(weight) for index, weight in enumerate(drawn)]


def differentiable(tensors):
    return [name for name in tensors if name != "timespans"]


def differentiate(run, tensors, *, only=None):
    """Give the results of ``run`` and the gradients of their weighted sum."""
    names = differentiable(tensors)
    leaves = {name: tensors[name].detach().clone().requires_grad_(name in names) for name in tensors}
    results = run(leaves)
    weights = weights_of(results, only=only)
    gradients = torch.autograd.grad(results, [leaves[name] for name in names], weights)
    return tuple(result.detach() for result in results), dict(zip(names, gradients, strict=True))


def poisoned(tensor):
    """Copy a tensor into the middle of a buffer full of NaN: same values, wider strides."""
    buffer = torch.full([2 * size + 3 for size in tensor.shape], torch.nan, dtype=tensor.dtype, device=tensor.device)
    view = buffer[tuple(slice(1, 2 * size, 2) for size in tensor.shape)]
    return view.copy_(tensor)


def transposed(tensor):
    """Lay a tensor out in memory with its axes in the opposite order."""
    axes = tuple(reversed(range(tensor.ndim)))
    return tensor.permute(axes).contiguous().permute(axes)


@cache
def by_reference(laws, T, seed, timespans, drawn, computed):
    """Give the reference's results and gradients, of inputs ``drawn`` in one dtype and ``computed`` in another.

    Once for every backend: over a few hundred steps the reference takes longer than all that is compared with it.
    """
    own = laws()
    tensors = own.make(T, seed=seed, timespans=timespans, dtype=drawn)
    return differentiate(own.on("reference"), {name: tensor.to(computed) for name, tensor in tensors.items()})


class RecurrenceLaws:
    """Define `inputs`, `run` and `loop`.

    ``states`` names the parts of the initial state among the inputs, the output's first; ``over_time`` the inputs with
    a leading time axis; ``projected`` the one that may come in lower precision; ``backends`` is the op's own list. An
    input called ``timespans`` is optional, and data: no gradient is asked of it.

    A law runs in the finest precision that its backend claims, and holds it to that precision's tolerance; a law of
    float64 itself asks for a ``double_backend``.
    """

    states: tuple[str, ...]
    over_time: tuple[str, ...] = ("x", "timespans")
    projected = "x"
    backends: tuple[str, ...] = ("reference",)
    timespans: tuple[bool, ...] = (False,)
    single: dict[str, float] = {}
    """The tolerance in float32 of a backend whose arithmetic is not plain float32's."""

    def inputs(self, T, B, H):
        """Return float64 tensors by name, `timespans` (T, B) above 0 among them where the op takes them."""
        raise NotImplementedError

    def run(self, tensors, backend):
        """Call the op: outputs (T, B, H) and each final state (B, H) as one tuple."""
        raise NotImplementedError

    def loop(self, arrays):
        """Do the same in plain numpy, from the formula."""
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc):
        if "backend" in metafunc.fixturenames:
            metafunc.parametrize("backend", marked(self.backends))
        if "double_backend" in metafunc.fixturenames:
            metafunc.parametrize("double_backend", marked(filter(claims_float64, self.backends)))
        if "timespans" in metafunc.fixturenames:
            metafunc.parametrize("timespans", self.timespans)

    def make(self, T, *, seed=0, timespans=True, dtype=None, shape=None, backend="reference"):
        """Draw inputs of a random batch and width, or of a given ``shape``, where and as finely as a backend computes.

        They are the same for every backend, up to rounding.
        """
        torch.manual_seed(seed)
        B, H = shape or (int(torch.randint(1, 6, ())), int(torch.randint(1, 70, ())))
        tensors = self.inputs(T, B, H)
        if not timespans:
            tensors.pop("timespans", None)
        device = GPU if backend == "gpu" else "cpu"
        return {name: tensor.to(device, dtype or finest(backend)) for name, tensor in tensors.items()}

    def known(self, T, seed, timespans, *, drawn=torch.float64, computed=torch.float64):
        return by_reference(type(self), T, seed, timespans, drawn, computed)

    def within(self, backend, tolerance):
        """Give the tolerance of a law: its own in float64, float32's where a backend has nothing finer."""
        return tolerance if claims_float64(backend) else self.single.get(backend, FLOAT32)

    def on(self, backend):
        return lambda tensors: self.run(tensors, backend)

    def test_the_reference_is_listed(self):
        assert "reference" in self.backends

    @pytest.mark.parametrize("T", TIMES)
    def test_is_a_plain_loop(self, backend, T, timespans):
        tensors = self.make(T, seed=T, timespans=timespans, backend=backend)
        expected = self.loop({name: tensor.double().cpu().numpy() for name, tensor in tensors.items()})
        for one, other in zip(self.run(tensors, backend), expected, strict=True):
            close(one.double(), torch.from_numpy(np.asarray(other)), self.within(backend, LOOP))

    @pytest.mark.parametrize("T", TIMES)
    def test_is_the_reference_with_every_gradient(self, double_backend, T, timespans):
        exact = double_backend == "reference"  # then the law says that the op is deterministic
        for seed in (T, T + 1):
            tensors = self.make(T, seed=seed, timespans=timespans, backend=double_backend)
            got = differentiate(self.on(double_backend), tensors)
            compare(got, self.known(T, seed, timespans), 0.0 if exact else FLOAT64)

    @pytest.mark.parametrize("T", TIMES)
    def test_float32_is_as_near_the_truth_as_the_reference(self, backend, T, timespans):
        """Hold the largest error to 1e-5 or, where rounding grows beyond that, to twice the float32 reference's."""
        for seed in (T, T + 1):
            single = self.make(T, seed=seed, timespans=timespans, dtype=torch.float32, backend=backend)
            truth, rough = (
                self.known(T, seed, timespans, drawn=torch.float32, computed=dtype)
                for dtype in (torch.float64, torch.float32)
            )
            got = differentiate(self.on(backend), single)
            assert all(value.dtype == torch.float32 for value in values_of(got))
            limit = self.single.get(backend, FLOAT32)
            assert largest_error(got, truth) <= max(limit, 2 * largest_error(rough, truth))

    def test_gradients_from_each_result_alone(self, backend):
        tensors = self.make(63, backend=backend)
        for index in range(1 + len(self.states)):
            expected = differentiate(self.on("reference"), tensors, only=index)
            compare(differentiate(self.on(backend), tensors, only=index), expected, self.within(backend, FLOAT64))
            assert all(expected[1][name].abs().max() > 0 for name in (self.projected, self.states[0]))

    def test_gradients_are_the_derivatives(self, double_backend, timespans):
        tensors = self.make(4, timespans=timespans, shape=(2, 3), backend=double_backend)
        names = differentiable(tensors)

        def run(*values):
            return self.run({**tensors, **dict(zip(names, values, strict=True))}, double_backend)

        assert torch.autograd.gradcheck(run, [tensors[name].requires_grad_() for name in names], atol=1e-7)

    def test_second_derivatives_by_the_reference(self):
        tensors = self.make(3, shape=(1, 2))
        names = differentiable(tensors)

        def run(*values):
            return self.run({**tensors, **dict(zip(names, values, strict=True))}, "reference")

        assert torch.autograd.gradgradcheck(run, [tensors[name].requires_grad_() for name in names], atol=1e-6)

    @pytest.mark.parametrize("cut", [1, 30, 62])
    def test_split_is_whole(self, backend, cut):
        tensors = self.make(63, backend=backend)
        timed = [name for name in self.over_time if name in tensors]

        def split(leaves):
            first, *middle = self.run({**leaves, **{name: leaves[name][:cut] for name in timed}}, backend)
            rest = {**leaves, **{name: leaves[name][cut:] for name in timed}}
            second, *end = self.run({**rest, **dict(zip(self.states, middle, strict=True))}, backend)
            return torch.cat([first, second]), *end

        compare(differentiate(split, tensors), differentiate(self.on(backend), tensors), self.within(backend, FLOAT64))

    def test_final_state_is_the_last_output(self, backend):
        for T in TIMES:
            outputs, final, *_ = self.run(self.make(T, seed=T, backend=backend), backend)
            assert torch.equal(outputs[-1], final)

    def test_rows_of_a_batch_do_not_meet(self, backend):
        tensors = self.make(9, shape=(4, 5), backend=backend)
        outputs, *finals = self.run(tensors, backend)
        for b in range(4):
            alone = {name: tensor[:, b : b + 1] for name, tensor in tensors.items() if name in self.over_time}
            alone |= {name: tensors[name][b : b + 1] for name in self.states}
            own, *ends = self.run({**tensors, **alone}, backend)
            close(own, outputs[:, b : b + 1], self.within(backend, LOOP))
            for end, final in zip(ends, finals, strict=True):
                close(end, final[b : b + 1], self.within(backend, LOOP))

    def test_leaves_its_inputs_alone(self, backend):
        tensors = self.make(20, backend=backend)
        leaves = {name: tensor.requires_grad_(name != "timespans") for name, tensor in tensors.items()}
        before = {name: (leaf.detach().clone(), leaf._version) for name, leaf in leaves.items()}
        results = self.run(leaves, backend)
        torch.autograd.backward(results, weights_of(results))
        for name, leaf in leaves.items():
            assert torch.equal(leaf.detach(), before[name][0]), name
            assert leaf._version == before[name][1], name
        owned = {leaf.untyped_storage().data_ptr() for leaf in leaves.values()}
        assert not owned & {result.untyped_storage().data_ptr() for result in results}

    def test_no_graph_without_gradients(self, backend):
        assert not any(result.requires_grad for result in self.run(self.make(5, backend=backend), backend))

    @pytest.mark.parametrize("layout", [transposed, poisoned], ids=["transposed", "strided"])
    def test_reads_any_layout(self, backend, layout):
        tensors = self.make(63, backend=backend)
        expected = differentiate(self.on(backend), tensors)
        laid_out = {name: layout(tensor) for name, tensor in tensors.items()}
        assert not all(tensor.is_contiguous() for tensor in laid_out.values())
        names = differentiable(laid_out)
        leaves = {name: tensor.requires_grad_(name in names) for name, tensor in laid_out.items()}
        results = self.run(leaves, backend)
        gradients = torch.autograd.grad(results, [leaves[name] for name in names], weights_of(results))
        got = tuple(result.detach() for result in results), dict(zip(names, gradients, strict=True))
        compare(got, expected, self.within(backend, FLOAT64))

    def test_reads_expanded_states(self, backend):
        tensors = self.make(9, shape=(3, 5), backend=backend)
        tensors |= {name: tensors[name][:1] for name in self.states}

        def expanded(leaves):
            return self.run({**leaves, **{name: leaves[name].expand(3, -1) for name in self.states}}, backend)

        def repeated(leaves):
            return self.run({**leaves, **{name: leaves[name].repeat(3, 1) for name in self.states}}, backend)

        compare(differentiate(expanded, tensors), differentiate(repeated, tensors), self.within(backend, FLOAT64))

    def test_takes_expanded_gradients(self, backend):
        tensors = self.make(63, backend=backend)

        def gradients(weight):
            names = differentiable(tensors)
            leaves = {name: tensor.detach().clone().requires_grad_(name in names) for name, tensor in tensors.items()}
            outputs = self.run(leaves, backend)[0]
            outputs.backward(weight(outputs))
            return {name: leaves[name].grad for name in names}

        spread, dense = gradients(lambda o: o.new_ones(()).expand_as(o)), gradients(torch.ones_like)
        compare(((), spread), ((), dense), self.within(backend, FLOAT64))

    def test_reads_no_uninitialized_memory(self, backend):
        """With deterministic algorithms torch fills every new buffer with NaN, so what was not written shows."""
        tensors = self.make(63, backend=backend)
        expected = differentiate(self.on(backend), tensors)
        assert torch.utils.deterministic.fill_uninitialized_memory
        torch.use_deterministic_algorithms(True)
        try:
            got = differentiate(self.on(backend), tensors)
        finally:
            torch.use_deterministic_algorithms(False)
        compare(got, expected, self.within(backend, FLOAT64))

    def test_low_precision_input_keeps_a_float32_state(self, backend):
        tensors = self.make(63, dtype=torch.float32, backend=backend)
        tensors[self.projected] = tensors[self.projected].bfloat16()
        results, gradients = differentiate(self.on(backend), tensors)
        assert {result.dtype for result in results} == {torch.float32}
        assert gradients[self.projected].dtype == torch.bfloat16
        raised = {**tensors, self.projected: tensors[self.projected].float()}
        expected, expected_gradients = differentiate(self.on(backend), raised)
        for one, other in zip(results, expected, strict=True):
            close(one, other, FLOAT32)
        expected_gradients[self.projected] = expected_gradients[self.projected].bfloat16()
        compare(((), gradients), ((), expected_gradients), FLOAT32 if backend == "reference" else 1e-2)


class ScanLaws(RecurrenceLaws):
    """The laws of an op that takes time spans as well."""

    timespans = (False, True)

    def test_a_span_of_one_is_no_span(self, backend):
        tensors = self.make(63, backend=backend)
        ones = {**tensors, "timespans": torch.ones_like(tensors["timespans"])}
        without = {name: tensor for name, tensor in tensors.items() if name != "timespans"}
        got, expected = (differentiate(self.on(backend), each) for each in (ones, without))
        compare(got, expected, self.within(backend, FLOAT64))

    def test_a_span_of_zero_leaves_the_state(self, backend):
        tensors = self.make(20, shape=(3, 4), backend=backend)
        still = {**tensors, "timespans": torch.zeros_like(tensors["timespans"])}
        outputs, *finals = self.run(still, backend)
        for name, final in zip(self.states, finals, strict=True):
            assert torch.equal(final, tensors[name])
        assert torch.equal(outputs, tensors[self.states[0]].expand_as(outputs))

    def test_padding_by_spans_of_zero_is_a_shorter_sequence(self, backend):
        tensors = self.make(20, shape=(3, 4), backend=backend)
        tensors["timespans"][12:] = 0.0
        results, gradients = differentiate(self.on(backend), tensors)
        short = {**tensors, **{name: tensors[name][:12] for name in self.over_time if name in tensors}}
        outputs, *finals = self.run(short, backend)
        close(results[0][:12], outputs, self.within(backend, LOOP))
        for end, final in zip(results[1:], finals, strict=True):
            close(end, final, self.within(backend, 0.0))  # on a GPU steps of a block and single ones may round apart
        assert not gradients[self.projected][12:].any()
