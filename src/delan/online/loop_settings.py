"""Rates and behaviour of the control loop."""

from dataclasses import dataclass, field

from ..errors import SettingsError
from .admission import AdmissionSettings
from .guard import GuardSettings


@dataclass(frozen=True)
class LoopSettings:
    """Rates and behaviour of the loop.

    Attributes:
        rate: control rate [Hz]; must be that of the robot.
        feed_forward_rate: rate at which τ_ff is updated [Hz].
        reference_rate: rate at which the desired state of the PD control is updated [Hz]; None
            updates it in every period. The paper has 200 Hz for both.
        training: pass samples to the learner and take its models; otherwise the model is frozen.
        progress: time between two calls of the progress callback [s].
        stop: time in which the robot is braked when it has to stop [s]; it is held as long again.
        stall: if the loop stands still for this time [s], the robot is held, for `stop` [s], before
            it returns to the motion.
        require_recording: stop the robot if a row cannot be recorded.
        catches_up: step the robot through periods that passed before the loop could act. True for
            a simulation, False for a real robot, which moves by itself.
        admission: how learned models are judged.
        guard: thresholds on states and torques.
    """

    rate: float = 500.0
    feed_forward_rate: float = 200.0
    reference_rate: float | None = None
    training: bool = True
    progress: float = 0.2
    stop: float = 0.3
    stall: float = 0.2
    require_recording: bool = False
    catches_up: bool = True
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)

    def __post_init__(self) -> None:
        for name in ("rate", "feed_forward_rate", "progress", "stop", "stall"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise SettingsError(f"{name} must be positive and finite, got {value}")
        rates = {"feed_forward_rate": self.feed_forward_rate}
        if self.reference_rate is not None:
            rates["reference_rate"] = self.reference_rate
        for name, rate in rates.items():
            if not 0 < rate <= self.rate:
                raise SettingsError(
                    f"{name} is {rate:g} Hz, expected at most the control rate of {self.rate:g} Hz"
                )
