"""The models of the papers, as plain ``torch.nn.Module``.

A model maps inputs [n, ...] to outputs [n, classes] or [n]. Its attribute ``loss`` is the loss of
each point (a function of outputs and targets); a module without it is taken as a classifier with
cross-entropy, so a classifier ends in logits, never in a softmax. Fresh parameters come from
``reset_parameters`` of the parts.

Images are [n, height, width] or, in colour, channel first: [n, 3, height, width]. Convolutions keep
the side and pooling halves it, so the image models take the papers' images and 8 x 8 digits alike:

>>> model = CFLConvNet(channels=1, side=8, classes=10)
>>> model(torch.zeros(5, 8, 8)).shape
torch.Size([5, 10])
>>> sum(parameter.numel() for parameter in model.parameters())
21386
"""

import torch
from torch import nn

# Layers by name: a saved run may hold the classes that this module names, and no others.
from torch.nn import Conv2d, Embedding, Linear, functional


def cross_entropy(outputs, labels):
    """Cross-entropy of each point in nats: logits [..., classes], labels [...] -> [...]."""
    flat = functional.cross_entropy(
        outputs.flatten(0, -2), labels.to(torch.int64).flatten(), reduction="none"
    )
    return flat.view(labels.shape)


def squared_error(outputs, responses):
    """(y - <x, theta>)^2 of each point, without a factor 1/2 (IFCA, section 5.1).

    Its gradient in theta therefore carries the factor 2.
    """
    return (responses - outputs) ** 2


class MLP(nn.Module):
    """One hidden layer with ReLU, as in IFCA's experiments on MNIST (hidden = 200).

    Parameters
    ----------
    inputs : int
        Number of pixels; images are flattened.
    hidden : int
        Number of hidden units.
    classes : int
        Number of classes; the outputs are logits.
    """

    first = "hidden"  # the layer that sees the inputs is linear; see compute.begins_linear

    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.hidden = Linear(inputs, hidden)
        self.output = Linear(hidden, classes)

    def forward(self, x):
        """Logits [n, classes] of images [n, ...]."""
        return self.after(self.hidden(x.flatten(1)))

    def after(self, hidden):
        """Logits [n, classes] of what the first layer says, [n, hidden]."""
        return self.output(torch.relu(hidden))


class LinearRegression(nn.Module):
    """y = <x, theta> with squared loss (IFCA, section 5.1); no intercept.

    Fresh parameters are 0 or 1 with probability 1/2 each, as IFCA's section 6.1 draws them.

    Parameters
    ----------
    features : int
        d, the length of theta.
    """

    loss = staticmethod(squared_error)

    def __init__(self, features):
        super().__init__()
        self.theta = nn.Parameter(torch.empty(features))
        self.reset_parameters()

    def reset_parameters(self):
        """Draw each coordinate of theta from Bernoulli(1/2)."""
        with torch.no_grad():
            self.theta.bernoulli_(0.5)

    def forward(self, x):
        """Predictions [n] for x [n, d]."""
        return x @ self.theta


def _planes(x):
    return x if x.ndim == 4 else x[:, None]


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
        Pixels a side, a multiple of 4. The paper's images are 24 x 24 crops.
    classes : int
        Number of classes; the outputs are logits.

    Raises
    ------
    ValueError
        If the side cannot be halved twice.
    """

    def __init__(self, channels=3, side=24, classes=10):
        super().__init__()
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

    Raises
    ------
    ValueError
        If the side cannot be halved twice.
    """

    def __init__(self, channels=1, side=28, classes=62, hidden=2048):
        super().__init__()
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

    Parameters
    ----------
    channels, side, classes : int
        As in :class:`IFCACifar`; the side is a multiple of 4.

    Raises
    ------
    ValueError
        If the side cannot be halved twice.
    """

    def __init__(self, channels=3, side=32, classes=10):
        super().__init__()
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


class XavierConv2d(Conv2d):
    """A convolution whose weights are drawn Xavier normal (FedSoft, section "Experiments")."""

    def reset_parameters(self):
        """Draw the weights from N(0, 2 / (fan in + fan out)), the biases as PyTorch does."""
        super().reset_parameters()
        nn.init.xavier_normal_(self.weight)


class XavierLinear(Linear):
    """A dense layer whose weights are drawn Xavier normal (FedSoft, section "Experiments")."""

    def reset_parameters(self):
        """Draw the weights from N(0, 2 / (fan in + fan out)), the biases as PyTorch does."""
        super().reset_parameters()
        nn.init.xavier_normal_(self.weight)


class FedSoftLetters(nn.Module):
    """FedSoft's model for EMNIST letters: 2 convolutions with max pooling, then 2 dense layers.

    As in its released code, whose only non-linearities before the output are the two poolings. The
    code then applies ReLU and softmax and hands the result to a cross-entropy that applies softmax
    again; normalising twice flattens the gradients, so this model stops at the logits.

    Parameters
    ----------
    channels, side, classes : int
        As in :class:`IFCACifar`; the side is a multiple of 4.

    Raises
    ------
    ValueError
        If the side cannot be halved twice.
    """

    def __init__(self, channels=1, side=28, classes=26):
        super().__init__()
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

    Parameters
    ----------
    channels, side, classes : int
        As in :class:`IFCACifar`; the side is a multiple of 8.

    Raises
    ------
    ValueError
        If the side cannot be halved three times.
    """

    def __init__(self, channels=3, side=32, classes=10):
        super().__init__()
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


class LSTMLayer(nn.Module):
    """One layer of long short-term memory, written out step by step.

    ``torch.nn.LSTM`` is one fused operation, which cannot be applied to a bank of models at once.
    This computes the same, with one bias where that has two that are only ever added.

    Parameters
    ----------
    inputs : int
        Numbers a step.
    hidden : int
        h, the size of the state.
    """

    def __init__(self, inputs, hidden):
        super().__init__()
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden, inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(4 * hidden))
        self.reset_parameters()

    def reset_parameters(self):
        """Draw all parameters uniformly from +-1 / sqrt(h), as ``torch.nn.LSTM`` does."""
        bound = self.weight_hh.shape[1] ** -0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x):
        """States [n, steps, h] after each step of x [n, steps, inputs], from zero."""
        from_input = x @ self.weight_ih.T + self.bias
        state = memory = x.new_zeros(len(x), self.weight_hh.shape[1])
        states = []
        for step in from_input.unbind(1):
            into, keep, new, out = (step + state @ self.weight_hh.T).chunk(4, 1)
            memory = keep.sigmoid() * memory + into.sigmoid() * new.tanh()
            state = out.sigmoid() * memory.tanh()
            states.append(state)
        return torch.stack(states, 1)


class NextWordLSTM(nn.Module):
    """CFL's language model (section VI-C, figure 9): two layers of LSTM that predict the next word.

    The paper gives no sizes. A point is a window of words and the word that follows it, so the mean
    loss is the logarithm of the perplexity.

    Parameters
    ----------
    vocabulary : int
        Number of words.
    embedding : int
        Numbers that stand for a word.
    hidden : int
        Size of the state of each layer.
    """

    def __init__(self, vocabulary, embedding, hidden):
        super().__init__()
        self.embedding = Embedding(vocabulary, embedding)
        self.lstm1 = LSTMLayer(embedding, hidden)
        self.lstm2 = LSTMLayer(hidden, hidden)
        self.output = Linear(hidden, vocabulary)

    def forward(self, x):
        """Logits [n, vocabulary] of the word after each window x [n, words]; x may be floating."""
        states = self.lstm2(self.lstm1(self.embedding(x.to(torch.int64))))
        return self.output(states[:, -1])
