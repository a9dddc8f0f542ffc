import pytest
import torch

import sostenuto as so
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.training.config import TrainingConfig
from sostenuto.training.optimizers import MATCHED, Muon, inner_matrices, orthogonal, parameter_groups


@pytest.mark.parametrize("shape", [(24, 24), (40, 17), (17, 40), (3, 20, 20)])
def test_singular_values_come_near_one_and_directions_stay(shape):
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(shape, dtype=torch.float64), full_matrices=False)
    values = torch.logspace(0, -2, min(shape[-2:]), dtype=torch.float64)
    found = orthogonal(left * values @ right)
    turned = left.mT @ found @ right.mT
    inside = turned.diagonal(dim1=-2, dim2=-1)
    assert inside.min() > 0.65
    assert inside.max() < 1.25
    torch.testing.assert_close(turned, torch.diag_embed(inside), atol=1e-9, rtol=0)
    assert not orthogonal(torch.zeros(shape)).any()


def test_the_first_step_is_orthogonal_of_the_stated_size_and_leaves_gradients_alone():
    torch.manual_seed(1)
    weight, other = (torch.nn.Parameter(torch.zeros(32, 16)) for _ in range(2))
    groups = [{"params": [weight], "orthogonal": True}, {"params": [other]}]
    optimizer = Muon(groups, lr=0.01, weight_decay=0.0)
    gradient = torch.randn(32, 16)
    weight.grad, other.grad = gradient.clone(), gradient.clone()
    optimizer.step()
    assert torch.equal(weight.grad, gradient)
    size = weight.detach().square().mean().sqrt() / 0.01
    assert MATCHED * 0.6 < size < MATCHED * 1.3
    torch.testing.assert_close(other.detach(), -0.01 * gradient.sign(), rtol=1e-3, atol=1e-6)


def test_weights_shrink_by_the_decay_alone_where_the_gradient_is_zero():
    weight = torch.nn.Parameter(torch.ones(16, 16))
    optimizer = Muon([{"params": [weight], "orthogonal": True}], lr=torch.tensor(0.5), weight_decay=0.2)
    weight.grad = torch.zeros(16, 16)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((16, 16), 0.9))


def test_matrices_inside_the_layer_are_chosen_and_no_others():
    model = SequenceClassifier(so.nn.UnICORNN(3, 16, num_layers=3, batch_first=True), 20)
    chosen = inner_matrices(model)
    assert [tuple(weight.shape) for weight in chosen] == [(16, 16), (16, 16)]
    groups = parameter_groups(model, TrainingConfig(optimizer="muon"))
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_a_state_loads_again():
    torch.manual_seed(3)
    trained = []
    for stops in (False, True):
        torch.manual_seed(3)
        weight, bias = torch.nn.Parameter(torch.randn(16, 16)), torch.nn.Parameter(torch.zeros(16))

        def make(weight=weight, bias=bias):
            return Muon([{"params": [weight], "orthogonal": True}, {"params": [bias]}], lr=0.1)

        optimizer = make()
        for step in range(4):
            if stops and step == 2:
                state = optimizer.state_dict()
                optimizer = make()
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            (torch.arange(16.0) @ weight + bias).square().sum().backward()
            optimizer.step()
        trained.append(weight.detach().clone())
    assert torch.equal(*trained)
