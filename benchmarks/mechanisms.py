"""Mechanisms whose joints depend on the coordinates, simulated in MuJoCo, found from joint logs.

    python -m benchmarks.mechanisms [palletiser] [wrist] [surgical] [serial] [quadruped] [limbs]
        [elastic] [elastic_noise]

MuJoCo computes the torques of each tree of bodies, with the springs of its joints; the mechanism is
in the rows of A, q_tree = A q, and the log holds q and τ = Aᵀ τ_tree alone. A fit gets the log and
nothing else. Scores are nMSE of the torque on noise-free test motions, mean over joints, at the
speed of the log and at twice that speed. `serial` counts the random serial arms that a structure
was claimed for. `quadruped` is a trunk that hangs, with four legs of three joints, and `limbs`
counts what is found of random trees and serial arms. `elastic` is a two-link arm with springs in
its joints; the log holds positions of links and motors and torques of the motors, 5,000 rows,
without velocities. `elastic_noise` has encoders with noise. All rows by default.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mujoco as _mujoco
import numpy as np
from scipy.interpolate import make_interp_spline

from delan.joints import Dataset, JointKind, JointLimits, Joints
from delan.learning.fit import Fit, fit
from delan.learning.limbs import find_limbs
from delan.learning.scores import evaluate, predict, predict_samples
from delan.logs.both_sides import at_links
from delan.models.dynamics import in_precision
from delan.models.elastic import motion_of_motors
from delan.models.model import Model, without_trust
from delan.motions.cosines import cosines
from tests.support.elastic_arm import ArmMotion, ElasticArm
from tests.support.members import noisy
from tests.support.random_arms import random_arm, rigid, swung

from .results import read_results, write_results

mujoco: Any = _mujoco

TRAINING, UNSEEN = range(10), range(100, 103)
STEP = 0.02  # [s]
# Random serial arms that no structure must be claimed for.
ARMS = 20
# Trees whose limbs are searched for.
TREES = {
    "two legs of three joints": (-1, 0, 1, -1, 3, 4),
    "four legs of three joints": (-1, 0, 1, -1, 3, 4, -1, 6, 7, -1, 9, 10),
    "two arms of five joints": (-1, 0, 1, 2, 3, -1, 5, 6, 7, 8),
    "serial arms of six joints": (-1, 0, 1, 2, 3, 4),
    "serial arms of seven joints": (-1, 0, 1, 2, 3, 4, 5),
}
# The share of noise on the torques of the surgical arm, and the shape of its log.
NOISE = 0.01
RATE = 200.0
LENGTH = 6_000
# The noise of the encoders of the elastic arm in a second log [rad]: one step of 19 bits.
ENCODER_NOISE = 1.2e-5
# Rows at both ends of a motion where splines have no neighbours.
MARGIN = 10


@dataclass(frozen=True)
class Part:
    """A body and the joint that carries it.

    Attributes:
        parent: place of its parent among the parts; −1: the base.
        position, euler: of its frame in that of its parent [m, degrees].
        axis: of its joint.
        row: its row of A, by the numbers of the coordinates.
        mass, centre, size: of a box of uniform mass [kg, m, m]; `size` are half its edges.
        stiffness, rest: of a spring at the joint [N m/rad or N/m, rad or m].
    """

    parent: int
    position: tuple[float, float, float]
    axis: tuple[int, int, int]
    row: dict[int, float]
    mass: float
    centre: tuple[float, float, float]
    size: tuple[float, float, float]
    euler: tuple[float, float, float] = (0.0, 0.0, 0.0)
    slides: bool = False
    stiffness: float = 0.0
    rest: float = 0.0


@dataclass(frozen=True)
class Mechanism:
    """A tree of parts, the kinds of the coordinates, and how far and fast these move."""

    parts: tuple[Part, ...]
    kinds: tuple[JointKind, ...]
    reach: tuple[float, ...]

    @property
    def coupling(self) -> np.ndarray:
        """A of q_tree = A q."""
        rows = np.zeros((len(self.parts), len(self.kinds)))
        for number, part in enumerate(self.parts):
            for coordinate, ratio in part.row.items():
                rows[number, coordinate] = ratio
        return rows

    @property
    def limits(self) -> JointLimits:
        reach = np.array(self.reach)
        return JointLimits(
            lower=-reach, upper=reach, velocity=2.5 * reach, torque=np.full(len(reach), 1e4)
        )

    @property
    def mjcf(self) -> str:
        """The tree as MuJoCo reads it."""

        def nested(parent: int) -> str:
            text = ""
            for number, part in enumerate(self.parts):
                if part.parent == parent:
                    text += _body(part) + nested(number) + "</body>"
            return text

        return (
            '<mujoco><compiler angle="degree"/><option gravity="0 0 -9.81">'
            '<flag contact="disable"/></option>'
            f"<worldbody>{nested(-1)}</worldbody></mujoco>"
        )

    def torques(self, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        """Return τ = Aᵀ τ_tree(A q, A q̇, A q̈) by MuJoCo's inverse dynamics."""
        model = mujoco.MjModel.from_xml_string(self.mjcf)
        data = mujoco.MjData(model)
        rows = self.coupling[self._order]
        tau = np.zeros_like(q)
        for row in range(len(q)):
            data.qpos[:] = rows @ q[row]
            data.qvel[:] = rows @ qd[row]
            data.qacc[:] = rows @ qdd[row]
            mujoco.mj_inverse(model, data)
            tau[row] = rows.T @ data.qfrc_inverse
        return tau

    @property
    def _order(self) -> list[int]:
        """The parts in MuJoCo's order, depth first."""
        order: list[int] = []

        def visit(parent: int) -> None:
            for number, part in enumerate(self.parts):
                if part.parent == parent:
                    order.append(number)
                    visit(number)

        visit(-1)
        return order

    def log(
        self, seeds: Sequence[int], *, samples: int | None = None, speed: float = 1.0
    ) -> Dataset:
        """Return motions of 10 s, one for each seed, thinned to a number of samples if given."""
        motions = []
        for seed in seeds:
            motion = cosines(self.limits, key=jax.random.key(seed)).at_speed(speed)
            motions.append(motion.sample(STEP))
        return self._dataset(motions, list(seeds), samples)

    def periodic_log(self, *, seed: int) -> Dataset:
        """Return one periodic motion, `LENGTH` samples at `RATE`."""
        motion = cosines(
            self.limits, key=jax.random.key(seed), duration=LENGTH / RATE, count=5, fastest=0.6
        )
        return self._dataset([motion.sample(1 / RATE)], [seed], LENGTH)

    def _dataset(self, motions: list[Any], labels: list[int], samples: int | None) -> Dataset:
        columns = {}
        for name in ("t", "q", "qd", "qdd"):
            columns[name] = np.concatenate([getattr(motion, name) for motion in motions])
        trajectory = np.repeat(labels, [len(motion.t) for motion in motions])
        rows = np.arange(len(trajectory))
        if samples is not None and samples < len(rows):
            rows = np.unique(np.linspace(0, len(rows) - 1, samples).astype(int))
        columns = {name: column[rows] for name, column in columns.items()}
        tau = self.torques(columns["q"], columns["qd"], columns["qdd"])
        return Dataset(
            **columns,
            tau=tau,
            trajectory=trajectory[rows],
            joints=Joints.of(self.kinds),
            source="mechanism",
        )


