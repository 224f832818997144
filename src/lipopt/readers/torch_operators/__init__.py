"""What PyTorch's operators do, in the words of the Builder: a table from operator to handler.

The names are those of an exported graph, such as `aten.conv2d.default`. A handler takes the builder,
a name for messages, and the operator's arguments in PyTorch's order, constants as arrays.
"""

from . import activations, linear, moves, smooth
from .table import HANDLERS, IGNORED, REFUSED, TAILS

__all__ = ["HANDLERS", "IGNORED", "REFUSED", "TAILS", "activations", "linear", "moves", "smooth"]
