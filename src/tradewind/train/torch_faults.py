"""Faults of torch that end a process or give something wrong, and how its layers are led around them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

_NONE = ((0, 0), "valid")


class SlicedConv2d(nn.Conv2d):
    """A 1×1 convolution with a stride, as one without over the pixels that it meets.

    On CPUs with AVX-512 the gradient of its weights, for images channels last of few channels, is written beyond its
    memory: `nn.Conv2d(8, 16, 1, stride=2)` over 64×64 pixels dies of SIGSEGV or SIGABRT (torch 2.13, oneDNN's
    jit_1x1). The other pixels count nothing, so that nothing is lost.
    """

    def forward(self, images: Tensor) -> Tensor:
        """As nn.Conv2d."""
        down, right = self.stride
        return functional.conv2d(images[..., ::down, ::right], self.weight, self.bias, groups=self.groups)


def led_around(model: nn.Module) -> nn.Module:
    """The same network on a CPU; its parameters and their names stay."""
    for layer in model.modules():
        if type(layer) is nn.Conv2d and layer.kernel_size == (1, 1) != layer.stride and layer.padding in _NONE:
            layer.__class__ = SlicedConv2d
    return model