def _body(part: Part) -> str:
    def listed(values: Sequence[float]) -> str:
        return " ".join(f"{value:.10g}" for value in values)

    x, y, z = np.array(part.size) ** 2 / 3 * part.mass
    kind = "slide" if part.slides else "hinge"
    return (
        f'<body pos="{listed(part.position)}" euler="{listed(part.euler)}">'
        f'<joint type="{kind}" axis="{listed(part.axis)}" stiffness="{part.stiffness}" '
        f'springref="{part.rest if part.slides else np.degrees(part.rest):.10g}"/>'
        f'<inertial pos="{listed(part.centre)}" mass="{part.mass}" '
        f'diaginertia="{listed((y + z, x + z, x + y))}"/>'
    )


Y = (0, 1, 0)
Z = (0, 0, 1)
X = (1, 0, 0)
REVOLUTE: JointKind = "revolute"
PRISMATIC: JointKind = "prismatic"


def palletiser() -> Mechanism:
    """Base, lower arm, upper arm moved from the base by crank and rod, and a level tool plate.

    Coordinates: base, lower arm and upper arm against the base, and the tool. The lower arm has a
    spring, and a counterweight behind its axis.
    """
    parts = (
        Part(-1, (0, 0, 0), Z, {0: 1}, 40.0, (0.03, 0.02, 0.2), (0.2, 0.2, 0.15)),
        Part(
            0,
            (0.2, 0, 0.4),
            Y,
            {1: 1},
            18.0,
            (0.0, 0.03, 0.1),
            (0.05, 0.05, 0.35),
            stiffness=60.0,
            rest=-0.4,
        ),
        Part(1, (0, 0, 0.6), Y, {2: 1, 1: -1}, 12.0, (0.2, -0.02, 0.05), (0.4, 0.05, 0.06)),
        Part(2, (0.7, 0, 0), Y, {2: -1}, 3.0, (0.05, 0.0, -0.02), (0.06, 0.05, 0.02)),
        Part(3, (0.1, 0, -0.05), Z, {3: 1}, 4.0, (0.06, 0.03, -0.1), (0.1, 0.06, 0.05)),
        Part(0, (0.2, 0.12, 0.4), Y, {2: 1}, 6.0, (-0.12, 0.0, 0.0), (0.12, 0.02, 0.04)),
        Part(5, (-0.2, 0, 0), Y, {1: 1, 2: -1}, 3.0, (0.0, 0.0, 0.3), (0.02, 0.02, 0.3)),
        Part(0, (0.2, -0.1, 0.4), Y, {1: 1}, 15.0, (0.02, 0.0, -0.25), (0.08, 0.03, 0.08)),
    )
    return Mechanism(parts, (REVOLUTE,) * 4, (1.5, 0.8, 0.8, 2.5))


