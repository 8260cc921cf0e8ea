"""The demonstration: a two-link arm writes letters, and two networks learn its dynamics."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
from jaxtyping import PRNGKeyArray

from ..errors import SettingsError
from ..joints import Dataset
from ..learning.model_fit import fit_model
from ..learning.scores import Scores, evaluate
from ..learning.study import Study, TrainingResult
from ..models.rigid_body import RigidBody
from ..motions.letters import LETTERS
from ..robots.arms import TWO_LINK
from ..solvers.plan import ModelChoice
from ..solvers.training import Progress, TrainingSettings
from .motion_logs import letter_log

Watcher = Callable[[Progress], None] | None
MODELS: dict[str, ModelChoice] = {"DeLaN": "delan", "feed-forward": "feedforward"}


@dataclass(frozen=True)
class DemoSettings:
    """What the arm writes, and how long the networks are trained.

    Attributes:
        letters, test: all letters, and those held out for the test.
        speed: mean speed of the pen [m/s].
        dt: sampling period of the log [s].
        epochs: passes over the data in the training of each network.
    """

    letters: str = "".join(LETTERS)
    test: str = "eqv"
    speed: float = 0.45
    dt: float = 0.02
    epochs: int = 150

    def __post_init__(self) -> None:
        if not self.test or not set(self.test) < set(self.letters):
            raise SettingsError(
                f"the test letters {self.test!r} must be some, not all, of the letters "
                f"{self.letters!r}"
            )


@dataclass(frozen=True, eq=False)
class DemoFit:
    """A fitted model and its scores on the test letters."""

    result: TrainingResult
    scores: Scores


@dataclass(frozen=True, eq=False)
class DemoResult:
    """Data, models and truth of a demonstration.

    Attributes:
        dataset: the log of all letters; trajectory i is the i-th letter.
        models: the fits by the name of the model.
        truth: the model of the simulated arm.
        true_valid_share: share of the test motion that `truth` predicts from the sampled torques.
        seconds: time that all of it took.
    """

    settings: DemoSettings
    dataset: Dataset
    models: dict[str, DemoFit]
    truth: RigidBody
    true_valid_share: float
    seconds: float


def run_demo(
    settings: DemoSettings, *, key: PRNGKeyArray, progress: Sequence[Watcher] = (None, None)
) -> DemoResult:
    """Fit both networks in parallel to the training letters and score them on the test letters."""
    began = time.perf_counter()
    dataset = letter_log(settings.letters, speed=settings.speed, dt=settings.dt)
    test_labels = [settings.letters.index(letter) for letter in settings.test]
    test = dataset.select(test_labels)
    training = dataset.select([label for label in dataset.trajectories if label not in test_labels])
    fit_settings = TrainingSettings(epochs=settings.epochs)
    stop = threading.Event()

    def fitted(model: ModelChoice, model_key: PRNGKeyArray, watch: Watcher) -> DemoFit:
        result = fit_model(
            Study.of(training, fit_settings, key=model_key, stop=stop, watch=watch), model
        )
        return DemoFit(result, evaluate(result.model, test))

    with ThreadPoolExecutor(len(MODELS)) as pool:
        futures = {}
        keys = jax.random.split(key, len(MODELS))
        for name, model_key, watch in zip(MODELS, keys, progress, strict=True):
            futures[name] = pool.submit(fitted, MODELS[name], model_key, watch)
        try:
            models = {name: future.result() for name, future in futures.items()}
        except KeyboardInterrupt:
            stop.set()
            raise
    truth = RigidBody.from_urdf(TWO_LINK.urdf())
    rollouts = evaluate(truth, test).rollouts
    assert rollouts is not None  # a letter has more than one sample
    seconds = time.perf_counter() - began
    return DemoResult(settings, dataset, models, truth, rollouts.valid_share, seconds)
