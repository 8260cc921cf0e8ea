from .dynamics import Lagrangian, Normalisation, Promises, lagrangian
from .layers import Affine, LagrangianLayer, Perceptron, Sensitive, chained

__all__ = [
    "Affine",
    "Lagrangian",
    "LagrangianLayer",
    "Normalisation",
    "Perceptron",
    "Promises",
    "Sensitive",
    "chained",
    "lagrangian",
]
