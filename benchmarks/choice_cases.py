"""Logs for `benchmarks.choices`: real and simulated, each cut into a known and an unseen part.

A real log is a list of runs, and a cut turns it into two parts: by time (the first or the last
share of every run is known) or by run. A simulated log is the motion of an arm with friction,
rotors and sensors with noise, and its unseen part is another motion of the same arm.

What the real logs are like:

- Panda: one motion that starts again after 13.3 of its 15.7 s: the last 2.3 s are a repeat.
  Barrett WAM: one motion of 20 s, five times.
- UR3: two Fourier motions, each repeated every 10 s with a drift of up to 1 rad. Its torques have
  the opposite sign of ours. UR10: two motions that do not repeat.
- LBR Med 7: one motion of 10 s after 6.5 s of rest, without time; its authors compute with 100 Hz.
  The work of its torques over the motion, from rest to rest, is negative on every joint: the sign
  is the opposite of ours.
- Z1 and Go2: all joints follow one chirp, the fastest at its end. The six chirps of the Go2 are
  the same motion. The `tau_des` of the Z1 is its PD torque, so that nothing is added to it; its
  seventh joint is the gripper, whose velocity was not logged.
- KUKA KR300: one motion of 10 s, at rest in the first and the last second.
- Double pendulum: five motions of 10 s at 500 Hz, and a swing-up of 6 s at about 616 Hz, which is
  much faster and rests at the end. Some logged velocities are single outliers.
"""

import gzip
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore
from scipy.spatial.distance import cdist
from scipy.spatial.transform import Rotation

from delan.joints import Body, Recording
from delan.logs.options import LogOptions
from delan.logs.reading import read_log
from delan.models.rigid_body import RigidBody
from delan.paper import physical_wam
from delan.robots.arms import TWO_LINK, WAM4, WAM7
from delan.robots.description import Arm

from .mechanisms import Mechanism, coupled_wrist, palletiser, surgical
from .real_logs import kuka as kuka_parts
from .real_logs import panda as panda_parts

Rows = dict[str, np.ndarray]
Split = tuple[Rows, Rows]
Cut = Callable[[list[Rows]], Split]
PerJoint = np.ndarray

UR3_COLUMNS = LogOptions(map={"t": "mt", "q": "mq", "qd": "mdq", "tau": "mtorque"})
PENDULUM_COLUMNS = LogOptions(map={"q": "pos_meas{}", "qd": "vel_meas{}", "tau": "tau_meas{}"})
PENDULUM_FILES = ("00", "01", "02", "04", "05", "12")
MED7_RATE = 100.0  # [Hz], from its authors' code
MED7_RESTS = 650  # rows before it moves
Z1_JOINTS = 6
GO2_RUNS = 6
LEG_JOINTS = 3
PAPER_LETTERS = "bolsuwyazhmpcdrgn"  # all but the test letters of the paper, e, q and v
FEW_LETTERS = "bolsuwyaez"  # the first half of the file

# Rows of a part that are compared with those of the other part.
COMPARED = 1500


@dataclass(frozen=True)
class RealCase:
    """A log of `--data`, how it is cut, and the options of the command that it needs."""

    log: Callable[[Path], list[Rows]]
    cut: Cut
    options: tuple[str, ...] = ()

    def build(self, data: Path) -> Split:
        """Return the known and the unseen part; `FileNotFoundError` if the log is missing."""
        return self.cut(self.log(data))


# Cuts


def first(share: float) -> Cut:
    """Know the first share of every run; the rest is unseen."""
    return lambda runs: (part_of(runs, 0.0, share), part_of(runs, share, 1.0))


def last(share: float) -> Cut:
    """Know the last share of every run; what comes before it is unseen."""
    return lambda runs: (part_of(runs, 1.0 - share, 1.0), part_of(runs, 0.0, 1.0 - share))


def by_run(known: Sequence[int], unseen: Sequence[int]) -> Cut:
    """Know some runs; others are unseen."""
    return lambda runs: (
        joined([runs[index] for index in known]),
        joined([runs[index] for index in unseen]),
    )


