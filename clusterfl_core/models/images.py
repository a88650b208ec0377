"""The convolutional models of the three papers.

Images are [n, height, width] or, in colour, channel first: [n, 3, height, width]. Convolutions keep
the side and pooling halves it, so the models take the papers' images and 8 x 8 digits alike.
"""

import torch
from torch import nn
from torch.nn import Conv2d, Linear, functional

from clusterfl_core.check import whole

__all__ = ["CFLConvNet", "FedSoftCifar", "FedSoftLetters", "IFCACifar", "IFCAFemnist"]
__all__ += ["XavierConv2d", "XavierLinear"]

MOST = 1 << 20  # channels, pixels a side, classes


def _planes(x):
    return x if x.ndim == 4 else x[:, None]


def _sizes(channels, side, classes):
    """The sizes as whole numbers; whether a side is too small says :func:`_halved`."""
    sizes = ("channels", channels, 1), ("side", side, 0), ("classes", classes, 1)
    return [whole(name, size, least, MOST) for name, size, least in sizes]


def _halved(side, times):
    if side < 2**times or side % 2**times:
        raise ValueError(f"side must be a multiple of {2**times} pixels, got {side}")
    return side // 2**times


class IFCACifar(nn.Module):
    """IFCA's model for Rotated CIFAR (section 6.2): 2 convolutional and 2 fully connected layers.

    The paper says no more; sizes, pooling and normalisation are those of its released code. That
    draws the weights from truncated normals (standard deviations 0.05 and 0.04) and decays those
    of ``hidden1`` and ``hidden2``; here they begin as PyTorch's layers do, and decay is none of a
    model's business.

    Parameters
    ----------
    channels : int
        1 for grey images, 3 for colour.
    side : int
        Pixels a side, a multiple of 4, else ValueError. The paper's images are 24 x 24 crops.
    classes : int
        Number of classes; the outputs are logits.
    """

    def __init__(self, channels=3, side=24, classes=10):
        super().__init__()
        channels, side, classes = _sizes(channels, side, classes)
        self.conv1 = Conv2d(channels, 64, 5, padding=2)
        self.conv2 = Conv2d(64, 64, 5, padding=2)
        self.hidden1 = Linear(64 * _halved(side, 2) ** 2, 384)
        self.hidden2 = Linear(384, 192)
        self.output = Linear(192, classes)

    def forward(self, x):
        """Logits [n, classes] of images [n, side, side] or [n, channels, side, side]."""
        x = self._norm(self._pool(torch.relu(self.conv1(_planes(x)))))
        x = self._pool(self._norm(torch.relu(self.conv2(x))))
        x = torch.relu(self.hidden1(x.flatten(1)))
        return self.output(torch.relu(self.hidden2(x)))

    @staticmethod
    def _pool(x):
        return functional.max_pool2d(x, 3, stride=2, ceil_mode=True)

    @staticmethod
    def _norm(x):
        return functional.local_response_norm(x, 9, alpha=0.001, beta=0.75, k=1.0)


class IFCAFemnist(nn.Module):
    """IFCA's model for FEMNIST (section 6.3): 2 convolutions with max pooling, then 2 dense layers.

    Sizes as in its released code. Weight sharing trains ``output`` in clusters and shares the
    rest.

    Parameters
    ----------
    channels, side, classes : int
        As in :class:`IFCACifar`; the side is a multiple of 4.
    hidden : int
        Units of the first dense layer; the released code has 2048.
    """

    def __init__(self, channels=1, side=28, classes=62, hidden=2048):
        super().__init__()
        channels, side, classes = _sizes(channels, side, classes)
        hidden = whole("hidden", hidden)
        self.conv1 = Conv2d(channels, 32, 5, padding=2)
        self.conv2 = Conv2d(32, 64, 5, padding=2)
        self.hidden = Linear(64 * _halved(side, 2) ** 2, hidden)
        self.output = Linear(hidden, classes)

    def forward(self, x):
        """Logits [n, classes] of images [n, side, side] or [n, channels, side, side]."""
        x = functional.max_pool2d(torch.relu(self.conv1(_planes(x))), 2)
        x = functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.output(torch.relu(self.hidden(x.flatten(1))))


