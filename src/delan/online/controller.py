"""PD control with a feed-forward torque, and the models that compute it beside the loop."""

import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..deploy.compiled import CompiledModel
from ..deploy.layout import Numbers as CodeNumbers
from ..errors import CompilerError, ModelError, SettingsError
from ..joints import Joints, JointState, JointTarget
from ..models.dynamics import InverseDynamics
from ..models.friction import Friction, FrictionState, Memory
from ..models.model import Blueprint, as_model, without_trust
from ..robots.robot import Gains as Gains

Vector = Float[np.ndarray, " dof"]
Numbers = Float[np.ndarray, " numbers"]


@runtime_checkable
class FeedForward(Protocol):
    """Computes τ_ff = f⁻¹(q_des, q̇_des, q̈_des) asynchronously."""

    @property
    def joints(self) -> Joints: ...

    def prepare(self, q: Vector) -> None:
        """Compile what is needed and forget the last motion; the next begins at rest at q."""
        ...

    def begin(self, target: JointTarget) -> None:
        """Begin to compute the torque of a target and return; targets come in order of time."""
        ...

    def ready(self, *, wait: bool = False) -> Vector | None:
        """Return the torque of the last target [N m or N], or None if it is not ready."""
        ...


def newest_update(period: int, share: float) -> int:
    """Return the number of the newest update that is due in a period.

    `share` is the rate of the updates over that of the periods, at most 1.
    """
    # period · share may lie just below an integer that it equals in exact arithmetic.
    return int(period * share + 1e-9)


def first_period(update: int, share: float) -> int:
    """Return the first period in which an update is due."""
    return math.ceil(update / share - 1e-9)


def period_of_update(period: int, share: float) -> int:
    """Return the period in which the newest update that is due in a period was due first."""
    return first_period(newest_update(period, share), share)


class TrackingController:
    """τ = Kp (q_des − q) + Kd (q̇_des − q̇) + τ_ff, with τ_ff updated at a lower rate than control.

    Update n is due in the first period k with k · share ≥ n. As the reference is known in advance,
    it is begun as soon as the last one was collected, and collected when due or, if it is not
    ready by then, in a later period.

    Attributes:
        gains: Kp and Kd.
        feed_forward: the current τ_ff [N m or N]; zero at the start, which is PD control alone.
        late: updates that were not ready when due; the old torque was kept.
    """

    def __init__(self, gains: Gains, model: FeedForward, share: float):
        """`share` is the update rate of τ_ff divided by the control rate, at most 1."""
        self.gains = gains
        self.feed_forward = np.zeros(gains.dof)
        self.late = 0
        self._model = model
        self._share = share
        self._pending: int | None = None
        self._in_use = -1
        self._due = -1

    def feedback(self, state: JointState, target: JointTarget) -> Vector:
        """Return Kp (q_des − q) + Kd (q̇_des − q̇) [N m or N]."""
        proportional = self.gains.stiffness * (target.q_des - state.q)
        return proportional + self.gains.damping * (target.qd_des - state.qd)

    def begin(self, k: int, target: Callable[[int], JointTarget]) -> None:
        """Begin the next update before period k, unless one is pending."""
        if self._pending is None:
            self._pending = max(self._due_in(k), self._in_use + 1)
            self._model.begin(target(max(k, first_period(self._pending, self._share))))

    def collect(self, k: int, *, wait: bool = False) -> None:
        """Use the update that is due in period k, if it is ready."""
        due = self._due_in(k)
        if self._pending is not None and due >= self._pending:
            tau = self._model.ready(wait=wait)
            if tau is not None:
                self.feed_forward = tau
                self._in_use = self._pending
                self._pending = None
        self.late += due > max(self._due, self._in_use)
        self._due = due

    def _due_in(self, k: int) -> int:
        """Return the number of the newest update that is due in period k."""
        return newest_update(k, self._share)