def only(indices: Sequence[int], cut: Cut) -> Cut:
    """Cut some of the runs."""
    return lambda runs: cut([runs[index] for index in indices])


def part_of(runs: list[Rows], start: float, end: float) -> Rows:
    """Return the rows of every run between two shares of its length."""
    parts = []
    for run in runs:
        count = len(run["t"])
        chosen = slice(round(start * count), round(end * count))
        parts.append({name: column[chosen] for name, column in run.items()})
    return joined(parts)


def joined(runs: list[Rows]) -> Rows:
    """Return the rows of all runs, labelled if there are several."""
    rows = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    if len(runs) > 1:
        rows["trajectory"] = np.repeat(np.arange(len(runs)), [len(run["t"]) for run in runs])
    return rows


# Real logs


def panda(data: Path) -> list[Rows]:
    return [joined_again(panda_parts(data))]


def wam(data: Path) -> list[Rows]:
    return runs_of(physical_wam.recorded_log(existing(data / physical_wam.FILE)))


def kuka(data: Path) -> list[Rows]:
    return [joined_again(kuka_parts(data))]


def letters(data: Path) -> list[Rows]:
    """Return a run for each letter, with accelerations."""
    file = np.load(data / "published_letters.npz")
    columns = {name: file[name] for name in ("t", "q", "qd", "qdd", "tau")}
    runs = []
    for number in range(len(file["labels"])):
        chosen = file["trajectory"] == number
        runs.append({name: column[chosen] for name, column in columns.items()})
    return runs


@dataclass(frozen=True)
class LetterCase:
    """The published letters, those of `known` and the others."""

    known: str
    options: tuple[str, ...] = ()

    def build(self, data: Path) -> Split:
        labels = np.load(data / "published_letters.npz")["labels"]
        known = [index for index, label in enumerate(labels) if label in self.known]
        others = [index for index, label in enumerate(labels) if label not in self.known]
        return by_run(known, others)(letters(data))


def ur3_as_logged(data: Path) -> list[Rows]:
    """Return its two motions, with torques of the opposite sign of ours."""
    files = [existing(data / "robots" / "ur3" / f"id{number}.mat") for number in (1, 2)]
    return [run for file in files for run in runs_of(read_log(file, UR3_COLUMNS))]


def ur3(data: Path) -> list[Rows]:
    return [reversed_torque(run) for run in ur3_as_logged(data)]


def ur10(data: Path) -> list[Rows]:
    """Return the exciting motion and the validation motion, which is one message of its bag."""
    folder = data / "robots" / "ur10"
    exciting = runs_of(read_log(existing(folder / "exciting.db3")))
    return [*exciting, trajectory_message(existing(folder / "validation.db3"))]


def double_pendulum(data: Path) -> list[Rows]:
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for number in PENDULUM_FILES:
            file = existing(data / "robots" / "double_pendulum" / f"trajectory_{number}.csv.gz")
            plain = Path(folder) / f"{number}.csv"
            plain.write_bytes(gzip.decompress(file.read_bytes()))
            runs += runs_of(read_log(plain, PENDULUM_COLUMNS))
    return runs


def med7(data: Path) -> list[Rows]:
    file = existing(data / "robots" / "med7" / "measurements.csv")
    return [reversed_torque(run) for run in runs_of(read_log(file, LogOptions(rate=MED7_RATE)))]


def med7_moving(data: Path) -> list[Rows]:
    """Return the log without the rest at its start."""
    return [{name: column[MED7_RESTS:] for name, column in run.items()} for run in med7(data)]


def z1(data: Path) -> list[Rows]:
    return [driven(data / "robots" / "z1" / "traj_0.npz", slice(0, Z1_JOINTS))]


def go2(leg: int) -> Callable[[Path], list[Rows]]:
    """Return the reader of one leg, an arm of three joints."""
    joints = slice(LEG_JOINTS * leg, LEG_JOINTS * (leg + 1))

    def read(data: Path) -> list[Rows]:
        folder = data / "robots" / "go2"
        return [driven(folder / f"traj_{number}.npz", joints) for number in range(GO2_RUNS)]

    return read


