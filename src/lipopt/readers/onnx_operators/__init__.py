"""What every ONNX operator does, in the words of the Builder: a table from operator to handler."""

from . import activations, linear, moves, smooth
from .table import HANDLERS, REFUSED, Step, Value

__all__ = ["HANDLERS", "REFUSED", "Step", "Value", "activations", "linear", "moves", "smooth"]
