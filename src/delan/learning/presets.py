"""Presets: a network together with its training, by one word.

`paper` is the network of Lutter et al. 2019 to the letter, as far as the paper says how it was
built. What the paper leaves open is taken from its reference implementation where it has it: two
hidden layers of 64 units, a learning rate of 5e-4, λ = 1e-5, minibatches of 512 samples.
"""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from ..models.networks import FeedForwardSettings, LagrangianNetworkSettings
from ..solvers.adam import DescentSettings
from ..solvers.loss import Objective
from ..solvers.training import TrainingSettings


@dataclass(frozen=True)
class Preset:
    """A network, the feed-forward network that it is compared with, and the training of both."""

    network: LagrangianNetworkSettings
    feed_forward: FeedForwardSettings
    training: TrainingSettings

    def trained(self, given: TrainingSettings) -> TrainingSettings:
        """Return the training of the preset with whatever `given` sets apart from the defaults."""
        return _changed(self.training, given, TrainingSettings())


def _changed(preset: Any, given: Any, usual: Any) -> Any:
    """Return a settings record of a preset with the fields in which `given` is not as usual."""
    changes = {}
    for field in fields(preset):
        value = getattr(given, field.name)
        if is_dataclass(value):
            parts = (getattr(preset, field.name), value, getattr(usual, field.name))
            changes[field.name] = _changed(*parts)
        elif value != getattr(usual, field.name):
            changes[field.name] = value
    return replace(preset, **changes)


# ReLU, raw q, a softplus diagonal plus b, a vector for g, heads without units; the squared error
# plus λ Ω over all weights, by Adam at one learning rate.
PAPER = Preset(
    network=LagrangianNetworkSettings(
        activation="relu",
        diagonal="softplus",
        focus=0.0,
        gravity="vector",
        inputs="raw",
        outputs="raw",
    ),
    feed_forward=FeedForwardSettings(activation="relu"),
    training=TrainingSettings(
        optimizer="adam",
        objective=Objective(torque="squared", weight_decay=1e-5, decayed="all"),
        descent=DescentSettings(learning_rate=5e-4, rate="constant", warm_up=0.0, clip=None),
    ),
)

PRESETS = {"paper": PAPER}
