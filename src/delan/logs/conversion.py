"""Conversion of a log's columns to SI units of the chosen joints: units, gears, signs, commands.

The order is: choice of the joints, degrees and factors, offsets, torques of currents or commands,
transmission, signs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from ..errors import DataError
from ..joints import COMPONENTS, DriveGains, Joints
from .column_names import says_degrees
from .columns import ColumnLayout
from .options import QUANTITIES, LogOptions, Numbers
from .time_stamps import whole_or_float

# Quantities that change their sign together.
_MOTORS = ("q_motor", "qd_motor")
_RATES = ("q", "qd", "qdd", *_MOTORS)
_TORQUES = ("tau", *COMPONENTS)
# Its own torques, which a transmission leaves as they are.
_SENSOR = "tau_link"
# Quantities that may be in degrees.
_ANGLES = (*_RATES, "q_des", "qd_des")

Columns = dict[str, Float[np.ndarray, "time dof"]]

# A commanded torque that differs by less than this share from that of the gains is the same.
SAME_TORQUE = 0.05


@dataclass(frozen=True, eq=False)
class Conversion:
    """Which joints of a sheet are used, and what is done with their columns.

    Attributes:
        source: the log, for messages.
        layout: where the quantities lie.
        numbers: the chosen joints, by number in the log.
        joints: the chosen joints.
        factors, offsets: of each quantity, per joint.
        kp, kd: gains of the drives, per joint; None if they are columns, or not needed.
        stiffness: of sensors in the joints, per joint; None if it was not given.
        transmission: positions of the motors by those of the joints, None if they are the same.
        signs: sign of each quantity, per joint.
    """

    source: str
    layout: ColumnLayout
    numbers: tuple[int, ...]
    joints: Joints
    factors: Mapping[str, np.ndarray]
    offsets: Mapping[str, np.ndarray]
    kp: np.ndarray | None
    kd: np.ndarray | None
    stiffness: np.ndarray | None
    transmission: np.ndarray | None
    signs: Mapping[str, np.ndarray]

    def columns(self, piece: Mapping[str, np.ndarray]) -> Columns:
        """Return each quantity of the chosen joints in SI units."""
        columns = {}
        with np.errstate(over="ignore", invalid="ignore"):
            for quantity, names in self.layout.places.items():
                columns[quantity] = self._table(quantity, names, piece)
            if self.layout.torque.source == "commands":
                columns["tau"] = self._commanded(columns)
            if self.transmission is not None:
                columns = _at_joints(columns, self.transmission)
            for quantity, sign in self.signs.items():
                if quantity in columns:
                    columns[quantity] = columns[quantity] * sign
        return {name: values for name, values in columns.items() if name in QUANTITIES}

    def _table(
        self, quantity: str, names: tuple[str, ...], piece: Mapping[str, np.ndarray]
    ) -> Float[np.ndarray, "time dof"]:
        arrays = []
        for name in names:
            values = whole_or_float(self.source, name, piece[name])
            arrays.append(values.astype(np.float64, copy=False))
        # Columns of single joints lie side by side; an array holds all joints already.
        table = arrays[0]
        if table.ndim == 1:
            table = np.stack(arrays, axis=1)
        table = table[:, self.numbers]
        if quantity in self.factors:
            table = table * self.factors[quantity]
        if quantity in self.offsets:
            table = table + self.offsets[quantity]
        return table

    def gains(self, piece: Mapping[str, np.ndarray]) -> DriveGains | None:
        """Return the gains that torques were computed with; None if they vary or are of motors."""
        if self.layout.torque.source != "commands" or self.transmission is not None:
            return None
        found = []
        for name in ("kp", "kd"):
            gain = getattr(self, name)
            if gain is None:
                table = self._table(name, self.layout.places[name], piece)
                if not len(table) or np.ptp(table, axis=0).any():
                    return None
                gain = table[0]
            found.append(np.array(gain, dtype=float))
        return DriveGains(*found)

    def _commanded(self, columns: Columns) -> Float[np.ndarray, "time dof"]:
        """Return kp (q_des − q) + kd (q̇_des − q̇) + τ_des; what the log has not is zero.

        Some loggers write the sum itself as τ_des; it is not added to itself.
        """
        kp = columns["kp"] if self.kp is None else self.kp
        kd = columns["kd"] if self.kd is None else self.kd
        torque = kp * (columns["q_des"] - columns["q"])
        if "qd" in columns:
            torque = torque + kd * (columns.get("qd_des", 0.0) - columns["qd"])
        added = columns.get("tau_des", np.zeros_like(torque))
        apart = np.linalg.norm(added - torque, axis=0)
        is_sum = apart < SAME_TORQUE * np.linalg.norm(torque, axis=0)
        return np.where(is_sum, torque, torque + added)


def _at_joints(columns: Columns, transmission: np.ndarray) -> Columns:
    """Return motions and torques of joints from those of motors.

    With q_motor = T q_joint, the power of both is the same if tau_joint = Tᵀ tau_motor.
    """
    inverse = np.linalg.inv(transmission)
    at_joints = dict(columns)
    # Beside positions of the motors, the others are those of the links.
    for quantity in _MOTORS if "q_motor" in columns else _RATES:
        if quantity in columns:
            at_joints[quantity] = columns[quantity] @ inverse.T
    for quantity in _TORQUES:
        if quantity in columns:
            at_joints[quantity] = columns[quantity] @ transmission
    return at_joints


def conversion_of(source: str, layout: ColumnLayout, options: LogOptions) -> Conversion:
    """Return how the columns of a layout are converted."""
    numbers = list(range(layout.joints.dof))
    if options.joints is not None:
        numbers = _joint_numbers(source, "--joints", options.joints, layout.joints)
    joints = _with_slides(source, layout.joints.pick(numbers), options)
    factors = _angle_factors(layout, options, numbers, joints)
    for quantity, scale in options.scale.items():
        known = factors.get(quantity, np.ones(joints.dof))
        factors[quantity] = known * _per_joint(source, f"--scale {quantity}", scale, joints)
    if options.gain is not None and layout.torque.source != "commands":
        known = factors.get("tau", np.ones(joints.dof))
        factors["tau"] = known * _per_joint(source, "--gain", options.gain, joints)
    offsets = {}
    for quantity, offset in options.offset.items():
        offsets[quantity] = _per_joint(source, f"--offset {quantity}", offset, joints)
    stiffness = None
    if options.stiffness is not None:
        stiffness = _per_joint(source, "--stiffness", options.stiffness, joints)
    gains = {}
    for name in ("kp", "kd"):
        given = getattr(layout.torque, name)
        gains[name] = None
        if given is not None:
            gains[name] = _chosen(source, f"--{name}", given, numbers, layout.joints)
    return Conversion(
        source=source,
        layout=layout,
        numbers=tuple(numbers),
        joints=joints,
        factors=factors,
        offsets=offsets,
        kp=gains["kp"],
        kd=gains["kd"],
        stiffness=stiffness,
        transmission=_transmission(source, options, joints),
        signs=_signs(source, layout, options, numbers),
    )


def _angle_factors(
    layout: ColumnLayout, options: LogOptions, numbers: list[int], joints: Joints
) -> dict[str, np.ndarray]:
    """Return the factors of angles in degrees: all, or those whose columns say it."""
    factors = {}
    for quantity in _ANGLES:
        names = layout.places.get(quantity, ())
        said = np.array([options.degrees or says_degrees(name) for name in names])
        if len(said) > 1:
            said = said[numbers]
        if said.any():
            factors[quantity] = np.where(said & joints.turning, np.pi / 180, 1.0)
    return factors


def _per_joint(source: str, option: str, numbers: Numbers, joints: Joints) -> np.ndarray:
    """Return one number per joint from one for all or one for each."""
    if len(numbers) not in (1, joints.dof):
        problem = (
            f"{option} gives {len(numbers)} numbers for {joints.dof} joints; "
            "give one number, or one per joint"
        )
        raise DataError(source, problem)
    return np.broadcast_to(np.array(numbers), (joints.dof,))


def _chosen(
    source: str, option: str, numbers: Numbers, chosen: list[int], joints: Joints
) -> np.ndarray:
    """Return gains of the chosen joints: one for all, one for each of them, or of all joints."""
    if len(numbers) == joints.dof:
        return np.array(numbers)[chosen]
    return _per_joint(source, option, numbers, joints.pick(chosen))


def _transmission(source: str, options: LogOptions, joints: Joints) -> np.ndarray | None:
    if options.transmission is None:
        return None
    matrix = np.array(options.transmission, dtype=float)
    if len(matrix) == 1:
        matrix = np.diag(matrix[0])
    if len(matrix) != joints.dof:
        problem = (
            f"--transmission is for {len(matrix)} joints, the log has {joints.dof}; give one row "
            "and one column per joint, or choose the joints by --joints"
        )
        raise DataError(source, problem)
    return matrix


def _signs(
    source: str, layout: ColumnLayout, options: LogOptions, numbers: list[int]
) -> dict[str, np.ndarray]:
    signs: dict[str, np.ndarray] = {}
    for quantity, flipped in options.flip.items():
        chosen = numbers
        if flipped != "all":
            chosen = _joint_numbers(source, "--flip", flipped, layout.joints)
        sign = np.where(np.isin(numbers, chosen), -1.0, 1.0)
        for name in _RATES if quantity == "q" else (*_TORQUES, _SENSOR):
            signs[name] = sign
    return signs


def _with_slides(source: str, joints: Joints, options: LogOptions) -> Joints:
    """Return the joints with those that slide, as the options say."""
    if options.sliding is None:
        return joints
    kinds = list(joints.kinds)
    for joint in _joint_numbers(source, "--sliding", options.sliding, joints):
        kinds[joint] = "prismatic"
    return replace(joints, kinds=tuple(kinds))


def _joint_numbers(
    source: str, option: str, chosen: tuple[int | str, ...], joints: Joints
) -> list[int]:
    """Return the numbers in the log of joints given by name or number."""
    numbers = []
    for joint in chosen:
        if isinstance(joint, str) and joint in joints.names:
            numbers.append(joints.names.index(joint))
        elif isinstance(joint, int) and joint < joints.dof:
            numbers.append(joint)
        else:
            known = ", ".join(f"{i} {name}" for i, name in enumerate(joints.names))
            raise DataError(source, f"{option}: there is no joint {joint!r}; the log has {known}")
    if len(set(numbers)) < len(numbers):
        given = ", ".join(map(str, chosen))
        raise DataError(source, f"{option}: {given} name a joint twice; give each joint once")
    return numbers