class NoFeedForward:
    """No feed-forward torque: PD control alone."""

    def __init__(self, joints: Joints):
        self.joints = joints
        self._zero = np.zeros(joints.dof)

    def prepare(self, q: Vector) -> None:
        """Do nothing: there is nothing to compile."""

    def begin(self, target: JointTarget) -> None:
        """Do nothing: there is nothing to compute."""

    def ready(self, *, wait: bool = False) -> Vector | None:
        return self._zero


class Direct:
    """A model that computes at once, in numpy or C, such as a rigid body.

    With `at_rest`, the torque is that of the desired position alone: gravity, and the offset of
    friction if there is one.
    """

    def __init__(self, model: InverseDynamics | CompiledModel, *, at_rest: bool = False):
        if isinstance(model, CompiledModel) and model.remembers:
            raise ModelError(
                "this model has friction with memory (stops), which a compiled model does not "
                "follow; give the model itself to feed_forward_of"
            )
        self.model: Any = model
        self.joints = model.joints
        self._at_rest = at_rest
        self._memory: StopMemory | None = None
        self._torque = np.zeros(model.joints.dof)

    def prepare(self, q: Vector) -> None:
        friction = getattr(self.model, "friction", None)
        if friction is not None and friction.settings.stops:
            self._memory = StopMemory(friction, q)
        self.begin(_resting(q))

    def begin(self, target: JointTarget) -> None:
        if self._at_rest:
            target = _resting(target.q_des)
        if self._memory is None:
            self._torque = np.asarray(self.model.inverse_dynamics(*target))
        else:
            stops = self._memory.move(target.q_des)
            self._torque = self.model.inverse_dynamics(*target, memory=stops)

    def ready(self, *, wait: bool = False) -> Vector | None:
        return self._torque


