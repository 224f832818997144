"""Branch and bound: the domain is divided into cells until the bounds of all of them are close to a slope that is attained.

choose.py   where a cell can be split
gains.py    which neuron to split, from what splits have gained
expand.py   one step: a cell in, its examined parts out
workers.py  who does that: this process, or several; Ctrl-C
search.py   best first, in rounds
method.py   the method `branch`
"""

from .method import QUICK_CELLS, Branch, cells_in_a_second

__all__ = ["QUICK_CELLS", "Branch", "cells_in_a_second"]