def coupled_wrist() -> Mechanism:
    """Six joints; the drives of the last three are coupled, and rotors turn with all drives.

    The coordinates are the drives': the fifth also turns the sixth joint, and the fourth both.
    """
    parts = [
        Part(-1, (0, 0, 0.3), Z, {0: 1}, 30.0, (0.05, 0.02, 0.1), (0.15, 0.15, 0.15)),
        Part(0, (0.15, 0, 0.2), Y, {1: 1}, 20.0, (0.0, 0.05, 0.25), (0.06, 0.05, 0.3)),
        Part(1, (0, 0, 0.6), Y, {2: 1}, 14.0, (0.1, 0.02, 0.08), (0.2, 0.08, 0.08)),
        Part(2, (0.35, 0, 0.1), X, {3: 1}, 6.0, (0.1, 0.01, 0.02), (0.15, 0.05, 0.05)),
        Part(3, (0.3, 0, 0), Y, {4: 1, 3: -0.02}, 2.5, (0.03, 0.02, 0.01), (0.05, 0.05, 0.04)),
        Part(
            4, (0.1, 0, 0), X, {5: 1, 4: 0.6, 3: -0.05}, 1.5, (0.05, 0.04, 0.03), (0.03, 0.05, 0.06)
        ),
    ]
    gears = (120.0, 110.0, 100.0, 60.0, 50.0, 50.0)
    inertias = (3e-4, 3e-4, 2e-4, 5e-5, 2e-5, 2e-5)  # of the rotors [kg m²]
    for drive, (gear, inertia) in enumerate(zip(gears, inertias, strict=True)):
        edge = 0.03
        mass = 3 * inertia / (2 * edge**2)
        parts.append(Part(-1, (0, 0, 0), Z, {drive: gear}, mass, (0, 0, 0), (edge, edge, edge)))
    return Mechanism(tuple(parts), (REVOLUTE,) * 6, (2.0, 1.2, 1.2, 2.5, 1.8, 3.0))


def surgical() -> Mechanism:
    """A remote centre by a double parallelogram, an insertion that slides, and a tendon wrist.

    Seven coordinates: yaw, pitch about the remote centre, insertion, roll, and three of the wrist
    whose tendons are coupled. Springs act on the pitch and along the insertion.
    """
    parts = (
        Part(-1, (0, 0, 0), X, {0: 1}, 4.0, (0.05, 0.03, 0.05), (0.1, 0.05, 0.05), stiffness=2.0),
        Part(
            0,
            (0.1, 0, 0),
            Y,
            {1: 1},
            2.0,
            (0.0, 0.0, 0.15),
            (0.02, 0.02, 0.15),
            stiffness=4.0,
            rest=0.3,
        ),
        Part(1, (0, 0, 0.3), Y, {1: -1}, 1.5, (0.2, 0.01, 0.0), (0.2, 0.02, 0.02)),
        Part(2, (0.4, 0, 0), Y, {1: 1}, 1.2, (0.0, 0.01, -0.05), (0.03, 0.02, 0.15)),
        Part(
            3,
            (0.02, 0, 0),
            Z,
            {2: 1},
            0.6,
            (0.01, 0.0, -0.1),
            (0.03, 0.02, 0.05),
            slides=True,
            stiffness=25.0,
            rest=0.05,
        ),
        Part(4, (0.02, 0, -0.1), Z, {3: 1}, 0.25, (0.01, 0.01, -0.1), (0.02, 0.02, 0.1)),
        Part(5, (0, 0, -0.25), Y, {4: 1}, 0.06, (0.01, 0.0, -0.02), (0.01, 0.01, 0.02)),
        Part(6, (0, 0, -0.03), X, {5: 1, 4: -0.8}, 0.03, (0.0, 0.01, -0.015), (0.01, 0.01, 0.015)),
        Part(7, (0, 0, 0), X, {6: 1, 5: -1}, 0.03, (0.0, -0.01, -0.015), (0.01, 0.01, 0.015)),
    )
    kinds = (REVOLUTE, REVOLUTE, PRISMATIC, REVOLUTE, REVOLUTE, REVOLUTE, REVOLUTE)
    return Mechanism(parts, kinds, (0.9, 0.7, 0.1, 2.0, 1.0, 1.0, 1.0))


