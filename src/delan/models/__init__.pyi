from .dynamics import Lagrangian, Normalisation, Promises, lagrangian
from .elastic import ElasticDrives, drives_of, motion_of_motors, with_springs
from .layers import Affine, LagrangianLayer, Perceptron, Sensitive, chained

__all__ = [
    "Affine",
    "ElasticDrives",
    "Lagrangian",
    "LagrangianLayer",
    "Normalisation",
    "Perceptron",
    "Promises",
    "Sensitive",
    "chained",
    "drives_of",
    "lagrangian",
    "motion_of_motors",
    "with_springs",
]
