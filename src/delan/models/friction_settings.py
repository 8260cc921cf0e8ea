"""Which friction, rotors and springs the motors of a robot have, without their numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import SettingsError
from ..mechanics.friction_terms import TERMS, FrictionLaw, Term

# Range of radii, speeds and ratios: the C code computes their inverses and squares in float.
SMALLEST = 1e-9
LARGEST = 1e9
_RANGE = f"expected {SMALLEST:g} to {LARGEST:g} in size"


@dataclass(frozen=True)
class MotorPair:
    """A motor that turns with two joints, q_m = q_first + ratio q_second: a cable differential."""

    first: int
    second: int
    ratio: float

    def __post_init__(self) -> None:
        if min(self.first, self.second) < 0 or self.first == self.second:
            raise SettingsError(
                f"a motor pair needs two different joints, counted from 0, got {self}"
            )
        if not _is_positive(abs(self.ratio)):
            raise SettingsError(
                f"the ratio of a motor pair must be finite and not zero, got {self}; {_RANGE}"
            )


@dataclass(frozen=True)
class FrictionSettings:
    """The friction of the motors.

    Attributes:
        terms: names in `TERMS`: armature I q̈, viscous d v, coulomb F_c tanh(v/w), asymmetric
            (Coulomb friction with a size for each direction), stribeck (static friction), a
            constant offset, load friction `μ |τ_c| tanh(v/w)` with the conservative torque τ_c,
            stops, which remember the path: one stop operator for each radius; and terms that store
            energy: spring k q (its rest position is in the offsets), and periodic, the torque of
            cables as two harmonics of the angle.
        pairs: motors that drive two joints, in addition to the motor of every joint; they have no
            offset and no load friction.
        radii: radii of the stop operators [rad or m].
        width, stribeck_speed: w and v_s [rad/s or m/s]; training starts from both.
        passive: weights of friction stay ≥ 0, so that it dissipates energy and supplies none; the
            inertias of rotors are never negative.
    """

    terms: tuple[Term, ...] = ("viscous", "coulomb", "offset")
    pairs: tuple[MotorPair, ...] = ()
    radii: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    width: float = 0.01
    stribeck_speed: float = 0.1
    passive: bool = True

    def __post_init__(self) -> None:
        if not _all_distinct(self.terms, TERMS.__contains__):
            raise SettingsError(
                f"terms is a tuple of {', '.join(TERMS)}, each at most once, got {self.terms!r}"
            )
        if {"coulomb", "asymmetric"} <= set(self.terms):
            raise SettingsError(
                "asymmetric is coulomb with a size for each direction; give only one of them, "
                f"got {self.terms!r}"
            )
        if not _all_distinct(self.pairs, lambda pair: isinstance(pair, MotorPair)):
            raise SettingsError(
                f"pairs is a tuple of MotorPair, each at most once, got {self.pairs!r}"
            )
        if not (self.radii and _all_distinct(self.radii, _is_positive)):
            raise SettingsError(
                f"radii is a tuple of different numbers, positive and finite, "
                f"got {self.radii!r}; {_RANGE}"
            )
        speeds = {"width of the Coulomb step": self.width, "stribeck_speed": self.stribeck_speed}
        for name, value in speeds.items():
            if not _is_positive(value):
                raise SettingsError(f"{name} must be positive and finite, got {value}; {_RANGE}")

    @property
    def stops(self) -> tuple[float, ...]:
        """Radii of the stop operators in use [rad or m]."""
        return self.radii if "stops" in self.terms else ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the weights of each motor, in the order of the terms."""
        return tuple(name for name, _ in self.laws)

    @property
    def stores_energy(self) -> bool:
        """Whether there are springs or cables."""
        return any(TERMS[term].potential is not None for term in self.terms)

    def bounded(self, dof: int) -> tuple[bool, ...]:
        """Whether each weight, column by column and in these motor by motor, must be ≥ 0."""
        bounded: list[bool] = []
        for _, law in self.laws:
            bounded += [law.bounded(self.passive)] * (dof + len(self.pairs))
        return tuple(bounded)

    @property
    def laws(self) -> list[tuple[str, FrictionLaw]]:
        """Name and law of every column."""
        laws = []
        for term in self.terms:
            law = TERMS[term]
            names = (term,) if law.columns is None else law.columns(self.radii)
            for name in names:
                laws.append((name, law))
        return laws


def _is_positive(value: float) -> bool:
    return SMALLEST <= value <= LARGEST


def _all_distinct(values: Any, fits: Callable[[Any], bool]) -> bool:
    """Return whether the values are a tuple of different elements that all fit."""
    return isinstance(values, tuple) and all(map(fits, values)) and len(set(values)) == len(values)
