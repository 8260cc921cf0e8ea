"""The methods that train a model, step by step: Adam over minibatches, and Levenberg–Marquardt on
all samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from . import adam, marquardt
from .loss import Data, Objective, Scale, data_loss

EXACT = 1e-13
"""A loss, as share of the torque's variance, at which nothing is left to learn."""


@dataclass(frozen=True)
class Advance:
    """What one step of a stage came to."""

    training: float
    validation: float
    finished: bool = False


class DescentState(eqx.Module):
    learner: adam.LearnerState
    shrink: Float[Array, ""]


@dataclass(frozen=True)
class DescentStage:
    """Adam over minibatches; `patience` is a number of epochs without progress, inf for none."""

    training: Data
    validation: Data
    scale: Scale
    objective: Objective
    settings: adam.DescentSettings
    chunk: int
    epochs: int | None
    patience: float
    name: str = "Adam"

    def start(self, model: Any) -> DescentState:
        learner = adam.init(model, self.scale, self.objective, self.settings)
        return DescentState(learner, jnp.ones_like(learner.learning_rate))

    def advance(
        self, state: DescentState, shares: Sequence[float], key: PRNGKeyArray
    ) -> tuple[DescentState, Advance]:
        rates = state.shrink * jnp.asarray([self.settings.schedule(share) for share in shares])
        learner, report = adam.run_epochs(state.learner, self.training, self.validation, rates, key)
        return DescentState(learner, state.shrink), Advance(
            float(report.training), float(report.validation)
        )

    def retreat(self, state: DescentState, model: Any) -> DescentState:
        return DescentState(self.start(model).learner, state.shrink / 2)

    def model(self, state: DescentState) -> Any:
        return state.learner.model


@dataclass(frozen=True)
class MarquardtStage:
    """Levenberg–Marquardt on all samples; an epoch is an iteration."""

    training: Data
    validation: Data
    scale: Scale
    objective: Objective
    settings: marquardt.MarquardtSettings
    epochs: int | None
    patience: float
    chunk: int = 1
    name: str = "Levenberg–Marquardt"

    def start(self, model: Any) -> marquardt.MarquardtState:
        return marquardt.init(model, self.settings)

    def advance(
        self, state: marquardt.MarquardtState, shares: Sequence[float], key: PRNGKeyArray
    ) -> tuple[marquardt.MarquardtState, Advance]:
        state, loss = marquardt.update(
            state, self.training, self.scale, self.objective, self.settings
        )
        validation = _validate(state.model, self.validation, self.scale, self.objective)
        return state, Advance(
            float(loss), float(validation), finished=bool(state.stalled) or float(loss) < EXACT
        )

    def retreat(self, state: marquardt.MarquardtState, model: Any) -> marquardt.MarquardtState:
        return eqx.tree_at(lambda s: s.damping, self.start(model), state.damping * 100)

    def model(self, state: marquardt.MarquardtState) -> Any:
        return state.model


_validate = eqx.filter_jit(data_loss)


@runtime_checkable
class Stage(Protocol):
    """A method that improves a model in steps of `chunk` epochs, `epochs` in all (None: until time
    runs out).
    """

    @property
    def name(self) -> str: ...
    @property
    def training(self) -> Data: ...
    @property
    def chunk(self) -> int: ...
    @property
    def epochs(self) -> int | None: ...
    @property
    def patience(self) -> float: ...
    def start(self, model: Any) -> Any: ...
    def advance(
        self, state: Any, shares: Sequence[float], key: PRNGKeyArray
    ) -> tuple[Any, Advance]: ...
    def retreat(self, state: Any, model: Any) -> Any: ...
    def model(self, state: Any) -> Any: ...
