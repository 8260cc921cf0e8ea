"""The torque that a model expects along the wanted motion, begun in one period and there in a later one."""

import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..control import TrackingController
from ..deploy.compiled import CompiledModel
from ..deploy.layout import Numbers as CodeNumbers
from ..errors import CompilerError, ModelError, SettingsError
from ..joints import Joints, JointTarget
from ..models.actuator import Actuator, ActuatorState, Memory
from ..models.blueprint import Blueprint
from ..models.dynamics import InverseDynamics
from ..models.rigid_body import RigidBody
from ..models.trust import bare

Vector = Float[np.ndarray, " dof"]
Numbers = Float[np.ndarray, " numbers"]


@runtime_checkable
class FeedForward(Protocol):
    """Gives τ_ff = f⁻¹(q_des, q̇_des, q̈_des) without holding up the loop."""

    @property
    def joints(self) -> Joints: ...

    def prepare(self, q: Vector) -> None:
        """Compile whatever is to be compiled, and forget the motion before; the next one begins at rest at q."""
        ...

    def begin(self, target: JointTarget) -> None:
        """Start to compute the torque of a target; returns at once. Targets come in the order of time."""
        ...

    def ready(self, *, wait: bool = False) -> Vector | None:
        """The torque of the last target begun [N m or N]; None if it is not there yet and one does not wait."""
        ...


class NoFeedForward:
    """PD control alone."""

    def __init__(self, joints: Joints):
        self.joints = joints
        self._zero = np.zeros(joints.dof)

    def prepare(self, q: Vector) -> None:
        """Nothing to compile."""

    def begin(self, target: JointTarget) -> None:
        """Nothing to compute."""

    def ready(self, *, wait: bool = False) -> Vector | None:
        return self._zero


class Direct:
    """A model that computes in numpy, at once, such as a rigid body; friction remembers the wanted motion."""

    def __init__(self, model: InverseDynamics | CompiledModel):
        if isinstance(model, CompiledModel) and model.remembers:
            raise ModelError(
                "the friction of this model remembers the way (stops) and a compiled model does not; "
                "give the model itself to feed_forward_of"
            )
        self.model: Any = model
        self.joints = model.joints
        friction = model.friction if isinstance(model, RigidBody) else None
        self._friction = friction if friction is not None and friction.settings.stops else None
        self._memory: StopMemory | None = None
        self._torque = np.zeros(model.joints.dof)

    def prepare(self, q: Vector) -> None:
        self._memory = None if self._friction is None else StopMemory(self._friction, q)
        self.begin(JointTarget(q, 0 * q, 0 * q))

    def begin(self, target: JointTarget) -> None:
        if self._memory is None:
            self._torque = np.asarray(self.model.inverse_dynamics(*target))
        else:
            self._torque = self.model.inverse_dynamics(*target, memory=self._memory.move(target.q_des))

    def ready(self, *, wait: bool = False) -> Vector | None:
        return self._torque


class Compiled:
    """A learned model as one compiled function of its numbers, so that other numbers need no compilation.

    Computes in float64: at once, as C code, where there is a C compiler; else by JAX, in its own threads. Stop
    operators of its friction remember the wanted motion, by JAX alone.

    Attributes:
        weights: its numbers on the device, in the order of `Blueprint.pack`; None: no model yet, the torque is zero.
        engine: who computes, in words; known once it is prepared.
        judges: functions that judge such models, compiled once for each way to judge; kept here by `Gate`.
    """

    def __init__(self, blueprint: Blueprint, weights: Numbers | None = None):
        self.blueprint, self.joints = blueprint, blueprint.joints
        self.weights: Array | None = None
        self.engine = "not prepared"
        self._code: CompiledModel | None = None
        self._translate: Any = None
        self._translated: Array | None = None
        self.judges: dict[Any, Any] = {}
        settings = blueprint.actuator
        self._motors = Actuator(self.joints, settings) if settings is not None and settings.stops else None
        self._memory: Any = None
        self._run: Any = None
        self._torque: Any = np.zeros(self.joints.dof)
        if weights is not None:
            self.take(on_device(weights))

    @classmethod
    def of(cls, model: Any) -> "Compiled":
        """A learned model as it is, without its ensemble if it has one."""
        model = bare(model)
        blueprint = Blueprint.of(model)
        with jax.enable_x64(True):
            return cls(blueprint, blueprint.pack(jax.tree.map(jnp.asarray, model)))

    def take(self, weights: Float[Array, " numbers"]) -> None:
        """Use other numbers from the next target on."""
        if weights.shape != (self.blueprint.size,):
            raise ModelError(f"the model has {self.blueprint.size} numbers, got shape {weights.shape}")
        if self.weights is None:
            self._memory = None  # friction remembers from the first target on that it was asked for
        self.weights = weights
        self._begin_translation()

    def forget(self) -> None:
        """Be without a model again: the torque is zero from now on."""
        self.weights, self._memory, self._torque = None, None, np.zeros(self.joints.dof)

    def prepare(self, q: Vector) -> None:
        rest = JointTarget(q, 0 * q, 0 * q)
        if self.engine == "not prepared":
            self._compile(rest)
            self._begin_translation()
        self._memory, self._torque = None, np.zeros(self.joints.dof)
        self.begin(rest)
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
        memory = self._relaxed(target.q_des) if self._memory is None else self._memory
        with jax.enable_x64(True):
            self._torque, self._memory = self._run(self.weights, np.concatenate(target), memory)

    def ready(self, *, wait: bool = False) -> Vector | None:
        if isinstance(self._torque, np.ndarray):
            return self._torque
        return np.asarray(self._torque) if wait or self._torque.is_ready() else None

    def _compile(self, rest: JointTarget) -> None:
        numbers = np.zeros(self.blueprint.size)
        why = "its friction remembers"
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
            example = (numbers, np.concatenate(rest), self._relaxed(rest.q_des))
            self._run = jax.jit(self._inverse_dynamics).lower(*example).compile()
            jax.block_until_ready(self._run(*example))  # the first call is slower than the others

    def _begin_translation(self) -> None:
        """Have the weights put into the order of the C code, by JAX's threads, until the next target."""
        if self._translate is not None and self.weights is not None:
            with jax.enable_x64(True):
                self._translated = self._translate(self.weights)

    def _relaxed(self, q: Vector) -> ActuatorState | None:
        return None if self._motors is None else self._motors.init(q)

    def _inverse_dynamics(self, weights: Array, row: Array, memory: ActuatorState | None) -> tuple[Any, Any]:
        model = self.blueprint.unpack(weights)
        q, qd, qdd = jnp.split(row, 3)
        if memory is None:
            return model.inverse_dynamics(q, qd, qdd), None
        memory, stops = model.actuator.follow(memory, q[None])
        return model.inverse_dynamics(q, qd, qdd, memory=stops[0]), memory


