"""Who is who: two numberings of the same things brought together.

Estimated clusters have numbers of their own, so they are compared with the true ones under the best
one-to-one matching of the two.

Examples
--------
>>> import numpy as np
>>> table = np.array([[0, 5], [4, 3], [1, 1]])  # a row an estimated cluster, a column a true one
>>> best_matching(table)
{0: 1, 1: 0}
"""

from clusterfl_core.check import array

__all__ = ["best_matching"]


def best_matching(table):
    """The one-to-one matching of rows and columns with the largest sum (Hungarian method).

    ``table`` [rows, columns] says what a match is worth: a count, or the negative of a distance. A
    dict of the column of each row, in the order of the rows; of the longer side some stay alone.
    """
    from scipy.optimize import linear_sum_assignment

    matched = linear_sum_assignment(array("table", table, None, None), maximize=True)
    return dict(zip(*(axis.tolist() for axis in matched), strict=True))
