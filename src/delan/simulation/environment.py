"""A Gymnasium environment in which a robot learns to reach poses; needs the extra `gymnasium`."""

from typing import Any

import numpy as np

from ..errors import RobotError, SettingsError, installing
from ..joints import JointState
from ..robots.robot import Robot, Vector

try:
    import gymnasium
except ImportError as missing:
    raise RobotError(f"Gymnasium is not installed; {installing('gymnasium')}") from missing


class ReachEnvironment(gymnasium.Env[np.ndarray, np.ndarray]):
    """Reach a random pose and stay there, on any robot; `LearnedRobot` makes one of a model.

    An action is the share of its largest torque that each joint gets, from -1 to 1. An observation
    is q, q̇ and the error of q, each as a share of the joint's range or speed limit. The reward is
    minus the mean square of that error, less a thousandth of that of the action. An episode is cut
    after `steps` periods; it ends with a reward of -1 for each period that is left if a joint
    leaves its range or exceeds its speed.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  # as Gymnasium has it

    def __init__(self, robot: Robot, *, steps: int = 500):
        limits = robot.limits
        bounds = (limits.lower, limits.upper, limits.velocity, limits.torque)
        if not np.isfinite(bounds).all():
            raise SettingsError(
                "an environment needs finite limits of position, speed and torque for every joint; "
                "give the robot such limits"
            )
        dof = robot.joints.dof
        self.robot = robot
        self.steps = steps
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (dof,), np.float32)
        # A state that ends an episode is outside of the limits; its values are cut.
        self.observation_space = gymnasium.spaces.Box(-2.0, 2.0, (3 * dof,), np.float32)
        self._middle = (limits.lower + limits.upper) / 2
        self._half = (limits.upper - limits.lower) / 2
        self._goal = self._middle
        self._count = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start at rest in a random pose, with a random goal; `options` may give `q` and `goal`."""
        super().reset(seed=seed)
        options = options or {}
        start = self._pose(options.get("q"))
        self._goal = self._pose(options.get("goal"))
        self._count = 0
        return self._observation(self.robot.reset(start)), {"goal": self._goal}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Apply the torques of an action for one period."""
        share = np.clip(np.asarray(action, dtype=float), -1.0, 1.0)
        state = self.robot.step(share * self.robot.limits.torque)
        self._count += 1
        error = (self._goal - state.q) / self._half
        reward = -float(np.mean(error**2) / 4 + 1e-3 * np.mean(share**2))
        outside = bool(
            (np.abs(state.q - self._middle) > self._half).any()
            or (np.abs(state.qd) > self.robot.limits.velocity).any()
        )
        if outside:
            reward -= float(self.steps - self._count)
        return self._observation(state), reward, outside, self._count >= self.steps, {}

    def _pose(self, given: Vector | None) -> Vector:
        """Return a given pose, or a random one in the middle 80 % of the range."""
        if given is not None:
            return np.asarray(given, dtype=float)
        return self._middle + 0.8 * self._half * self.np_random.uniform(-1, 1, len(self._half))

    def _observation(self, state: JointState) -> np.ndarray:
        parts = (
            (state.q - self._middle) / self._half,
            state.qd / self.robot.limits.velocity,
            (self._goal - state.q) / self._half,
        )
        return np.clip(np.concatenate(parts), -2.0, 2.0).astype(np.float32)