def driven(path: Path, joints: slice) -> Rows:
    """Return joints that a PD controller drives: τ = k_p (q_des − q) + k_d (q̇_des − q̇)."""
    file = np.load(path)
    tau = file["kp"] * (file["q_des"] - file["q"]) + file["kd"] * (file["qd_des"] - file["qd"])
    return {
        "t": file["t"],
        "q": file["q"][:, joints],
        "qd": file["qd"][:, joints],
        "tau": tau[:, joints],
    }


def trajectory_message(path: Path) -> Rows:
    """Return the single message of a bag, a `JointTrajectory` with efforts."""
    types = get_typestore(Stores.LATEST)
    reader = Reader.STORAGE_PLUGINS[".db3"](path)
    reader.open()
    try:
        connection, _, raw = next(reader.messages(reader.connections))
        message: Any = types.deserialize_cdr(raw, connection.msgtype)
    finally:
        reader.close()
    points = message.points
    stamps = [point.time_from_start for point in points]
    return {
        "t": np.array([stamp.sec + 1e-9 * stamp.nanosec for stamp in stamps]),
        "q": np.array([point.positions for point in points]),
        "qd": np.array([point.velocities for point in points]),
        "tau": np.array([point.effort for point in points]),
    }


def runs_of(recording: Recording) -> list[Rows]:
    """Return the columns of every trajectory of a recording."""
    columns = {
        name: recording.columns[name]
        for name in ("t", "q", "qd", "tau")
        if name in recording.columns
    }
    runs = []
    for label in np.unique(recording.trajectory):
        chosen = recording.trajectory == label
        runs.append({name: column[chosen] for name, column in columns.items()})
    return runs


def joined_again(parts: Split) -> Rows:
    """Return the whole of a log that was cut in time."""
    return {name: np.concatenate([parts[0][name], parts[1][name]]) for name in parts[0]}


def reversed_torque(run: Rows) -> Rows:
    return run | {"tau": -run["tau"]}


