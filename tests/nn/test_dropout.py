import pytest
import torch
import torch.nn.functional as F

from sostenuto.nn.dropout import dropout_mask, dropout_masks


@pytest.mark.parametrize("share", [0.0, 0.1, 0.37, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_torchs_dropout_of_ones_number_for_number(share, dtype):
    like = torch.full((1, 17, 33), torch.nan, dtype=dtype, requires_grad=True)
    torch.manual_seed(3)
    expected = F.dropout(torch.ones(like.shape, dtype=dtype), share)
    after = torch.rand(3)
    torch.manual_seed(3)
    mask = dropout_mask(like, share)
    assert torch.equal(mask, expected)
    assert not mask.requires_grad
    if 0 < share < 1:
        assert torch.equal(torch.rand(3), after)


@pytest.mark.parametrize("share", [0.0, 0.37, 1.0])
def test_several_in_one_tensor_are_those_drawn_one_by_one(share):
    like = torch.full((3, 17, 33), torch.nan, requires_grad=True)
    torch.manual_seed(3)
    expected = torch.cat([dropout_mask(one[None], share) for one in like])
    torch.manual_seed(3)
    masks = dropout_masks(like, share)
    assert torch.equal(masks, expected)
    assert not masks.requires_grad
