"""Cells: parts of a domain, and what can be proved of the network in them.

reduced.py      the network in the neurons whose slope is not known over the whole domain
cell.py         a cell: a box, constraints on neurons, intervals
elimination.py  bounds on neurons, from lines around the neurons before them
walk.py         from the first group of neurons to the last: forms, better intervals, slopes
programs.py     the linear programs that find the best lines
ascent.py       steps towards the best lines, for many neurons at once
slope_bound.py  the bound of a cell: interval arithmetic on its derivative
examine.py      all of these together, for one cell
regions.py      uphill from linear region to linear region: slopes that are attained
refine.py       better intervals over the whole domain, for every method
"""
