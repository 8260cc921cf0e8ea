"""What of a model is not numbers, and how it is to be written: both decide which C code there is."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import SettingsError
from ..joints import Joints
from ..models.actuated import ActuatedModel
from ..models.actuator import ActuatorSettings
from ..models.chain import LagrangianChain
from ..models.dynamics import DynamicsModel
from ..models.network import LagrangianNetwork
from ..models.trust import TrustedModel, bare

Precision = Literal["float", "double"]

TAKEN = ("test", "example", "math", "stdint", "stdio", "string", "time")
"""Names of files that stand beside the code, or that it includes."""


@dataclass(frozen=True)
class ExportSettings:
    """How a model is written as C code.

    Attributes:
        name: what every name in the code begins with; a word of letters, digits and underscores.
        precision: of all numbers.
        fast_math: an exponential of our own in float, with a relative error below 3e-7, which compilers vectorise;
            in double, and without it, that of the C library.
        weights: `constant`, compiled in; or `data`, given at every call, so that new ones need no compiler.
    """

    name: str = "arm"
    precision: Precision = "float"
    fast_math: bool = True
    weights: Literal["constant", "data"] = "constant"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", self.name):
            raise SettingsError(
                f"{self.name!r} cannot begin a name in C; give a word of letters, digits and underscores"
            )
        if self.name.lower() in TAKEN:
            raise SettingsError(f"{self.name}.c or {self.name}.h is another file of the code; give another --name")
        if self.precision not in ("float", "double"):
            raise SettingsError(f"unknown precision {self.precision!r}; known: float, double")

    @property
    def fast(self) -> bool:
        return self.fast_math and self.precision == "float"


@dataclass(frozen=True, eq=False)
class Shape:
    """What of a model is not numbers: it decides which code is there."""

    joints: Joints
    rigid: Any
    actuator: ActuatorSettings | None
    states: int

    @classmethod
    def of(cls, model: Any) -> "Shape":
        plain = bare(model)
        states = len(model.domain.states) if isinstance(model, TrustedModel) else 0
        if isinstance(plain, ActuatedModel):
            return cls(plain.joints, plain.rigid, plain.actuator.settings, states)
        return cls(plain.joints, plain, None, states)

    @property
    def kernels(self) -> tuple[str, ...]:
        friction = () if self.actuator is None else ("friction.c",)
        if isinstance(self.rigid, LagrangianChain):
            return ("chain.c", *friction)
        return ("layers.c", "network.c" if isinstance(self.rigid, LagrangianNetwork) else "feed_forward.c", *friction)

    @property
    def stops(self) -> tuple[float, ...]:
        return () if self.actuator is None else self.actuator.stops

    @property
    def motors(self) -> int:
        return self.joints.dof + (0 if self.actuator is None else len(self.actuator.pairs))

    @property
    def mechanics(self) -> bool:
        # By class first: a protocol looks at every method, and equinox takes long to bind one.
        return isinstance(self.rigid, (LagrangianChain, LagrangianNetwork, DynamicsModel))

    @property
    def potential(self) -> bool:
        vector = isinstance(self.rigid, LagrangianNetwork) and self.rigid.settings.gravity == "vector"
        return self.mechanics and not vector

    @property
    def functions(self) -> tuple[str, ...]:
        """What the code of such a model promises, without the model's name before it."""
        return tuple(self._functions())

    def _functions(self) -> Iterator[str]:
        if self.stops:
            yield from ("state_init", "state_update")
        yield "inverse_dynamics"
        if self.mechanics:
            yield from ("forward_dynamics", "mass_matrix", "coriolis", "gravity", "friction")
            if self.actuator is not None and "load" in self.actuator.terms:
                yield "unloaded_friction"
            if self.potential:
                yield "energy"
        if self.states:
            yield "in_domain"