def quadruped() -> Mechanism:
    """Four legs on a trunk that hangs: each leg spreads, swings and bends its knee."""
    parts = []
    for leg, (x, y) in enumerate(((0.2, 0.05), (0.2, -0.05), (-0.2, 0.05), (-0.2, -0.05))):
        side = np.sign(y)
        hip, thigh, knee = range(3 * leg, 3 * leg + 3)
        swing = (0.0, 0.1 * side, 0.0)
        parts += [
            Part(-1, (x, y, 0), X, {hip: 1}, 0.7, (0.0, 0.01 * side, 0.0), (0.05, 0.03, 0.04)),
            Part(hip, swing, Y, {thigh: 1}, 1.2, (0.0, -0.02 * side, -0.03), (0.03, 0.02, 0.1)),
            Part(thigh, (0, 0, -0.21), Y, {knee: 1}, 0.2, (0.01, 0, -0.12), (0.01, 0.01, 0.1)),
        ]
    return Mechanism(tuple(parts), (REVOLUTE,) * 12, (0.6, 0.8, 0.9) * 4)


def scores(result: Fit, mechanism: Mechanism) -> dict[str, Any]:
    """Return the errors on other motion, and what was found."""
    chain = result.entry("chain")
    found = {}
    for name, speed in (("nmse", 1.0), ("nmse_at_twice_the_speed", 2.0)):
        unseen = mechanism.log(UNSEEN, speed=speed)
        found[name] = evaluate(result.model, unseen, rollouts=False).torque.nmse_mean
    found["model"] = result.chosen.name
    if chain is not None:
        found |= {"chosen": dict(chain.chosen), "plain": chain.chosen.get("plain")}
    return found


MECHANISMS = {
    "palletiser": palletiser,
    "wrist": coupled_wrist,
    "surgical": surgical,
    "quadruped": quadruped,
}


def mechanism_row(name: str) -> dict[str, Any]:
    """Fit a mechanism's log and score the model."""
    mechanism = MECHANISMS[name]()
    if name == "surgical":
        dataset = noisy(mechanism.periodic_log(seed=0), NOISE)
    else:
        dataset = mechanism.log(TRAINING, samples=2_000)
    began = time.perf_counter()
    result = fit(dataset, "chain", friction="auto")
    return scores(result, mechanism) | {"seconds": time.perf_counter() - began}


def limbs_row() -> dict[str, Any]:
    """Count the trees of which the log tells the limbs, and serial arms that are not taken for one.

    Every second log has noise.
    """
    rows = {}
    for name, parents in TREES.items():
        right = []
        for seed in range(ARMS):
            kinds: list[JointKind] = [REVOLUTE] * len(parents)
            bodies, limits = random_arm(kinds, seed=seed, parents=parents)
            dataset = swung(rigid(bodies), limits, range(5), samples=1_000)
            if seed % 2:
                dataset = noisy(dataset, 0.03, seed=seed)
            found = find_limbs(dataset)
            serial = tuple(range(-1, len(parents) - 1))
            right.append((found or serial) == parents)
        rows[name] = f"{sum(right)} of {ARMS}"
    return rows