class CFLConvNet(nn.Module):
    """CFL's 5-layer convolutional network (section VI-C): 2 convolutions, then 3 dense layers.

    The paper gives no sizes. Read here as LeNet-5 (LeCun et al., 1998) with max pooling and ReLU;
    the authors' notebook has its two convolutions and one dense layer.

    ``channels``, ``side`` and ``classes`` as in :class:`IFCACifar`; the side is a multiple of 4.
    """

    def __init__(self, channels=3, side=32, classes=10):
        super().__init__()
        channels, side, classes = _sizes(channels, side, classes)
        self.conv1 = Conv2d(channels, 6, 5, padding=2)
        self.conv2 = Conv2d(6, 16, 5, padding=2)
        self.hidden1 = Linear(16 * _halved(side, 2) ** 2, 120)
        self.hidden2 = Linear(120, 84)
        self.output = Linear(84, classes)

    def forward(self, x):
        """Logits [n, classes] of images [n, side, side] or [n, channels, side, side]."""
        x = functional.max_pool2d(torch.relu(self.conv1(_planes(x))), 2)
        x = functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.relu(self.hidden1(x.flatten(1)))
        return self.output(torch.relu(self.hidden2(x)))


class _Xavier:
    def reset_parameters(self):
        """Draw the weights from N(0, 2 / (fan in + fan out)), the biases as PyTorch does."""
        super().reset_parameters()
        nn.init.xavier_normal_(self.weight)


class XavierConv2d(_Xavier, Conv2d):
    """A convolution whose weights are drawn Xavier normal (FedSoft, section "Experiments")."""


class XavierLinear(_Xavier, Linear):
    """A dense layer whose weights are drawn Xavier normal (FedSoft, section "Experiments")."""


class FedSoftLetters(nn.Module):
    """FedSoft's model for EMNIST letters: 2 convolutions with max pooling, then 2 dense layers.

    As in its released code, whose only non-linearities before the output are the two poolings. The
    code then applies ReLU and softmax and hands the result to a cross-entropy that applies softmax
    again; normalising twice flattens the gradients, so this model stops at the logits.

    ``channels``, ``side`` and ``classes`` as in :class:`IFCACifar`; the side is a multiple of 4.
    """

    def __init__(self, channels=1, side=28, classes=26):
        super().__init__()
        channels, side, classes = _sizes(channels, side, classes)
        self.conv1 = XavierConv2d(channels, 32, 5, padding=2)
        self.conv2 = XavierConv2d(32, 64, 5, padding=2)
        self.hidden = XavierLinear(64 * _halved(side, 2) ** 2, 512)
        self.output = XavierLinear(512, classes)

    def forward(self, x):
        """Logits [n, classes] of images [n, side, side] or [n, channels, side, side]."""
        x = functional.max_pool2d(self.conv1(_planes(x)), 2)
        x = functional.max_pool2d(self.conv2(x), 2)
        return self.output(self.hidden(x.flatten(1)))


class FedSoftCifar(nn.Module):
    """FedSoft's model for CIFAR-10: 6 convolutions, pooled after every second, 3 dense layers.

    As in its released code; the outputs are logits.

    ``channels``, ``side`` and ``classes`` as in :class:`IFCACifar`; the side is a multiple of 8.
    """

    def __init__(self, channels=3, side=32, classes=10):
        super().__init__()
        channels, side, classes = _sizes(channels, side, classes)
        self.conv1 = XavierConv2d(channels, 32, 3, padding=1)
        self.conv2 = XavierConv2d(32, 64, 3, padding=1)
        self.conv3 = XavierConv2d(64, 128, 3, padding=1)
        self.conv4 = XavierConv2d(128, 128, 3, padding=1)
        self.conv5 = XavierConv2d(128, 256, 3, padding=1)
        self.conv6 = XavierConv2d(256, 256, 3, padding=1)
        self.hidden1 = XavierLinear(256 * _halved(side, 3) ** 2, 1024)
        self.hidden2 = XavierLinear(1024, 512)
        self.output = XavierLinear(512, classes)

    def forward(self, x):
        """Logits [n, classes] of images [n, side, side] or [n, channels, side, side]."""
        x = torch.relu(self.conv2(torch.relu(self.conv1(_planes(x)))))
        x = functional.max_pool2d(x, 2)
        x = functional.max_pool2d(torch.relu(self.conv4(torch.relu(self.conv3(x)))), 2)
        x = functional.max_pool2d(torch.relu(self.conv6(torch.relu(self.conv5(x)))), 2)
        x = torch.relu(self.hidden1(x.flatten(1)))
        return self.output(torch.relu(self.hidden2(x)))
