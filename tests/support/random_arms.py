"""Random arms with physically consistent links, and motions of any arm."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from scipy.spatial.transform import Rotation

from delan.joints import Body, Dataset, JointKind, JointLimits
from delan.models.rigid_body import RigidBody
from delan.motions.cosines import cosines

LENGTH = (0.1, 0.4)  # range of the distance between joints [m]
MASS = (6.0, 0.7)  # mass of the first link [kg], and the ratio from each link to the next
RANGE = {"revolute": 2.0, "continuous": 3.0, "prismatic": 0.3}  # to either side [rad or m]


def random_arm(
    kinds: Sequence[JointKind], *, seed: int, parents: Sequence[int] | None = None
) -> tuple[list[Body], JointLimits]:
    """Return the bodies and limits of a random arm, serial unless `parents` are given."""
    rng = np.random.default_rng(seed)
    parents = range(-1, len(kinds) - 1) if parents is None else parents
    bodies = [
        _body(rng, index, kind, parent)
        for index, (kind, parent) in enumerate(zip(kinds, parents, strict=True))
    ]
    reach = np.array([RANGE[kind] for kind in kinds])
    return bodies, JointLimits(
        lower=-reach, upper=reach, velocity=2 * reach, torque=np.full(len(kinds), 1e3)
    )


def _body(rng: np.random.Generator, index: int, kind: JointKind, parent: int) -> Body:
    axis = rng.standard_normal(3)
    direction = rng.standard_normal(3)
    mass = MASS[0] * MASS[1] ** index * rng.uniform(0.7, 1.3)
    centre = rng.uniform(-0.1, 0.1, 3)
    # The moments of a cloud of mass with random spreads are always consistent.
    turn = Rotation.random(rng=rng).as_matrix()
    spread = turn @ np.diag(rng.uniform(0.02, 0.12, 3) ** 2) @ turn.T
    return Body(
        parent=parent,
        position=rng.uniform(*LENGTH) * direction / np.linalg.norm(direction),
        rotation=Rotation.random(rng=rng).as_matrix(),
        mass=mass,
        centre=centre,
        inertia=mass * (np.trace(spread) * np.eye(3) - spread),
        joint=f"joint{index}",
        kind=kind,
        axis=axis / np.linalg.norm(axis),
        anchor=np.zeros(3),
    )


def rigid(bodies: Sequence[Body]) -> RigidBody:
    """Return the arm under gravity along −z."""
    return RigidBody.from_bodies(bodies, gravity=(0.0, 0.0, -9.81))


def swung(
    body: RigidBody,
    limits: JointLimits,
    seeds: Sequence[int],
    *,
    samples: int | None = None,
    speed: float = 1.0,
) -> Dataset:
    """Return motions of 10 s at 50 Hz, one per seed, thinned to a number of samples if given."""
    motions = [
        cosines(limits, key=jax.random.key(seed)).at_speed(speed).sample(0.02) for seed in seeds
    ]
    labels = np.repeat(seeds, [len(motion.t) for motion in motions])
    columns = {
        name: np.concatenate([getattr(motion, name) for motion in motions])
        for name in ("t", "q", "qd", "qdd")
    }
    dataset = _with_torque(body, columns, labels)
    if samples is None:
        return dataset
    return dataset.rows(np.linspace(0, len(dataset) - 1, samples).astype(int))


def scattered(body: RigidBody, limits: JointLimits, samples: int, *, seed: int) -> Dataset:
    """Return random states, each its own trajectory."""
    rng = np.random.default_rng(seed)
    q = rng.uniform(limits.lower, limits.upper, (samples, len(limits.lower)))
    columns = {
        "t": np.zeros(samples),
        "q": q,
        "qd": rng.standard_normal(q.shape),
        "qdd": 3 * rng.standard_normal(q.shape),
    }
    return _with_torque(body, columns, np.arange(samples))


def _with_torque(body: RigidBody, columns: dict[str, Any], labels: np.ndarray) -> Dataset:
    parts = body.rows(columns["q"], columns["qd"], columns["qdd"])
    truth = {"inertial": parts.inertial, "coriolis": parts.coriolis, "gravity": parts.gravity}
    return Dataset(
        **columns,
        tau=parts.total,
        trajectory=labels,
        truth=truth,
        joints=body.joints,
        source="random arm",
    )