def serial_row() -> dict[str, Any]:
    """Count the random serial arms that a structure is claimed for."""
    claimed = []
    worst = 0.0
    for number in range(ARMS):
        kinds: list[JointKind] = [REVOLUTE] * (2 + number % 6)
        if number % 4 == 3:
            kinds[number % len(kinds)] = PRISMATIC
        bodies, limits = random_arm(kinds, seed=number)
        body = rigid(bodies)
        dataset = swung(body, limits, range(5), samples=1_000)
        if number % 2:
            dataset = noisy(dataset, 0.03, seed=number)
        result = fit(replace(dataset, source=f"arm {number}"), "chain", friction="auto")
        chain = result.model.chain
        if chain is not None and (chain.settings.coupling or chain.settings.parents):
            claimed.append(number)
        unseen = swung(body, limits, UNSEEN)
        worst = max(worst, evaluate(result.model, unseen, rollouts=False).torque.nmse_mean)
    return {"arms": ARMS, "structure_claimed": claimed, "worst_nmse": worst}


def elastic_row(noise: float = 0.0) -> dict[str, Any]:
    """Fit the log of both sides of elastic joints, and score the torque of the motors.

    Args:
        noise: of every encoder [rad].
    """
    arm = ElasticArm(noise=noise)
    began = time.perf_counter()
    result = fit(arm.motion(0).log(), "chain")
    row: dict[str, Any] = {"seconds": time.perf_counter() - began}
    elastic = result.elastic
    assert elastic is not None
    row |= {"chosen": elastic.chosen, "nmse_of_rigid_chain": elastic.rigid}
    for name in ("stiffness", "damping", "rotor"):
        row[name] = getattr(elastic.drives, name).tolist()
        row[f"true_{name}"] = getattr(arm, name)
    clean = ElasticArm()
    for name, speed in (("", 1.0), ("_at_twice_the_speed", 2.0)):
        parts = [elastic_errors(result, clean.motion(seed, speed=speed)) for seed in UNSEEN]
        for error in parts[0]:
            row[f"{error}{name}"] = float(np.mean([part[error] for part in parts]))
    return row


def elastic_errors(result: Fit, motion: ArmMotion) -> dict[str, float]:
    """Return the nMSE on a motion, means over joints.

    `nmse`: torque of the motors from the motion of links and motors, without the springs: B θ̈, all
    friction, and what the links need. `nmse_of_springs`: from B θ̈, the motors' friction and the
    springs. `nmse_from_links`: from the motion of the links and its derivatives alone.
    `nmse_of_acceleration`: of links and motors, driven by the torques.
    """
    dataset = motion.dataset()
    joints = dataset.joints
    predicted = predict_samples(result.model, dataset)
    links = joints.links.dof
    flat = torques_from_links(result.model, motion)
    with jax.enable_x64(True):
        precise = in_precision(without_trust(result.model))
        found = predict(precise, "forward_dynamics", dataset.q, dataset.qd, dataset.tau)
    inner = slice(MARGIN, -MARGIN)
    return {
        "nmse": nmse(at_links(predicted, joints), motion.tau),
        "nmse_of_springs": nmse(predicted[:, links:], motion.tau),
        "nmse_from_links": nmse(flat[inner], motion.tau[inner]),
        "nmse_of_acceleration": nmse(found, dataset.qdd),
    }


def torques_from_links(model: Model, motion: ArmMotion) -> np.ndarray:
    """Return the torque of the motors from the motion of the links and its splines alone."""
    with jax.enable_x64(True):
        spline = make_interp_spline(motion.t, motion.qdd, k=5)
        derivatives = (motion.q, motion.qd, motion.qdd, spline(motion.t, 1), spline(motion.t, 2))

        def torque(*given: Any) -> Any:
            motors = motion_of_motors(precise, *given)
            both = [jnp.concatenate(pair) for pair in zip(given[:3], motors, strict=True)]
            return precise.inverse_dynamics(*both)[len(motors[0]) :]

        precise = in_precision(without_trust(model))
        return np.asarray(jax.vmap(torque)(*map(jnp.asarray, derivatives)))


def nmse(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Return the mean squared error over the variance, mean over joints."""
    return float(np.mean(np.mean((predicted - measured) ** 2, axis=0) / measured.var(axis=0)))


ROWS = (*MECHANISMS, "serial", "limbs", "elastic", "elastic_noise")


def main(names: Sequence[str]) -> None:
    counts = {
        "serial": serial_row,
        "limbs": limbs_row,
        "elastic": elastic_row,
        "elastic_noise": partial(elastic_row, ENCODER_NOISE),
    }
    for name in names or ROWS:
        row = counts[name]() if name in counts else mechanism_row(name)
        print(name, row, flush=True)
        # Read again: another row may have been measured meanwhile.
        results = read_results("mechanisms") | {name: row}
        write_results("mechanisms", {row: results[row] for row in ROWS if row in results})


if __name__ == "__main__":
    main(sys.argv[1:])