class Compiled:
    """A learned model compiled as a function of its weights, which can be swapped at run time.

    Computes in float64: as C code, at once, if there is a C compiler and the friction has no
    memory; otherwise by JAX, in its own threads.

    Attributes:
        weights: weights on the device, in the order of `Blueprint.pack`; None while there is no
            model, in which case the torque is zero.
        engine: a description of what computes the torque; known once prepared.
        judges: compiled functions of `Admission` for such models, by their settings.
    """

    def __init__(self, blueprint: Blueprint, weights: Numbers | None = None):
        self.blueprint = blueprint
        self.joints = blueprint.joints
        self.weights: Array | None = None
        self.engine = "not prepared"
        self.judges: dict[Any, Any] = {}
        # The C code and what brings weights into its order, or else the function that JAX runs.
        self._code: CompiledModel | None = None
        self._translate: Any = None
        self._translated: Array | None = None
        self._run: Any = None
        self._motors: Friction | None = None
        if blueprint.friction is not None and blueprint.friction.stops:
            self._motors = Friction(self.joints, blueprint.friction)
        self._memory: Any = None
        self._torque: Any = np.zeros(self.joints.dof)
        if weights is not None:
            self.take(on_device(weights))

    @classmethod
    def of(cls, model: Any) -> "Compiled":
        """Return the feed-forward of a learned model, without its ensemble."""
        model = without_trust(as_model(model))
        blueprint = Blueprint.of(model)
        with jax.enable_x64(True):
            return cls(blueprint, blueprint.pack(jax.tree.map(jnp.asarray, model)))

    def take(self, weights: Float[Array, " numbers"]) -> None:
        """Use other weights from the next target on."""
        if weights.shape != (self.blueprint.size,):
            raise ModelError(
                f"the model has {self.blueprint.size} numbers, got shape {weights.shape}"
            )
        if self.weights is None:
            self._memory = None  # friction remembers from the first target on that it was asked for
        self.weights = weights
        self._begin_translation()

    def forget(self) -> None:
        """Drop the model: the torque is zero from now on."""
        self.weights = None
        self._memory = None
        self._torque = np.zeros(self.joints.dof)

    def prepare(self, q: Vector) -> None:
        if self._code is None and self._run is None:
            self._compile(q)
            self._begin_translation()
        self._memory = None
        self._torque = np.zeros(self.joints.dof)
        self.begin(_resting(q))
        self.ready(wait=True)

    def begin(self, target: JointTarget) -> None:
        if self.weights is None:
            return
        if self._code is not None:
            if self._translated is not None:
                self._code.take(np.asarray(self._translated))
                self._translated = None
            self._torque = self._code.inverse_dynamics(*target)
            return
        if self._memory is None:
            self._memory = self._relaxed(target.q_des)
        with jax.enable_x64(True):
            row = np.concatenate(target)
            self._torque, self._memory = self._run(self.weights, row, self._memory)

    def ready(self, *, wait: bool = False) -> Vector | None:
        computed = isinstance(self._torque, np.ndarray) or wait or self._torque.is_ready()
        return np.asarray(self._torque) if computed else None

    def _compile(self, q: Vector) -> None:
        numbers = np.zeros(self.blueprint.size)
        why = "its friction has memory"
        if self._motors is None:
            try:
                self._code = CompiledModel(self.blueprint.build(key=jax.random.key(0)))
            except (CompilerError, ModelError, SettingsError) as error:
                why = str(error)
        with jax.enable_x64(True):
            if self._code is not None:
                self.engine = "C"
                order = jax.jit(lambda weights: CodeNumbers.traced(self.blueprint.unpack(weights)))
                self._translate = order.lower(numbers).compile()
                return
            self.engine = f"JAX ({why})"
            example = (numbers, np.concatenate(_resting(q)), self._relaxed(q))
            self._run = jax.jit(self._inverse_dynamics).lower(*example).compile()
            jax.block_until_ready(self._run(*example))  # the first call is the slowest

    def _begin_translation(self) -> None:
        """Let JAX's threads put the weights into the order of the C code."""
        if self._translate is not None and self.weights is not None:
            with jax.enable_x64(True):
                self._translated = self._translate(self.weights)

    def _relaxed(self, q: Vector) -> FrictionState | None:
        return None if self._motors is None else self._motors.init(q)

    def _inverse_dynamics(
        self, weights: Array, row: Array, memory: FrictionState | None
    ) -> tuple[Any, Any]:
        model = self.blueprint.unpack(weights)
        q, qd, qdd = jnp.split(row, 3)
        if memory is None:
            return model.inverse_dynamics(q, qd, qdd), None
        assert model.friction is not None
        memory, stops = model.friction.follow(memory, q[None])
        return model.inverse_dynamics(q, qd, qdd, memory=stops[0]), memory


class StopMemory:
    """The state of the stop operators of friction along a motion, in numpy."""

    def __init__(self, actuator: Friction, q: Vector):
        """Start relaxed at q."""
        # Called by the class below: equinox takes longer to bind a method than numpy to compute.
        self._actuator = jax.tree.map(np.asarray, actuator)
        self._state = Friction.init(self._actuator, np.asarray(q, dtype=float))
        self._radii = np.array(actuator.settings.stops)[:, None]

    def move(self, q: Vector) -> Memory:
        """Move to q; return each stop over its radius, as `Friction.remember` does."""
        self._state, _ = Friction.update(self._actuator, self._state, q, np.zeros_like(q))
        return self._state.stops / self._radii


def feed_forward_of(model: InverseDynamics) -> Direct | Compiled:
    """Return the feed-forward of any model: compiled if it is a JAX model."""
    return Compiled.of(model) if isinstance(model, eqx.Module) else Direct(model)


def on_device(weights: Numbers) -> Float[Array, " numbers"]:
    """Return the weights on the device, where compiled functions need no further copy."""
    with jax.enable_x64(True):
        return jax.device_put(np.array(weights, dtype=float))


def _resting(q: Vector) -> JointTarget:
    return JointTarget(q, 0 * q, 0 * q)
