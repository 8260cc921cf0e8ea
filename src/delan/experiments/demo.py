"""The first result: a two-link arm writes letters, and two networks learn its dynamics from the summed torques."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
from jaxtyping import PRNGKeyArray

from ..data.letters import LETTERS
from ..errors import SettingsError
from ..joints import Dataset
from ..learning.evaluate import Scores, evaluate
from ..learning.fit import fit
from ..learning.fit_result import FitResult
from ..learning.planning import FitSettings, ModelChoice
from ..learning.training import Progress
from ..models.rigid_body import RigidBody
from ..robots.two_link import TWO_LINK
from .motion_logs import written


@dataclass(frozen=True)
class DemoSettings:
    """What the arm writes and how long the networks may learn.

    Attributes:
        letters, test: all the letters, and those held back for the test.
        speed: mean speed of the pen [m/s].
        dt: sampling period of the log [s].
        epochs: passes over the data of each network's training.
    """

    letters: str = "".join(LETTERS)
    test: str = "eqv"
    speed: float = 0.45
    dt: float = 0.02
    epochs: int = 150

    def __post_init__(self) -> None:
        if not self.test or not set(self.test) < set(self.letters):
            raise SettingsError(
                f"the test letters {self.test!r} must be some, not all, of the letters {self.letters!r}"
            )


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model as it was fitted, and its scores on the test letters."""

    result: FitResult
    scores: Scores


@dataclass(frozen=True, eq=False)
class DemoResult:
    """The log of all letters (trajectory i is the i-th letter), the models by name, and the arm they learned.

    `true_valid_share` is how much of the test motion the true arm predicts from the same sampled torques.
    """

    settings: DemoSettings
    dataset: Dataset
    models: dict[str, Fitted]
    truth: RigidBody
    true_valid_share: float
    seconds: float


def run(
    settings: DemoSettings,
    *,
    key: PRNGKeyArray,
    progress: Sequence[Callable[[Progress], None] | None] = (None, None),
) -> DemoResult:
    """Fit both networks side by side on the training letters and score them on the others."""
    began = time.perf_counter()
    dataset = written(settings.letters, speed=settings.speed, dt=settings.dt)
    test_labels = [settings.letters.index(letter) for letter in settings.test]
    test = dataset.select(test_labels)
    training = dataset.select([label for label in dataset.trajectories if label not in test_labels])
    choices: dict[str, ModelChoice] = {"DeLaN": "delan", "feed-forward": "feedforward"}
    stop = threading.Event()

    def fitted(model: ModelChoice, one: PRNGKeyArray, watch: Callable[[Progress], None] | None) -> Fitted:
        result = fit(training, model, FitSettings(epochs=settings.epochs), key=one, progress=watch, stop=stop)
        return Fitted(result, evaluate(result.model, test))

    with ThreadPoolExecutor(len(choices)) as pool:
        keys = jax.random.split(key, len(choices))
        futures = {
            name: pool.submit(fitted, choice, one, watch)
            for (name, choice), one, watch in zip(choices.items(), keys, progress, strict=True)
        }
        try:
            models = {name: future.result() for name, future in futures.items()}
        except KeyboardInterrupt:
            stop.set()
            raise
    truth = RigidBody.from_urdf(TWO_LINK.urdf())
    rollouts = evaluate(truth, test).rollouts
    assert rollouts is not None  # a letter has more than one sample
    return DemoResult(settings, dataset, models, truth, rollouts.valid_share, time.perf_counter() - began)