def existing(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(path)
    return path


# Simulated logs


Torques = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class SimulatedArm:
    """An arm with friction `d q̇ + F_c tanh(q̇/w)`.

    Attributes:
        conservative: its torques without friction, of columns of q, q̇ and q̈.
        middle, reach: the centre of its motions, and how far they may lead from it [rad or m].
        viscous, coulomb: d [N m s/rad] and F_c [N m] of each joint.
    """

    conservative: Torques
    middle: PerJoint
    reach: PerJoint
    viscous: PerJoint
    coulomb: PerJoint

    def torque(self, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        return (
            self.conservative(q, qd, qdd)
            + self.viscous * qd
            + self.coulomb * np.tanh(qd / FRICTION_WIDTH)
        )


@dataclass(frozen=True)
class Motion:
    """A sum of sines for each joint.

    Attributes:
        kind: `fourier`: the harmonics of one period, as in identification; `random`: frequencies
            that have nothing in common, so that the motion does not repeat.
        seconds: its length.
        speed: the largest speed of the fastest joint [rad/s].
        tempo: factor of all frequencies.
    """

    kind: Literal["fourier", "random"]
    seconds: float = 30.0
    speed: float = 2.0
    tempo: float = 1.0


@dataclass(frozen=True)
class Sensors:
    """What is logged, and its noise.

    Attributes:
        rate: [Hz]
        position, velocity: standard deviation of the noise [rad, rad/s]; without one for the
            velocity, it is not logged.
        torque: noise as a share of the standard deviation of the torque of each joint.
    """

    rate: float = 200.0
    position: float = 1e-4
    velocity: float | None = None
    torque: float = 0.01


@dataclass(frozen=True)
class SimulatedCase:
    """An arm, a motion to learn from and another one to test."""

    arm: Callable[[], SimulatedArm]
    known: Motion
    unseen: Motion
    sensors: Sensors = Sensors()
    seed: int = 0
    options: tuple[str, ...] = ()

    def build(self, data: Path) -> Split:
        """Return both parts; `data` is not needed."""
        del data
        arm = self.arm()
        rng = np.random.default_rng(self.seed)
        return (
            recorded(arm, self.known, self.sensors, rng),
            recorded(arm, self.unseen, self.sensors, rng),
        )


FRICTION_WIDTH = 0.02  # w [rad/s]
FOURIER_PERIOD = 10.0  # [s]
FOURIER_HARMONICS = 5
SINES = 12  # of a random motion
FREQUENCIES = (0.05, 0.6)  # of them [Hz]
# Friction at 1 rad/s is about a fifth to a half of the other torque, as on real arms with gears.
COULOMB_SHARES = (0.1, 0.3)
VISCOUS_SECONDS = (0.3, 0.8)  # viscous over Coulomb friction [s/rad]
ROTOR_SHARES = (0.1, 0.5)  # of the inertia of the links
LIGHT_JOINT = 0.03  # friction of a joint is at least that of this share of the largest torque
USED_REACH = 0.8  # share of the reach that a motion may use
# Random arms: distance between joints [m], mass of the first link [kg] and ratio to the next one.
LENGTHS = (0.1, 0.4)
MASSES = (6.0, 0.7)
REACH = 2.0  # [rad]


def known_arm(arm: Arm, seed: int) -> Callable[[], SimulatedArm]:
    """Return the maker of an arm of the package."""
    limits = arm.limits
    middle = (limits.lower + limits.upper) / 2
    return lambda: equipped(
        lambda rotors: RigidBody.from_urdf(arm.urdf(), armature=rotors),
        middle,
        (limits.upper - limits.lower) / 2,
        seed,
    )


def random_arm(joints: int, seed: int) -> Callable[[], SimulatedArm]:
    """Return the maker of an arm with random turning joints and consistent links."""

    def make() -> SimulatedArm:
        rng = np.random.default_rng(seed)
        bodies = [random_body(rng, index) for index in range(joints)]
        return equipped(
            lambda rotors: RigidBody.from_bodies(
                bodies, gravity=(0.0, 0.0, -9.81), armature=rotors
            ),
            np.zeros(joints),
            np.full(joints, REACH),
            seed,
        )

    return make


def random_body(rng: np.random.Generator, index: int) -> Body:
    axis = rng.standard_normal(3)
    direction = rng.standard_normal(3)
    mass = MASSES[0] * MASSES[1] ** index * rng.uniform(0.7, 1.3)
    # The moments of a cloud of mass with random spreads are always consistent.
    turn = Rotation.random(rng=rng).as_matrix()
    spread = turn @ np.diag(rng.uniform(0.02, 0.12, 3) ** 2) @ turn.T
    return Body(
        parent=index - 1,
        position=rng.uniform(*LENGTHS) * direction / np.linalg.norm(direction),
        rotation=Rotation.random(rng=rng).as_matrix(),
        mass=mass,
        centre=rng.uniform(-0.1, 0.1, 3),
        inertia=mass * (np.trace(spread) * np.eye(3) - spread),
        joint=f"joint{index}",
        kind="revolute",
        axis=axis / np.linalg.norm(axis),
        anchor=np.zeros(3),
    )


def equipped(
    make: Callable[[PerJoint], RigidBody], middle: PerJoint, reach: PerJoint, seed: int
) -> SimulatedArm:
    """Return an arm with random rotors and friction, in proportion to what its joints carry."""
    rng = np.random.default_rng(seed)
    bare = make(np.zeros(len(middle)))
    inertia = np.diag(bare.mass_matrix(middle))
    usual = usual_torques(torques_of(bare), middle, reach, rng)
    coulomb = rng.uniform(*COULOMB_SHARES, len(middle)) * usual
    rotors = rng.uniform(*ROTOR_SHARES, len(middle)) * inertia
    viscous = rng.uniform(*VISCOUS_SECONDS, len(middle)) * coulomb
    return SimulatedArm(torques_of(make(rotors)), middle, reach, viscous, coulomb)


def torques_of(body: RigidBody) -> Torques:
    """Return the inverse dynamics of a body for columns."""

    def torques(q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        rows = zip(q, qd, qdd, strict=True)
        return np.array([body.inverse_dynamics(*row) for row in rows])

    return torques


def usual_torques(
    conservative: Torques, middle: PerJoint, reach: PerJoint, rng: np.random.Generator
) -> PerJoint:
    """Return the size of the torques at random states at rest, under random accelerations."""
    states = middle + reach * rng.uniform(-0.5, 0.5, (100, len(middle)))
    pushes = rng.standard_normal(states.shape)
    torques = conservative(states, np.zeros_like(states), pushes)
    usual = np.sqrt(np.mean(torques**2, axis=0))
    return np.maximum(usual, LIGHT_JOINT * usual.max())


def mechanism(make: Callable[[], Mechanism], seed: int) -> Callable[[], SimulatedArm]:
    """Return the maker of a mechanism whose joints depend on its coordinates, with friction."""

    def arm() -> SimulatedArm:
        rng = np.random.default_rng(seed)
        conservative = make().torques
        reach = np.array(make().reach)
        middle = np.zeros(len(reach))
        usual = usual_torques(conservative, middle, reach, rng)
        coulomb = rng.uniform(*COULOMB_SHARES, len(reach)) * usual
        viscous = rng.uniform(*VISCOUS_SECONDS, len(reach)) * coulomb
        return SimulatedArm(conservative, middle, reach, viscous, coulomb)

    return arm


def recorded(arm: SimulatedArm, motion: Motion, sensors: Sensors, rng: np.random.Generator) -> Rows:
    """Return the log of a random motion of an arm."""
    t = np.arange(round(motion.seconds * sensors.rate)) / sensors.rate
    q, qd, qdd = moved(arm, motion, t, rng)
    tau = arm.torque(q, qd, qdd)
    scatter = sensors.torque * tau.std(axis=0)
    rows = {
        "t": t,
        "q": q + sensors.position * rng.standard_normal(q.shape),
        "tau": tau + scatter * rng.standard_normal(q.shape),
    }
    if sensors.velocity is not None:
        rows["qd"] = qd + sensors.velocity * rng.standard_normal(q.shape)
    return rows


def moved(
    arm: SimulatedArm, motion: Motion, t: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions, velocities and accelerations, exact."""
    joints = len(arm.middle)
    if motion.kind == "fourier":
        base = np.arange(1, FOURIER_HARMONICS + 1) / FOURIER_PERIOD
        frequencies = np.tile(base, (joints, 1))
    else:
        frequencies = rng.uniform(*FREQUENCIES, (joints, SINES))
    omega = 2 * np.pi * motion.tempo * frequencies
    size = rng.standard_normal(omega.shape) / frequencies
    angle = omega * t[:, None, None] + rng.uniform(0, 2 * np.pi, omega.shape)
    q = np.sum(size * np.sin(angle), axis=2)
    qd = np.sum(size * omega * np.cos(angle), axis=2)
    qdd = -np.sum(size * omega**2 * np.sin(angle), axis=2)
    speeds = motion.speed * rng.uniform(0.6, 1.0, joints)
    speeds[rng.integers(joints)] = motion.speed
    scale = np.minimum(
        speeds / np.abs(qd).max(axis=0), USED_REACH * arm.reach / np.abs(q).max(axis=0)
    )
    return arm.middle + scale * q, scale * qd, scale * qdd


# What a part is like


@dataclass(frozen=True)
class Facts:
    """Size and content of a part.

    Attributes:
        samples, runs, joints: numbers of them.
        rate: [Hz], by the median step.
        least_range: range of the joint that moves least [rad].
        speed: of the fastest joint [rad/s].
    """

    samples: int
    runs: int
    joints: int
    rate: float
    least_range: float
    speed: float


def facts(rows: Rows) -> Facts:
    """Return the facts of a part; refuse one that no robot gives."""
    if not all(np.isfinite(column).all() for column in rows.values()):
        raise ValueError("a value is not finite")
    starts = run_starts(rows)
    steps = np.diff(rows["t"])
    inside = np.ones(len(steps), dtype=bool)
    inside[starts[1:] - 1] = False
    if not (steps[inside] > 0).all():
        raise ValueError("time does not increase")
    if (np.ptp(rows["tau"], axis=0) == 0).any():
        raise ValueError("a torque is constant")
    return Facts(
        samples=len(rows["t"]),
        runs=len(starts),
        joints=rows["q"].shape[1],
        rate=1 / float(np.median(steps[inside])),
        least_range=float(np.ptp(rows["q"], axis=0).min()),
        speed=float(np.abs(velocities(rows)).max()),
    )


def novelty(known: Rows, unseen: Rows) -> float:
    """Return how far unseen states (q, q̇) are from the nearest known one, in the median.

    The unit is the standard deviation of the known states, mean over the coordinates: a repeat has
    some hundredths, a new motion of many joints about one half.
    """
    states = [np.concatenate([rows["q"], velocities(rows)], axis=1) for rows in (known, unseen)]
    scale = states[0].std(axis=0)
    few = [state[:: max(1, len(state) // COMPARED)] / scale for state in states]
    nearest = cdist(few[1], few[0]).min(axis=1)
    return float(np.median(nearest) / np.sqrt(states[0].shape[1]))


def velocities(rows: Rows) -> np.ndarray:
    """Return the logged velocities, or differences of positions over some samples."""
    if "qd" in rows:
        return rows["qd"]
    ends = [*run_starts(rows), len(rows["t"])]
    parts = []
    for start, end in pairwise(ends):
        chosen = slice(int(start), int(end))
        parts.append(np.gradient(rows["q"][chosen], rows["t"][chosen], axis=0))
    return np.concatenate(parts)


def run_starts(rows: Rows) -> np.ndarray:
    """Return the first row of every run."""
    if "trajectory" not in rows:
        return np.array([0])
    return np.concatenate([[0], np.flatnonzero(np.diff(rows["trajectory"])) + 1])


FOURIER = Motion("fourier")
RANDOM = Motion("random")
SHORT = Motion("random", seconds=8.0)
SLOW = Motion("random", seconds=60.0, speed=0.1, tempo=0.2)
WITH_VELOCITY = Sensors(velocity=0.01)
NOISY = Sensors(position=1e-3, torque=0.05)

Case = RealCase | LetterCase | SimulatedCase

CASES: dict[str, Case] = {
    "panda_first75": RealCase(panda, first(0.75)),
    "panda_last75": RealCase(panda, last(0.75)),
    "panda_half": RealCase(panda, first(0.5)),
    "wam_4runs": RealCase(wam, by_run((0, 1, 2, 3), (4,))),
    "wam_first70": RealCase(wam, first(0.7)),
    "wam_last70": RealCase(wam, last(0.7)),
    "wam_1run": RealCase(wam, by_run((0,), (1, 2, 3, 4))),
    "kuka_first70": RealCase(kuka, first(0.7)),
    "kuka_last75": RealCase(kuka, last(0.75)),
    "ur3_1to2": RealCase(ur3, by_run((0,), (1,))),
    "ur3_2to1": RealCase(ur3, by_run((1,), (0,))),
    "ur3_reversed": RealCase(ur3_as_logged, by_run((0,), (1,)), ("--fix",)),
    "ur3_1half": RealCase(ur3, only((0,), first(0.5))),
    "ur3_2last75": RealCase(ur3, only((1,), last(0.75))),
    "ur10_to_validation": RealCase(ur10, by_run((0,), (1,))),
    "ur10_from_validation": RealCase(ur10, by_run((1,), (0,))),
    "ur10_first75": RealCase(ur10, only((0,), first(0.75))),
    "pendulum_012to45": RealCase(double_pendulum, by_run((0, 1, 2), (3, 4))),
    "pendulum_45to012": RealCase(double_pendulum, by_run((3, 4), (0, 1, 2))),
    "pendulum_first75": RealCase(double_pendulum, only((0, 1, 2), first(0.75))),
    "pendulum_to12": RealCase(double_pendulum, by_run((0, 1, 2, 3, 4), (5,))),
    "pendulum_12last60": RealCase(double_pendulum, only((5,), last(0.6))),
    "med7_first75": RealCase(med7, first(0.75)),
    "med7_last75": RealCase(med7_moving, last(0.75)),
    "z1_first75": RealCase(z1, first(0.75)),
    "z1_last75": RealCase(z1, last(0.75)),
    "go2_leg0": RealCase(go2(0), by_run((0, 1, 2), (3, 4, 5))),
    "go2_leg1": RealCase(go2(1), by_run((1, 2, 3, 4), (0, 5))),
    "go2_leg2": RealCase(go2(2), by_run((3, 4, 5), (0, 1, 2))),
    "go2_leg3": RealCase(go2(3), by_run((0, 2, 4), (1, 3, 5))),
    "go2_leg3_first75": RealCase(go2(3), only((0, 1, 2), first(0.75))),
    "letters_17": LetterCase(PAPER_LETTERS),
    "letters_10": LetterCase(FEW_LETTERS),
    "sim_two_link_fourier": SimulatedCase(known_arm(TWO_LINK, 1), FOURIER, RANDOM, seed=1),
    "sim_two_link_noisy": SimulatedCase(known_arm(TWO_LINK, 2), RANDOM, FOURIER, NOISY, seed=2),
    "sim_arm3_short": SimulatedCase(random_arm(3, 3), SHORT, RANDOM, WITH_VELOCITY, seed=3),
    "sim_arm3_slow": SimulatedCase(random_arm(3, 4), SLOW, SLOW, WITH_VELOCITY, seed=4),
    "sim_wam4_random": SimulatedCase(
        known_arm(WAM4, 5), RANDOM, FOURIER, Sensors(rate=500.0, velocity=0.01), seed=5
    ),
    "sim_arm5_fourier": SimulatedCase(random_arm(5, 6), FOURIER, RANDOM, seed=6),
    "sim_arm6_random": SimulatedCase(random_arm(6, 7), RANDOM, RANDOM, WITH_VELOCITY, seed=7),
    "sim_arm6_short": SimulatedCase(random_arm(6, 8), SHORT, FOURIER, seed=8),
    "sim_wam7_fourier": SimulatedCase(known_arm(WAM7, 9), FOURIER, RANDOM, WITH_VELOCITY, seed=9),
    "sim_wam7_random": SimulatedCase(
        known_arm(WAM7, 10), RANDOM, RANDOM, Sensors(rate=1000.0), seed=10
    ),
    "sim_wam7_slow": SimulatedCase(known_arm(WAM7, 11), SLOW, SLOW, WITH_VELOCITY, seed=11),
    "sim_arm7_noisy": SimulatedCase(random_arm(7, 12), FOURIER, RANDOM, NOISY, seed=12),
    "sim_palletiser": SimulatedCase(mechanism(palletiser, 13), FOURIER, RANDOM, seed=13),
    "sim_coupled_wrist": SimulatedCase(
        mechanism(coupled_wrist, 14), RANDOM, FOURIER, WITH_VELOCITY, seed=14
    ),
    "sim_surgical_fourier": SimulatedCase(
        mechanism(surgical, 15), FOURIER, RANDOM, seed=15, options=("--sliding", "2")
    ),
    "sim_surgical_random": SimulatedCase(
        mechanism(surgical, 16),
        RANDOM,
        RANDOM,
        WITH_VELOCITY,
        seed=16,
        options=("--sliding", "2"),
    ),
}

# Logs whose delay must not depend on which half of them is used, and the shares of these halves.
DELAY_LOGS: dict[str, Callable[[Path], list[Rows]]] = {
    "wam": wam,
    "panda": panda,
    "ur3": lambda data: ur3(data)[:1],
}
HALVES = {"first": (0.0, 0.5), "middle": (0.25, 0.75), "second": (0.5, 1.0)}
