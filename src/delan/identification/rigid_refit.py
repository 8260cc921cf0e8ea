"""A rigid arm with nearly the torques of a learned chain, whose frames are not quite rotations.

A chain may stretch its frames (`models/chain.py`), and on a real robot it does so a little, for
what no rigid arm explains. A simulator needs rotations, and links with a mass. So the arm is fitted
anew to the torques of the chain, in states where it has seen data: joints at [exp(w_k) R_k | t_k],
gravity turned by exp(w_g), positive rotors, and links with the pseudo-inertia U_k L_k L_kᵀ U_kᵀ in
the coordinates of `physical_links`.

Joint data determine neither all masses nor where a frame sits on its axis. A weak pull decides what
torques leave open: towards tubes of one density along the arm, and towards short distances.

Tried and dropped: fitting to the torques of the log, less friction (worse on other motion for two
of four robots), and a penalty on stretched frames that grows step by step (no gain).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import block_diag
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from ..joints import Dataset, evenly_spaced, nonzero_scale
from ..mechanics.kinematic_tree import Tree
from ..models.chain import USUAL_LENGTH, LagrangianChain, Matrix, Point, numpy_links, settled
from ..models.dynamics import in_precision
from ..models.friction_memory import memory_of
from ..models.geometry import NO_ROTOR, chain_of, nearest_rotation, require_uncoupled
from ..models.model import Model, as_model, without_trust
from ..solvers.linearised import Chunks, FlatModel, drive_torques, one_blas_thread, rigid_torques
from ..solvers.loss import Samples
from .identifiable_links import random_states
from .physical_links import Coordinates, link_parameters

Rows = Float[np.ndarray, "rows dof"]
Numbers = Float[np.ndarray, " numbers"]

# Most rows that an arm is fitted to: several times as many torques as it has numbers.
ROWS = 384
# Radius of the tubes that stand for links in the prior, in usual distances between the joints.
RADIUS = 0.2
# Strengths of the pull. A weaker one must earn its place by an error of the torques that is smaller
# by this factor: otherwise it only lets masses drift that no torque tells.
PULLS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
EARNED = 0.8
# Most evaluations of the torques in a stage, and the relative gain below which a stage ends.
TRIES = 60
ENOUGH = 1e-4
# Share of the torque that links leave in frames which need not move.
RIGID_ALREADY = 1e-8
# Least rotor at the start, in units of torque over acceleration: a smaller one would never grow,
# for the search changes its logarithm.
LEAST_ROTOR = 1e-4


class LogError(NamedTuple):
    """Errors of the torque of each joint on a log, as nMSE: of the rigid arm and of the chain."""

    rigid: tuple[float, ...]
    chain: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class RigidRefit:
    """A rigid arm, and how far its torques are from those of the chain that it stands for.

    Attributes:
        model: the arm, with the friction of the chain's model; no ensemble and no domain.
        stretch: largest distance of the chain's frames from rotations; the arm has none.
        nmse: mean squared difference of the torques without friction over the variance of the
            chain's, joint by joint, at accelerations that the arm was not fitted to.
        log_nmse: errors of all torque against a log's; None without a log.
    """

    model: Model
    stretch: float
    nmse: tuple[float, ...]
    log_nmse: LogError | None


@one_blas_thread()
def rigid_refit(model: Any, log: Dataset | None = None) -> RigidRefit:
    """Return the rigid arm nearest in torque to a model's chain; a log tells what it costs there.

    Where joints have a domain, the arm is fitted in it, otherwise in random states.
    """
    with jax.enable_x64(True):
        stored = in_precision(as_model(model))
        free = chain_of(stored)
        if free.joints.motor_of:
            require_uncoupled(free)
        plain = without_trust(stored)
        data = states_of(stored, seed=0)
        tau = rigid_torques(free, data)
        rigid = _fitted(free, Samples(data.q, data.qd, data.qdd, tau))
        judged = states_of(stored, seed=1)
        error = _nmse(rigid_torques(rigid, judged), rigid_torques(free, judged))
        arm = plain.with_mechanics(rigid)
        log_error = None
        if log is not None:
            log_error = LogError(_log_nmse(arm, log), _log_nmse(plain, log))
        return RigidRefit(arm, max(_Frames.of(free).stretch), error, log_error)


def _log_nmse(model: Model, log: Dataset) -> tuple[float, ...]:
    samples = Samples.of(log, memory_of(model, log))
    return _nmse(drive_torques(model, samples), np.asarray(samples.tau))


def _nmse(found: Rows, wanted: Rows) -> tuple[float, ...]:
    error = np.mean((found - wanted) ** 2, axis=0) / nonzero_scale(np.var(wanted, axis=0))
    return tuple(error.tolist())


def states_of(model: Model, *, seed: int) -> Samples:
    """Return motions in the domain of a model, or in all directions if it knows no domain.

    A domain holds no accelerations. Those of a sinusoid follow from its speed and its reach: the
    spread of the speeds squared over that of the positions.
    """
    if model.trust is None:
        q, qd, qdd = random_states(model.joints)
        qdd = np.random.default_rng(seed).permutation(qdd)
        return Samples(q, qd, qdd, np.zeros_like(q))
    states = np.asarray(model.trust.domain.states, dtype=float)
    q, qd = np.split(states[evenly_spaced(len(states), ROWS)], 2, axis=1)
    usual = qd.std(axis=0) ** 2 / nonzero_scale(q.std(axis=0))
    qdd = usual * np.random.default_rng(seed).normal(size=q.shape)
    return Samples(q, qd, qdd, np.zeros_like(q))


class _Frames(NamedTuple):
    """The joints of a settled chain as rotations and shifts, with its pseudo-inertias."""

    tree: Tree
    turns: Float[np.ndarray, "dof 3 3"]
    shifts: Float[np.ndarray, "dof 3"]
    inertias: Float[np.ndarray, "dof 4 4"]
    gravity: Point
    stretch: list[float]

    @classmethod
    def of(cls, chain: LagrangianChain) -> "_Frames":
        chain = settled(chain)
        place, inertias, gravity = numpy_links(chain)
        turns = np.array([nearest_rotation(frame[:, :3]) for frame in place])
        stretch = np.linalg.norm(place[:, :, :3] - turns, axis=(1, 2)).tolist()
        frames = cls(chain.tree, turns, place[:, :, 3].copy(), inertias.copy(), gravity, stretch)
        for k in range(len(turns)):
            frames._slide(k)
        return frames

    def children(self, joint: int) -> list[int]:
        return [k for k, parent in enumerate(self.tree.parents) if parent == joint]

    def _slide(self, k: int) -> None:
        """Move the origin of a joint where no torque changes: along its axis, next to its parent.

        A joint that slides has no place at all, and takes that of its parent. The first joint is
        the origin, and moves along its axis to the next one.
        """
        if k == 0:
            move = np.zeros(3)
            for child in self.children(0)[:1]:
                move = self.shifts[child].copy()
        else:
            move = -self.turns[k].T @ self.shifts[k]
        if not self.tree.sliding[k]:
            move[:2] = 0
        if k > 0:
            self.shifts[k] += self.turns[k] @ move
        back = np.eye(4)
        back[:3, 3] = -move
        self.inertias[k] = back @ self.inertias[k] @ back.T
        for child in self.children(k):
            self.shifts[child] -= move

    @property
    def length(self) -> float:
        """The usual distance between joints [m]."""
        distances = np.linalg.norm(self.shifts[1:], axis=1)
        distances = distances[distances > 0]
        return float(distances.mean()) if len(distances) else USUAL_LENGTH

    def tubes(self) -> Float[np.ndarray, "dof 4 4"]:
        """Return pseudo-inertias of tubes from each joint to the next ones, of unit density."""
        radius = RADIUS * self.length
        tubes = np.zeros_like(self.inertias)
        for k in range(len(tubes)):
            ends = [self.shifts[child] for child in self.children(k)] or [np.zeros(3)]
            for end in ends:
                mass = np.linalg.norm(end) + radius
                # A rod of this mass, with the second moments of a ball about every point of it.
                spread = np.outer(end, end) / 3 + radius**2 / 5 * np.eye(3)
                tubes[k, :3, :3] += mass * spread
                tubes[k, :3, 3] += mass * end / 2
                tubes[k, 3, :3] += mass * end / 2
                tubes[k, 3, 3] += mass
        return tubes


class _Arm(NamedTuple):
    """Rigid arms around a chain, as one vector: turns, shifts, links, rotors, gravity.

    Attributes:
        chain: gives kinds and structure, not numbers.
        unit: of the shifts [m].
        rotors: of the chain [kg m² or kg]; the vector holds the logarithms of their changes.
    """

    chain: LagrangianChain
    frames: _Frames
    links: Coordinates
    unit: float
    rotors: Float[np.ndarray, " dof"]

    def start(self) -> Numbers:
        """Return the joints of the frames, with the links and rotors of the prior."""
        dof = len(self.rotors)
        shifts = self.frames.shifts[1:].ravel() / self.unit
        return np.concatenate([np.zeros_like(shifts), shifts, np.zeros(11 * dof + 3)])

    @property
    def is_link(self) -> Bool[np.ndarray, " numbers"]:
        """Which numbers are those of links and rotors."""
        dof = len(self.rotors)
        return np.repeat([False, True, False], [6 * (dof - 1), 11 * dof, 3])

    def parts(self, numbers: Numbers) -> list[np.ndarray]:
        """Return turns and shifts of all joints but the first, links, rotors and gravity."""
        dof = len(self.rotors)
        sizes = np.cumsum([3 * (dof - 1), 3 * (dof - 1), 10 * dof, dof])
        turns, shifts, links, rotors, gravity = np.split(numbers, sizes)
        return [turns.reshape(-1, 3), shifts.reshape(-1, 3), links.reshape(-1, 10), rotors, gravity]

    def weights(self, numbers: Numbers) -> Float[np.ndarray, " weights"]:
        """Return the weights of the chain, in the order of its fields."""
        turns, shifts, links, rotors, gravity = self.parts(numbers)
        exponentials = Rotation.from_rotvec(turns).as_matrix()
        weights = [
            exponentials @ self.frames.turns[1:],
            self.unit * shifts,
            self.links.factors(links),
            np.log(self.rotors) + rotors,
            Rotation.from_rotvec(gravity).as_matrix() @ self.frames.gravity,
        ]
        return np.concatenate([np.asarray(part).ravel() for part in weights])

    def slopes(self, numbers: Numbers) -> Float[np.ndarray, "weights numbers"]:
        """Return the slopes of the weights."""
        turns, shifts, links, rotors, gravity = self.parts(numbers)
        blocks = []
        for vector, turn in zip(turns, self.frames.turns[1:], strict=True):
            blocks.append(_turn_slopes(vector, turn).reshape(3, 9).T)
        blocks.append(self.unit * np.eye(shifts.size))
        for slopes in self.links.factor_slopes(links):
            blocks.append(slopes.reshape(10, 16).T)
        blocks.append(np.eye(len(rotors)))
        blocks.append(_turn_slopes(gravity, self.frames.gravity).T)
        return np.asarray(block_diag(*blocks))

    def at(self, numbers: Numbers) -> LagrangianChain:
        flat = FlatModel.of(self.chain)._replace(weights=self.weights(numbers))
        return flat.model.mechanics


def _turn_slopes(vector: Point, turned: np.ndarray) -> Float[np.ndarray, "3 ..."]:
    """Return the slopes of exp(w) A in w, [J e_i]× exp(w) A with the left Jacobian J of SO(3)."""
    angle = float(np.linalg.norm(vector))
    cross = _cross(vector)
    # Series of (1 − cos a)/a² and (a − sin a)/a³ next to zero.
    first = 0.5 if angle < 1e-4 else (1 - np.cos(angle)) / angle**2
    second = 1 / 6 if angle < 1e-4 else (angle - np.sin(angle)) / angle**3
    jacobian = np.eye(3) + first * cross + second * cross @ cross
    moved = Rotation.from_rotvec(vector).as_matrix() @ turned
    return np.array([_cross(column) @ moved for column in jacobian.T])


def _cross(vector: Point) -> Matrix:
    return np.cross(vector, -np.eye(3))


def _fitted(free: LagrangianChain, data: Samples) -> LagrangianChain:
    """Return the rigid chain whose torques are nearest to those of the samples."""
    frames = _Frames.of(free)
    tau = np.asarray(data.tau)
    size = nonzero_scale(tau.std(axis=0)) * np.sqrt(tau.size)
    usual = tau.std(axis=0) / nonzero_scale(np.asarray(data.qdd).std(axis=0))
    rotors = np.maximum(np.asarray(free.armature), np.maximum(LEAST_ROTOR * usual, NO_ROTOR))
    tubes = Coordinates.around(link_parameters(frames.tubes()))
    prior = _Arm(free, frames, tubes, frames.length, np.full_like(rotors, NO_ROTOR))
    chunks = Chunks(data)
    flat = FlatModel.of(free)
    # The density with which tubes need as much torque as there is.
    torque = chunks.torques(flat._replace(weights=prior.weights(prior.start())))
    density = np.linalg.norm(tau / size) / np.linalg.norm(torque / size)
    arm = prior._replace(links=Coordinates(np.sqrt(density) * tubes.origin), rotors=rotors)

    def errors(numbers: Numbers, pull: float) -> Float[np.ndarray, " rows"]:
        torque = chunks.torques(flat._replace(weights=arm.weights(numbers)))
        return np.concatenate([((torque - tau) / size).ravel(), pull * numbers])

    def slopes(numbers: Numbers, pull: float) -> Float[np.ndarray, "rows numbers"]:
        _, slope = chunks.slopes(flat._replace(weights=arm.weights(numbers)))
        rows = np.concatenate(slope / size[:, None]) @ arm.slopes(numbers)
        return np.concatenate([rows, pull * np.eye(len(numbers))])

    def weakening(numbers: Numbers, free: Bool[np.ndarray, " numbers"]) -> tuple[Numbers, float]:
        """The numbers under the weakest pull that has earned its place, and their error."""
        least = np.inf
        for pull in PULLS:
            weaker = _searched(errors, slopes, numbers, free, pull)
            error = float(np.sum(errors(weaker, 0.0) ** 2))
            if error > EARNED * least:
                break
            numbers = weaker
            least = error
        return numbers, least

    # Links first, from the prior: what no torque tells stays as it is there. Where the frames are
    # rotations already, nothing is left: to move joints as well would only follow the pull on them,
    # and a curved valley leads back.
    links, held = weakening(arm.start(), arm.is_link)
    if held < RIGID_ALREADY:
        return arm.at(links)
    start = _searched(errors, slopes, arm.start(), arm.is_link, PULLS[0])
    numbers, moved = weakening(start, np.full(len(start), True))
    return arm.at(numbers if moved < held else links)


def _searched(
    errors: Callable[[Numbers, float], np.ndarray],
    slopes: Callable[[Numbers, float], np.ndarray],
    start: Numbers,
    free: Bool[np.ndarray, " numbers"],
    pull: float,
) -> Numbers:
    """Return the numbers of least squares, found by changing the free ones."""
    pull = pull / np.sqrt(len(start))

    def whole(numbers: np.ndarray) -> Numbers:
        changed = start.copy()
        changed[free] = numbers
        return changed

    search: Any = least_squares  # its stub does not accept a Jacobian by position
    # Steps that are too long may overflow; they are rejected.
    with np.errstate(over="ignore", invalid="ignore"):
        solution = search(
            lambda numbers: errors(whole(numbers), pull),
            start[free],
            lambda numbers: slopes(whole(numbers), pull)[:, free],
            method="lm",
            x_scale="jac",
            ftol=ENOUGH,
            max_nfev=TRIES,
        )
    return whole(solution.x)
