"""CFL's language model, with an LSTM that can be applied to a bank of models at once."""

import torch
from torch import nn

from clusterfl_core.check import whole

__all__ = ["LSTMLayer", "NextWordLSTM"]


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
        inputs, hidden = whole("inputs", inputs), whole("hidden", hidden)
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
        vocabulary, embedding = whole("vocabulary", vocabulary), whole("embedding", embedding)
        hidden = whole("hidden", hidden)
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm1 = LSTMLayer(embedding, hidden)
        self.lstm2 = LSTMLayer(hidden, hidden)
        self.output = nn.Linear(hidden, vocabulary)

    def forward(self, x):
        """Logits [n, vocabulary] of the word after each window x [n, words]; x may be floating."""
        states = self.lstm2(self.lstm1(self.embedding(x.to(torch.int64))))
        return self.output(states[:, -1])
