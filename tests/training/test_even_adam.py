import torch

from sostenuto.training.optimizers import EvenAdam


def test_the_first_step_is_in_proportion_to_the_gradient_and_of_the_stated_size():
    torch.manual_seed(0)
    table, other = torch.nn.Parameter(torch.zeros(50, 4)), torch.nn.Parameter(torch.zeros(3))
    optimizer = EvenAdam([{"params": [table], "even": True}, {"params": [other]}], lr=0.01, weight_decay=0.0)
    gradient = torch.randn(50, 4)
    table.grad, other.grad = gradient.clone(), torch.tensor([5.0, -0.1, 1.0])
    optimizer.step()
    torch.testing.assert_close(table.detach(), -0.01 * gradient / gradient.square().mean().sqrt())
    torch.testing.assert_close(other.detach(), -0.01 * other.grad.sign(), rtol=1e-4, atol=1e-7)
    assert torch.equal(table.grad, gradient)


def test_steps_are_those_of_the_formula():
    torch.manual_seed(1)
    table = torch.nn.Parameter(torch.randn(6, 2, dtype=torch.float64))
    optimizer = EvenAdam([{"params": [table], "even": True}], lr=torch.tensor(0.1), weight_decay=0.2)
    expected, momentum, moment = table.detach().clone(), torch.zeros(6, 2, dtype=torch.float64), 0.0
    for step in range(1, 6):
        gradient = torch.randn(6, 2, dtype=torch.float64)
        table.grad = gradient
        optimizer.step()
        momentum, moment = 0.9 * momentum + 0.1 * gradient, 0.999 * moment + 0.001 * float(gradient.square().mean())
        size = (moment / (1 - 0.999**step)) ** 0.5 + 1e-8
        expected = (1 - 0.1 * 0.2) * expected - 0.1 * momentum / (1 - 0.9**step) / size
    torch.testing.assert_close(table.detach(), expected, rtol=1e-6, atol=1e-6)


def test_a_weight_without_a_gradient_stays_and_a_state_loads_again():
    table, idle = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2, 2))
    make = lambda: EvenAdam([{"params": [table, idle], "even": True}], lr=0.1)  # noqa: E731
    optimizer = make()
    table.grad = torch.ones(2, 2)
    optimizer.step()
    assert torch.equal(idle.detach(), torch.ones(2, 2))
    again = make()
    again.load_state_dict(optimizer.state_dict())
    assert float(again.state[table]["step"]) == 1
    again.step()
    assert float(again.state[table]["step"]) == 2
