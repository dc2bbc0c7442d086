"""Dropout by counter: how often, for whom and where; what a network needs not know of it."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from tradewind.noise import signed, start_word
from tradewind.train.dropout import KeyedDropout, Places, keyed, seed_word, set_places

RATES = [0.05, 0.3, 0.5, 0.7, 0.95]


pytestmark = pytest.mark.usefixtures("one_thread")


def places(count: int, first: int = 0, epoch: int = 1, end: int = 0) -> Places:
    """Of a batch in the order of an epoch, as the training loop has them."""
    return Places(start_word(0, epoch), first, count, end)


def drawn(layer: KeyedDropout, shape: tuple[int, ...], first: int = 0, epoch: int = 1, end: int = 0) -> torch.Tensor:
    """What a layer makes of ones."""
    set_places([layer], places(shape[0], first, epoch, end))
    found: torch.Tensor = layer(torch.ones(shape))
    return found


def layer(rate: float = 0.5, seed: int = 0, number: int = 0, trailing: int = 0) -> KeyedDropout:
    made = KeyedDropout(rate, number, trailing)
    made.seed = seed_word(seed)
    return made


def spread(rate: float, count: int) -> float:
    """Five standard deviations of the share that is kept of so many."""
    return 5 * math.sqrt(rate * (1 - rate) / count)


# How often.


@pytest.mark.parametrize("rate", RATES)
def test_the_share_kept_is_that_of_a_fair_coin(rate: float) -> None:
    found = drawn(layer(rate), (500, 40, 10))
    assert abs((found > 0).double().mean().item() - (1 - rate)) < spread(rate, found.numel())


@pytest.mark.parametrize("rate", RATES)
def test_every_sample_and_every_element_is_kept_as_often_as_any_other(rate: float) -> None:
    kept = (drawn(layer(rate), (2000, 200)) > 0).double()
    for dim, count in ((0, 2000), (1, 200)):
        shares = kept.mean(dim=dim)
        assert (shares - (1 - rate)).abs().max() < 1.2 * spread(rate, count)
        # binomial, neither more nor less even: the variance of n shares has a relative deviation of √(2/n)
        variance, expected = shares.var().item(), rate * (1 - rate) / count
        assert abs(variance / expected - 1) < 5 * math.sqrt(2 / len(shares))


def test_elements_are_dropped_independently_of_their_neighbours() -> None:
    kept = (drawn(layer(0.5), (1000, 100)) > 0).double() - 0.5
    for one, other in ((kept[1:], kept[:-1]), (kept[:, 1:], kept[:, :-1]), (kept[1:, 1:], kept[:-1, :-1])):
        assert abs((one * other).mean().item()) < 5 * 0.25 / math.sqrt(one.numel())


@pytest.mark.parametrize("rate", RATES)
def test_what_is_kept_is_scaled_so_that_the_mean_stays(rate: float) -> None:
    found = drawn(layer(rate), (400, 100))
    assert sorted(set(found[found > 0].tolist())) == pytest.approx([1 / (1 - rate)], rel=1e-6)
    assert found.mean().item() == pytest.approx(1, abs=spread(rate, found.numel()) / (1 - rate))


@pytest.mark.parametrize("rate", RATES)
def test_in_float64_the_scale_has_the_precision_of_float64(rate: float) -> None:
    dropout = layer(rate)
    set_places([dropout], places(50))
    found = dropout(torch.ones(50, 20, dtype=torch.float64))
    assert found.dtype == torch.float64
    assert found.max().item() == pytest.approx(1 / (1 - rate), rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rate", RATES)
def test_a_rate_in_a_tensor_is_the_same_rate(rate: float, dtype: torch.dtype) -> None:
    """As a stack of networks has it, each a rate of its own."""
    inputs = torch.randn(200, 50, dtype=dtype, generator=torch.Generator().manual_seed(0))
    number, tensor = layer(rate), layer(rate)
    tensor.rate, tensor.seed = torch.tensor(rate, dtype=dtype), torch.tensor(seed_word(0))
    for each in (number, tensor):
        set_places([each], places(200))
    torch.testing.assert_close(tensor(inputs), number(inputs), rtol=1e-15 if dtype == torch.float64 else 3e-7, atol=0)


def test_rate_0_changes_nothing() -> None:
    inputs = torch.randn(20, 7)
    dropout = layer(0.0)
    set_places([dropout], places(20))
    assert torch.equal(dropout(inputs), inputs)


def test_rate_1_drops_all_as_torch_does() -> None:
    assert torch.equal(drawn(layer(1.0), (20, 7)), nn.Dropout(1.0)(torch.ones(20, 7)))


def test_outside_training_nothing_is_dropped() -> None:
    inputs = torch.randn(20, 7)
    dropout = layer(0.5).eval()
    set_places([dropout], places(20))
    assert torch.equal(dropout(inputs), inputs)
    assert not torch.equal(dropout.train()(inputs), inputs)


def test_gradients_flow_through_what_is_kept_alone() -> None:
    inputs = torch.randn(30, 8, requires_grad=True)
    dropout = layer(0.4)
    set_places([dropout], places(30))
    outputs = dropout(inputs)
    (gradient,) = torch.autograd.grad(outputs.sum(), inputs)
    torch.testing.assert_close(gradient, outputs.detach() / inputs.detach())


# For whom.


@pytest.mark.parametrize("batch_size", [1, 7, 32, 64])
@pytest.mark.parametrize("width", [1, 6, 30])
def test_a_place_is_treated_the_same_whatever_the_batches_are(batch_size: int, width: int) -> None:
    whole, dropout = drawn(layer(), (64, width)), layer()
    for _ in range(2):  # from pieces drawn ahead, which a second pass finds used up
        parts = [
            drawn(dropout, (min(batch_size, 64 - first), width), first, end=64) for first in range(0, 64, batch_size)
        ]
        assert torch.equal(torch.cat(parts), whole)


def test_a_part_of_a_batch_draws_as_the_whole_does() -> None:
    """As a device draws that has a part of every batch, or a network that was interrupted at any place."""
    whole = drawn(layer(), (64, 30))
    for first, count in ((0, 1), (5, 4), (33, 31), (8, 8)):
        assert torch.equal(drawn(layer(), (count, 30), first, end=64), whole[first : first + count])


@pytest.mark.parametrize("rate", RATES)
def test_places_in_device_memory_are_the_same_places(rate: float) -> None:
    """As graphs on a GPU have them, where nothing is drawn ahead and a stack's words are tensors."""
    known, graph = layer(rate), layer(rate)
    set_places([graph], Places(torch.tensor([signed(start_word(0, 1))]), torch.tensor(5), 20))

    def one(word: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
        graph.seed, graph.rate = word, rates
        found: torch.Tensor = functional_call(graph, {}, (torch.ones(20, 13),))
        return found

    found = vmap(one)(torch.tensor([seed_word(0), seed_word(1)]), torch.tensor([rate, rate], dtype=torch.float64))
    torch.testing.assert_close(found[0], drawn(known, (20, 13), 5), rtol=3e-7, atol=0)


def test_it_costs_no_more_than_torchs() -> None:
    """In time of this thread, the least of several: about half of it where the machine is quiet."""
    inputs = torch.randn(32, 92)
    theirs, ours, batches = nn.Dropout(0.2), layer(0.2), [places(32, 32 * k, end=1024) for k in range(32)]

    def epoch_s(step: Callable[[Places], None]) -> float:
        began = time.thread_time()
        for batch in batches:
            step(batch)
        return time.thread_time() - began

    def our_step(batch: Places) -> None:
        set_places([ours], replace(batch, epoch=start_word(0, next(epochs) // 32)))
        ours(inputs)

    epochs = itertools.count()
    pairs = [(epoch_s(our_step), epoch_s(lambda _: theirs(inputs))) for _ in range(40)]
    assert min(pair[0] for pair in pairs) < min(pair[1] for pair in pairs)


def test_a_network_does_not_draw_from_torchs_generator() -> None:
    before = torch.get_rng_state()
    drawn(layer(), (64, 30))
    assert torch.equal(torch.get_rng_state(), before)


def apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two masks of rate one half have no more in common than chance gives."""
    return abs(((one > 0) == (other > 0)).double().mean().item() - 0.5) < spread(0.5, one.numel())


def test_masks_differ_by_seed_layer_epoch_and_sample() -> None:
    shape = (100, 50)
    known = drawn(layer(), shape)
    for seed in range(1, 6):
        assert apart(drawn(layer(seed=seed), shape), known)
        assert apart(drawn(layer(number=seed), shape), known)
        assert apart(drawn(layer(), shape, epoch=1 + seed), known)
        assert apart(drawn(layer(), shape, first=100 * seed), known)
        assert apart(drawn(layer(seed=seed), shape), drawn(layer(number=seed), shape))
    assert torch.equal(drawn(layer(), shape), known)


def test_no_two_samples_of_an_epoch_have_the_same_mask() -> None:
    masks = drawn(layer(), (4000, 64)) > 0
    assert len(set(map(tuple, masks.tolist()))) == 4000


# Whole channels.


@pytest.mark.parametrize(("kind", "dims"), [(nn.Dropout1d, 1), (nn.Dropout2d, 2), (nn.Dropout3d, 3)])
def test_whole_channels_are_dropped(kind: type[nn.Module], dims: int) -> None:
    model = nn.Sequential(kind(0.3))
    (dropout,) = keyed(model, 1)
    set_places([dropout], places(300))
    found = model(torch.ones(300, 20, *[3] * dims)).flatten(2)
    assert torch.equal(found, found[:, :, :1].expand_as(found))
    kept = (found[:, :, 0] > 0).double()
    assert abs(kept.mean().item() - 0.7) < spread(0.3, kept.numel())
    assert found.max().item() == pytest.approx(1 / 0.7, rel=1e-6)
    assert kept.mean(dim=1).var() > 0  # not all channels of a sample alike


@pytest.mark.filterwarnings("ignore:dropout2d")
@pytest.mark.parametrize("shape", [(50, 20), (50, 20, 6)], ids=["dense", "sequence"])
def test_fewer_dimensions_than_whole_channels_need_keep_the_shape_as_in_torch(shape: tuple[int, ...]) -> None:
    """nn.Dropout2d after a flatten is a mistake that torch warns of and puts up with; it drops elements or rows."""
    kept = nn.Dropout2d(0.5)(torch.ones(shape)) > 0
    assert len({tuple(row.flatten().tolist()) for row in kept}) > 2  # torch does not drop whole samples
    found = drawn(layer(0.5, trailing=2), shape)
    assert found.shape == shape
    assert len({tuple(row.flatten().tolist()) for row in found > 0}) > 2


# In a network.


def stepped(model: nn.Module, layers: list[KeyedDropout], inputs: torch.Tensor, epoch: int = 1) -> torch.Tensor:
    """What a network gives for the first samples of an epoch, as in a step of training."""
    set_places(layers, places(len(inputs), epoch=epoch))
    found: torch.Tensor = model(inputs)
    return found


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Dropout(0.2), nn.ReLU()))
        self.list = nn.ModuleList([nn.Dropout(0.3), nn.Linear(8, 8)])
        self.named = nn.ModuleDict({"drop": nn.Dropout2d(0.4)})
        self.last = nn.Dropout(0.5, inplace=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.list[1](self.list[0](self.first(inputs)))
        found: torch.Tensor = self.last(self.named["drop"](hidden[:, :, None, None]).flatten(1))
        return found


def test_layers_are_replaced_wherever_they_are() -> None:
    model = Nested()
    layers = keyed(model, 3)
    assert not any(isinstance(m, nn.Dropout | nn.Dropout2d) for m in model.modules())
    assert sorted((each.rate, each.trailing) for each in layers) == [(0.2, 0), (0.3, 0), (0.4, 2), (0.5, 0)]
    assert {id(each) for each in layers} == {id(m) for m in model.modules() if isinstance(m, KeyedDropout)}
    assert len({each._offset for each in layers}) == 4
    inputs = torch.randn(6, 4)
    assert torch.equal(stepped(model, layers, inputs), stepped(model, layers, inputs))
    assert not torch.equal(stepped(model, layers, inputs), model.eval()(inputs))


def test_replacing_twice_changes_nothing() -> None:
    model = Nested()
    first, second = keyed(model, 3), keyed(model, 3)
    assert [id(each) for each in first] == [id(each) for each in second]


def test_state_and_parameters_stay_as_they_were() -> None:
    model, plain = Nested(), Nested()
    keyed(model, 3)
    assert list(model.state_dict()) == list(plain.state_dict())
    model.load_state_dict(plain.state_dict())


def test_a_layer_under_two_names_is_replaced_under_both() -> None:
    shared = nn.Dropout(0.5)
    model = nn.Sequential(nn.Linear(4, 4), shared, nn.Linear(4, 4), shared)
    layers = keyed(model, 0)
    assert [type(m).__name__ for m in model] == ["Linear", "KeyedDropout", "Linear", "KeyedDropout"]
    inputs = torch.randn(8, 4)
    assert torch.equal(stepped(model, layers, inputs), stepped(model, layers, inputs))


class Twice(nn.Module):
    """One layer used twice, as many a network has it: `self.dropout` after every dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.drop(inputs), self.drop(inputs)])


def test_a_layer_used_twice_draws_twice_and_the_same_in_every_step() -> None:
    model = Twice()
    layers = keyed(model, 0)
    inputs = torch.ones(100, 50)
    one, other = stepped(model, layers, inputs)
    assert torch.equal(stepped(model, layers, inputs), torch.stack([one, other]))
    assert apart(one, other)


class Folded(nn.Module):
    """Drops where samples do not lie along the first axis: time first, or every position a row."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.drop = how, nn.Dropout(0.5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.how == "time first":
            dropped: torch.Tensor = self.drop(inputs.transpose(0, 1)).transpose(0, 1)
            return dropped
        rows: torch.Tensor = self.drop(inputs.flatten(0, 1)).view_as(inputs)
        return rows


@pytest.mark.parametrize("how", ["time first", "rows"])
def test_dropout_may_stand_where_samples_are_not_along_the_first_axis(how: str) -> None:
    model = Folded(how)
    layers = keyed(model, 0)
    inputs = torch.ones(40, 5, 20)
    found = stepped(model, layers, inputs)
    assert found.shape == inputs.shape
    assert abs((found > 0).double().mean().item() - 0.5) < spread(0.5, found.numel())
    assert torch.equal(found, stepped(model, layers, inputs))
    assert not torch.equal(found, stepped(model, layers, inputs, epoch=2))


# In a stack of networks.


def test_networks_in_a_stack_draw_as_alone() -> None:
    seeds, rates = [0, 1, 7], [0.1, 0.3, 0.7]
    inputs = torch.randn(20, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alone = []
    for seed, rate in zip(seeds, rates, strict=True):
        own = layer(rate, seed)
        set_places([own], places(20))
        alone.append(own(inputs))
    model = layer()
    set_places([model], places(20))

    def one(word: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
        model.seed, model.rate = word, rate
        found: torch.Tensor = functional_call(model, {}, (inputs,))
        return found

    stacked = vmap(one)(torch.tensor([seed_word(s) for s in seeds]), torch.tensor(rates, dtype=torch.float64))
    torch.testing.assert_close(stacked, torch.stack(alone), rtol=1e-14, atol=0)
