"""Real data sets, as byte tensors and as text.

``digits`` and the text ``manuals`` ship inside packages that are installed anyway and need no
network; everything in the book runs on them by default. The others are downloaded once, checked,
and then lie in one file ``NAME.npz`` in the cache folder: ``$CLUSTERFL_DATA``, or
``~/.cache/clusterfl``. A file found there is used as it is, so a copy on a stick works too.

>>> images = load("digits")
>>> images.x_train.shape, images.x_train.dtype, images.classes
(torch.Size([1437, 8, 8]), torch.uint8, 10)
>>> load_text("manuals").kinds
('Python', 'NumPy', 'SciPy', 'PyTorch')
"""

from clusterfl_core.data.cache import Unavailable, cache_folder
from clusterfl_core.data.images import Images, load
from clusterfl_core.data.texts import Texts, load_text

__all__ = ["Images", "Texts", "Unavailable", "cache_folder", "load", "load_text"]
