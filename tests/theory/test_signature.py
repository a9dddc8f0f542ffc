import torch

import sostenuto as so


def test_a_straight_line_is_a_power():
    b = torch.tensor([0.3, -0.2], dtype=torch.float64)
    found = so.theory.signature(torch.stack([b, 2 * b]), 2)
    torch.testing.assert_close(found[2], torch.outer(b, b), rtol=1e-14, atol=0)
