"""What a loop is given: the robot with all that drives it, and those who follow the run."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import SettingsError
from ..robots.robot import Robot
from .broadcast import Onlooker
from .controller import Compiled, FeedForward, Gains
from .learner_process import Learner
from .recorder import Recorder
from .stats import LoopProgress


@dataclass(frozen=True, eq=False)
class Rig:
    """A robot with all that drives it and all that its rows go to.

    Attributes:
        learner: gets every sample and provides models to `feed_forward`, which must be `Compiled`
            of its blueprint. The loop starts it and does not close it.
        recorder: gets every row; its format has the `row_layout` of the robot.
    """

    robot: Robot
    gains: Gains
    feed_forward: FeedForward
    learner: Learner | None = None
    recorder: Recorder | None = None

    @property
    def compiled(self) -> Compiled | None:
        """The feed-forward torque, if it comes from weights that can be swapped."""
        return self.feed_forward if isinstance(self.feed_forward, Compiled) else None

    def require_matching(self, rate: float, *, training: bool) -> None:
        """Raise if the parts belong to another robot, control rate [Hz] or model."""
        robot = self.robot
        if abs(robot.dt * rate - 1) > 1e-6:
            raise SettingsError(
                f"the loop runs at {rate:g} Hz and the robot at {1 / robot.dt:g} Hz; "
                "give the robot the period dt = 1 / rate, or the loop the robot's rate"
            )
        dofs = {"gains": self.gains.dof, "feed-forward": self.feed_forward.joints.dof}
        for name, dof in dofs.items():
            if dof != robot.joints.dof:
                raise SettingsError(
                    f"the {name} are for {dof} joints and the robot has {robot.joints.dof}; "
                    "give those of this robot"
                )
        if self.learner is None or not training:
            return
        if self.compiled is None or self.compiled.blueprint != self.learner.blueprint:
            raise SettingsError(
                "a learner needs a feed-forward that can take its models: "
                "give `Compiled(learner.blueprint)`"
            )


@dataclass(frozen=True, eq=False)
class Observers:
    """Those who follow a run from outside.

    Attributes:
        progress: called now and then from inside the loop; must be short.
        onlooker: sees every period; it may set `stop`.
        stop: ends the run early when set; the robot is braked first.
        warn: called at once, from another thread, with a sentence on what failed beside the loop,
            such as the recording.
    """

    progress: Callable[[LoopProgress], None] | None = None
    onlooker: Onlooker | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    warn: Callable[[str], None] | None = None
