"""A model as a robot for simulators: MJCF with all of its friction, or a URDF with what that says.

The chain is refitted as a rigid arm first (`identification/rigid_refit.py`). The plain file is
usable alone: viscous friction is damping, dry friction is friction loss, rotors are armature, and a
motor that turns with two joints is a tendon. What simulators have no words for is in `drives.json`,
and the modules in `simulator/` compute it; they are copied beside the file as they are.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from ..errors import ModelError
from ..identification.rigid_refit import RADIUS, RigidRefit, rigid_refit, states_of
from ..joints import Dataset, JointLimits
from ..models.chain import LagrangianChain
from ..models.friction import MOST_LOAD, Friction
from ..models.geometry import chain_of, learned_arm
from ..models.model import Model, as_model
from ..models.rigid_body import RigidBody
from ..robots.description import Differential, Scene
from ..robots.robot_files import JointDrives, mjcf_of, urdf_of
from ..solvers.linearised import drive_torques
from ..solvers.loss import Samples
from .artifact import rendered, write_files
from .simulator.drives import Drives

SimulatorFormat = Literal["mjcf", "urdf"]
ENDINGS: dict[SimulatorFormat, str] = {"mjcf": "xml", "urdf": "urdf"}
# Motions that the receiver's MuJoCo is compared with.
REFERENCES = 20
# A model knows some hundred states of its log; the log may go farther by this share of their range.
MARGIN = 0.05
COMMENT = (
    "Written by delan. Damping, frictionloss and armature are the parts of the learned drives that "
    "MuJoCo has words for; motors that turn with two joints are tendons. Left to load.py: "
    "smooth and static friction, friction by direction and load, memory, and constant offsets. "
    "Masses and centres that joint data do not determine are those of tubes along the arm."
)


@dataclass(frozen=True, eq=False)
class SimulatorFiles:
    """What was written: the facts of `drives.json` without its numbers, and the rigid arm."""

    facts: dict[str, Any]
    refit: RigidRefit


def export_simulator(
    model: Any,
    folder: Path,
    kind: SimulatorFormat,
    name: str,
    *,
    log: Dataset | None = None,
    story: Mapping[str, str] | None = None,
) -> SimulatorFiles:
    """Write a model with a chain for a simulator; a log gives limits of torque and tells the cost.

    Inertia that the model's forward dynamics add is part of the rotors there: a simulator moves as
    the model does, and its inverse dynamics need more torque than the model's.

    Raises:
        ModelError: if the model has no chain, or a network beside it.
    """
    model = as_model(model)
    chain_of(model)  # refuses other models
    if model.residual is not None:
        raise ModelError(
            "the residual network of this model is no part of a rigid arm; fit a chain without it"
        )
    with jax.enable_x64(True):
        refit = rigid_refit(model, log)
        refit = replace(refit, model=refit.model.with_added_rotors())
        drives = drives_of(refit.model)
        reference = _reference(refit.model, states_of(model, seed=2))
        text = robot_text(refit.model, kind, name, recorded_limits(model, log))
    file = f"{name}.{ENDINGS[kind]}"
    facts = {
        "file": file,
        "format": kind,
        "delan": version("delan"),
        "joints": list(model.joints.names),
        "added_inertia": None if model.added_inertia is None else list(model.added_inertia),
        "rigid": {
            "stretch": refit.stretch,
            "nmse": list(refit.nmse),
            "log_nmse": None if refit.log_nmse is None else refit.log_nmse._asdict(),
        },
        "story": dict(story or {}),
    }
    numbers = {key: np.asarray(value).tolist() for key, value in drives._asdict().items()}
    whole = facts | {"drives": numbers, "reference": reference}
    contents = {file: text.encode(), "drives.json": (json.dumps(whole, indent=1) + "\n").encode()}
    contents["README.md"] = rendered("simulator.md", **facts, name=name).encode()
    for module in ("drives.py", "load.py"):
        if kind == "mjcf" or module == "drives.py":
            contents[module] = (files(f"{__package__}.simulator") / module).read_bytes()
    write_files(folder, contents)
    return SimulatorFiles(facts, refit)


def robot_text(model: Model, kind: SimulatorFormat, name: str, limits: JointLimits) -> str:
    """Return a model whose chain is a rigid arm as MJCF or URDF text."""
    chain = chain_of(model)
    body = _placed(chain)
    motors = _plain_motors(model)
    dof = model.joints.dof
    joints = JointDrives(*(column[:dof] for column in motors))
    if kind == "urdf":
        return urdf_of(body, name=name, limits=limits, drives=joints)
    differentials = []
    if model.friction is not None:
        for pair, motor in zip(
            model.friction.settings.pairs, np.transpose(motors)[dof:].tolist(), strict=True
        ):
            differentials.append(Differential(pair.first, pair.second, pair.ratio, *motor))
    drives = drives_of(model)
    scene = Scene(
        integrator="implicitfast",
        # A flag, the positions of the motors and the stretch of their stop operators.
        user_numbers=1 + len(drives.turns) + drives.stops.size,
        comment=COMMENT,
        differentials=tuple(differentials),
    )
    distances = [np.linalg.norm(part.position) for part in body.bodies if part.parent >= 0]
    radius = RADIUS * float(np.mean(distances or [0.3]))
    return mjcf_of(body, name=name, limits=limits, drives=joints, radius=radius, scene=scene)


def _placed(chain: LagrangianChain) -> RigidBody:
    """Return the rigid arm of a chain with its first joint at the origin: no torque depends on it.

    The frames are those of the chain, not of common normals, which nearly parallel axes move far.
    """
    arm = learned_arm(chain)
    bodies = []
    for body in arm.bodies:
        if body.parent < 0:
            body = replace(body, position=body.position - arm.bodies[0].position)
        bodies.append(body)
    x, y, z = arm.gravity.tolist()
    return RigidBody.from_bodies(bodies, gravity=(x, y, z), armature=arm.armature)


def recorded_limits(model: Model, log: Dataset | None = None) -> JointLimits:
    """Return the range of the data that a model knows, and of a log.

    The largest torque is known from a log only; without it, torques have no limit.
    """
    dof = model.joints.dof
    torque = np.full(dof, np.inf)
    states = np.zeros((0, 2 * dof))
    if log is not None:
        torque = np.abs(log.tau).max(axis=0)
        torque = np.where(torque > 0, torque, np.inf)
        states = np.hstack([log.q, log.qd])
    if model.trust is not None:
        states = np.vstack([states, np.asarray(model.trust.domain.states, dtype=float)])
    if not len(states):
        free = np.full(dof, np.inf)
        return JointLimits(lower=-free, upper=free, velocity=free, torque=torque)
    margin = MARGIN * np.ptp(states, axis=0)
    endless = model.joints.continuous
    return JointLimits(
        lower=np.where(endless, -np.inf, (states.min(axis=0) - margin)[:dof]),
        upper=np.where(endless, np.inf, (states.max(axis=0) + margin)[:dof]),
        velocity=(np.abs(states).max(axis=0) + margin)[dof:],
        torque=torque,
    )


def drives_of(model: Model) -> Drives:
    """Return the friction of a model as numbers for `simulator/drives.py`."""
    friction = model.friction
    if friction is None:
        friction = Friction.known(model.joints, {"viscous": np.zeros(model.joints.dof)})
    dof = model.joints.dof
    named = {name: np.asarray(values, dtype=float) for name, values in friction.named.items()}
    none = np.zeros(len(friction.transmission))
    coulomb = named.get("coulomb", none)
    radii = friction.settings.stops
    stops = [named[name] for name in friction.columns if name.startswith("stop ")]
    return Drives(
        turns=np.asarray(friction.transmission, dtype=float),
        width=np.exp(np.asarray(friction.log_width, dtype=float)),
        stribeck_speed=np.exp(np.asarray(friction.log_stribeck_speed, dtype=float)),
        viscous=named.get("viscous", none),
        forward=named.get("coulomb+", coulomb),
        backward=named.get("coulomb-", coulomb),
        stribeck=named.get("stribeck", none),
        radii=np.reshape(radii, (-1, 1)).astype(float),
        stops=np.reshape(stops, (-1, len(none))),
        offset=named.get("offset", none)[:dof],
        load=np.clip(named.get("load", none)[:dof], -MOST_LOAD, MOST_LOAD),
    )


def _plain_motors(model: Model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rotor, damping and dry friction of every motor, in the words of simulators.

    A stop operator that has slid is dry friction. A negative value, which friction that is not
    passive may have, is left to the modules.
    """
    drives = drives_of(model)
    rotors = np.zeros(len(drives.turns))
    rotors[: model.joints.dof] = np.asarray(chain_of(model).armature)
    if model.friction is not None and "armature" in model.friction.settings.terms:
        rotors = rotors + np.asarray(model.friction.named["armature"])
    dry = (drives.forward + drives.backward) / 2 + drives.stops.sum(axis=0)
    return rotors, np.maximum(drives.viscous, 0), np.maximum(dry, 0)


def _reference(model: Model, motion: Samples) -> dict[str, Any]:
    """Return motions with relaxed friction, and the torques of the model for them."""
    rows = motion.rows(np.arange(min(REFERENCES, len(motion.q))))
    memory = None
    if model.promises.memory:
        drives = drives_of(model)
        memory = np.zeros((len(rows.q), *drives.stops.shape))
    rows = Samples(rows.q, rows.qd, rows.qdd, rows.tau, memory)
    columns = {"q": rows.q, "qd": rows.qd, "qdd": rows.qdd, "tau": drive_torques(model, rows)}
    return {name: np.asarray(values).tolist() for name, values in columns.items()}
