"""The bounds of the papers as functions, and beside a bound what holds exactly, if known.

The papers state bounds up to "universal constants" c, c_1, c_2, ... that they do not give. Such a
bound has a shape and no value; the constants are therefore arguments without a default. Where a
constant can be found, or an exact value stands behind the bound, there is a function for it. One
module a paper: :mod:`~clusterfl_core.theory.ifca`, :mod:`~clusterfl_core.theory.cfl`,
:mod:`~clusterfl_core.theory.fedsoft`; all their names are here too.

>>> from clusterfl_core import theory
>>> round(float(theory.misclassification([0.2], [0.8], [0.0], noise=1.0, points=20)), 4)
0.0185

Errors are Euclidean distances between parameters, sigma is the standard deviation of the noise, and
the squared loss has no factor 1/2, so that its gradient has a factor 2. An argument out of bounds
is a ValueError that says so.
"""

from clusterfl_core.theory import cfl, fedsoft, ifca
from clusterfl_core.theory.cfl import *  # noqa: F403
from clusterfl_core.theory.fedsoft import *  # noqa: F403
from clusterfl_core.theory.ifca import *  # noqa: F403

__all__ = [*ifca.__all__, *cfl.__all__, *fedsoft.__all__]
