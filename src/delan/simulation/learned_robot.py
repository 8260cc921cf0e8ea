"""A learned model as a robot, for controllers, the live view and reinforcement learning."""

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import SettingsError
from ..joints import JointLimits, JointState
from ..models.dynamics import in_precision
from ..models.model import Model, without_trust
from ..robots.robot import Vector, physics_steps, safe_torque
from .stepper import Drive, MovingState, at_rest, driven, require_simulable


class LearnedRobot:
    """The robot that a model describes, with exact sensors, in implicit steps.

    Limits bound the torque; a model knows of no end stops. Those of a log are
    `delan.deploy.simulator_files.recorded_limits(model, log)`.
    """

    def __init__(
        self, model: Model, limits: JointLimits, *, dt: float = 2e-3, physics_dt: float = 1e-3
    ):
        require_simulable(model)
        if len(limits.torque) != model.joints.dof:
            raise SettingsError(
                f"got limits of {len(limits.torque)} joints for a model of {model.joints.dof}; "
                "give one for each joint"
            )
        self._steps = physics_steps(dt, physics_dt)
        self._physics_dt = physics_dt
        with jax.enable_x64(True):
            self._model = in_precision(without_trust(model))
        self.joints = model.joints
        self.limits = limits
        self.dt = dt
        self._time = 0.0
        self._moving: MovingState
        self.reset()

    @property
    def home(self) -> Vector:
        """The default pose after a reset [rad or m]: zero, or the nearest position in range."""
        return np.clip(np.zeros(self.joints.dof), self.limits.lower, self.limits.upper)

    def reset(self, q: Vector | None = None, qd: Vector | None = None) -> JointState:
        """Go back to time 0 and to a pose, with the memory of friction relaxed."""
        self._time = 0.0
        start = self.home if q is None else np.asarray(q, dtype=float)
        speed = np.zeros(self.joints.dof) if qd is None else np.asarray(qd, dtype=float)
        with jax.enable_x64(True):
            rest = at_rest(self._model, jnp.asarray(start))
            self._moving = rest._replace(qd=jnp.asarray(speed))
        return self.state()

    def step(self, tau: Vector) -> JointState:
        """Apply torques, bounded by the limits, for one control period."""
        tau = safe_torque(tau, self.limits, self.joints)
        with jax.enable_x64(True):
            held = Drive.held(jnp.asarray(np.tile(tau, (self._steps, 1))))
            states = driven(self._model, self._moving, held, jnp.asarray(self._physics_dt))
            self._moving = jax.tree.map(lambda rows: rows[-1], states)
        self._time += self.dt
        return self.state()

    def state(self) -> JointState:
        """Return the state now."""
        return JointState(self._time, np.array(self._moving.q), np.array(self._moving.qd))