class Gravity:
    """Of what another feed-forward gives, the torque at rest: gravity, and a constant offset of friction if any."""

    def __init__(self, whole: FeedForward):
        self._whole, self.joints = whole, whole.joints
        self._still = np.zeros(whole.joints.dof)

    def prepare(self, q: Vector) -> None:
        self._whole.prepare(q)

    def begin(self, target: JointTarget) -> None:
        self._whole.begin(JointTarget(target.q_des, self._still, self._still))

    def ready(self, *, wait: bool = False) -> Vector | None:
        return self._whole.ready(wait=wait)


class StopMemory:
    """What stop operators remember of a motion, in numpy."""

    def __init__(self, actuator: Actuator, q: Vector):
        """Relaxed at q."""
        # By the class: equinox takes longer to bind a method than numpy to compute.
        self._actuator = jax.tree.map(np.asarray, actuator)
        self._state = Actuator.init(self._actuator, np.asarray(q, dtype=float))
        self._radii = np.array(actuator.settings.stops)[:, None]

    def move(self, q: Vector) -> Memory:
        """Their stretch over their radius after the way to q, as `Actuator.remember` gives it."""
        self._state, _ = Actuator.update(self._actuator, self._state, q, np.zeros_like(q))
        return self._state.stops / self._radii


class Refresh:
    """Gives a controller its τ_ff at a rate of its own: begun as soon as the one before is taken up, for the way ahead
    is known, and taken up in its period, or later if it is not there yet.

    Refresh number n is due in the first period k with k · share ≥ n.

    Attributes:
        late: refreshes that were due and not there; the controller went on with the old torque.
    """

    def __init__(self, feed_forward: FeedForward, controller: TrackingController, share: float):
        """`share` is the rate of refreshes over that of control, at most 1."""
        self._feed_forward, self._controller, self._share = feed_forward, controller, share
        self._pending: int | None = None
        self._in_use = self._due = -1
        self.late = 0

    def due(self, k: int) -> int:
        """The number of the newest refresh that is due in period k."""
        return int(k * self._share + 1e-9)

    def begin(self, k: int, target: Callable[[int], JointTarget]) -> None:
        """Before period k: begin what is due next, with the target of its period; not while another is computed."""
        if self._pending is None:
            self._pending = max(self.due(k), self._in_use + 1)
            self._feed_forward.begin(target(max(k, math.ceil(self._pending / self._share - 1e-9))))

    def collect(self, k: int, *, wait: bool = False) -> None:
        """Give the controller what is ready in period k."""
        due = self.due(k)
        if self._pending is not None and due >= self._pending:
            tau = self._feed_forward.ready(wait=wait)
            if tau is not None:
                self._controller.feed_forward, self._in_use, self._pending = tau, self._pending, None
        self.late += due > max(self._due, self._in_use)
        self._due = due


def feed_forward_of(model: InverseDynamics) -> Direct | Compiled:
    """The feed-forward of any model: compiled if it is of JAX, else as it computes itself."""
    return Compiled.of(model) if isinstance(model, eqx.Module) else Direct(model)


def on_device(weights: Numbers) -> Float[Array, " numbers"]:
    """Numbers where compiled functions find them without another copy."""
    with jax.enable_x64(True):
        return jax.device_put(np.array(weights, dtype=float))
