"""Whether the columns of a joint tell of one motion: velocities against positions, accelerations against velocities."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...joints import Joints
from ..checks import RATIO_HARM
from .finding import Finding, spread
from .lag import Lag, best_lag, harm, scan_delays
from .levels import Columns
from .motion import Motion

FOLLOWS = 0.8
"""Share of a column's variance that the other must explain for their ratio to mean something."""
STRANGER = 0.5
"""Less than this share explained, and the two columns do not belong together."""
SAME_RATIO = 0.03
"""Ratios that differ by less than this share are one."""
RATIO_SEEN = 1.1
"""A ratio beyond this is warned of; beyond `RATIO_HARM` a fit refuses the log."""
FURTHEST_TURN = 4 * np.pi
"""Joints of arms have end stops: one that goes further than this from zero, or to and fro, tells degrees [rad]."""
FASTEST_TURN = 30.0
"""No arm turns a joint faster [rad/s]."""
FURTHEST_SLIDE = 20.0
"""No joint of an arm slides further [m]: this one tells millimetres."""
LAG_HARM = 0.05
"""A delay is told of if it makes the column wrong by this share of its own size,"""
LAG_GAIN = 0.5
"""if shifting takes away this share of what is unexplained,"""
LAG_SURE = 4.0
"""and if it is so many times its own standard error."""

DEGREE = np.pi / 180
"""So many times what positions say are rates in radians beside positions in degrees."""
FACTORS = {
    1 / DEGREE: "degrees",
    DEGREE: "degrees",
    1e3: "milliseconds or millimetres",
    1e-3: "milliseconds or millimetres",
    30 / np.pi: "revolutions a minute",
    np.pi / 30: "revolutions a minute",
    2 * np.pi: "turns",
    1 / (2 * np.pi): "turns",
    60.0: "minutes",
    1 / 60: "minutes",
}
"""What ratios between columns usually come from."""


@dataclass(frozen=True)
class Agreement:
    """One logged column against the same derivative of the positions: how many times larger, and how alike."""

    joint: int
    ratio: float
    explained: float
    lag: Lag | None

    @property
    def scaled(self) -> bool:
        """Whether it is the derivative in another unit."""
        return self.explained > FOLLOWS and self.ratio > 0 and not 1 / RATIO_SEEN < self.ratio < RATIO_SEEN

    @property
    def of_degrees(self) -> bool:
        """Whether it is so because the positions are in degrees."""
        return self.scaled and abs(self.ratio / DEGREE - 1) < SAME_RATIO


def examine_agreement(motion: Motion, joints: Joints) -> list[Finding]:
    """Units, signs and delays of velocities and accelerations, each against the positions."""
    found: list[Finding] = []
    radians: dict[int, list[str]] = {}
    for name, truth in (("qd", motion.speed), ("qdd", motion.acceleration)):
        if name not in motion.logged:
            continue
        compared = [compare(motion, truth, name, joint) for joint in range(joints.dof)]
        told = [one for one in compared if one is not None]
        mixed = [one.joint for one in told if one.of_degrees and joints.kinds[one.joint] != "prismatic"]
        for joint in mixed:
            radians.setdefault(joint, []).append(name)
        told = [one for one in told if one.joint not in mixed]
        ratios = [one.ratio for one in told if one.scaled]
        if len(ratios) == joints.dof > 1 and np.ptp(ratios) < SAME_RATIO * np.mean(ratios):
            found.append(_other_unit(name, None, float(np.mean(ratios))))
        else:
            found += [finding for one in told if (finding := _judged(motion, truth, name, one)) is not None]
    return found + _degrees(radians, joints)


def _degrees(radians: dict[int, list[str]], joints: Joints) -> list[Finding]:
    """Joints whose positions are in degrees while some of their rates are in radians: `--degrees` would scale both."""
    turning = [joint for joint, kind in enumerate(joints.kinds) if kind != "prismatic"]
    alike = len(radians) == len(turning) > 1 and len({tuple(names) for names in radians.values()}) == 1
    found = []
    for joint, names in [(None, radians[turning[0]])] if alike else radians.items():
        rates, left_out = " and ".join(names), " ".join(f"--map {name}=" for name in names)
        whole = joint is None or joints.dof == 1
        option = f", or read the log with --degrees {left_out} and have {rates} computed; --degrees alone scales "
        found.append(
            Finding(
                kind="units",
                severity="error",
                joint=joint,
                column="q",
                text=f"looks like degrees beside {rates} in radians, {DEGREE:.4g} times what positions and time say",
                remedy=f"convert q{'' if joint is None else joint} to rad before"
                + (f"{option}{rates} too" if whole else ""),
            )
        )
    return found


def compare(motion: Motion, truth: np.ndarray, name: str, joint: int) -> Agreement | None:
    """A logged column of a joint against what the positions say of it; None if one of the two never changes."""
    told, real = motion.logged[name][:, joint], truth[:, joint]
    told, real = told - told.mean(), real - real.mean()
    if not (told @ told > 0 and real @ real > 0):
        return None
    tried = scan_delays(motion, told, np.stack([np.ones(len(real)), real], axis=1))
    lag = None if tried is None else best_lag(tried)
    explained = _explained(told, real) if lag is None else 1 - lag.left
    # By the ratio of their deviations, what is noise left aside: a delay makes a regression too small.
    ratio = np.sqrt(max(explained, 0.0) * (told @ told) / (real @ real))
    return Agreement(joint, float(np.copysign(ratio, told @ real)), explained, lag)


def implausible_units(
    columns: Columns, motion: Motion | None, joints: Joints, told: Sequence[Finding]
) -> list[Finding]:
    """Positions further out, or faster, than arms go: degrees or millimetres, of all joints of a kind or of some.

    Left out are turning joints whose positions were told to be in another unit.
    """
    known = {finding.joint for finding in told if finding.kind == "units" and finding.column == "q"}
    strange: dict[int, str] = {}
    for joint, kind in enumerate(joints.kinds):
        if kind != "prismatic" and known & {joint, None}:
            continue
        q = columns["q"][:, joint]
        fastest = 0.0 if motion is None else float(np.abs(motion.speed[:, joint]).max())
        furthest = FURTHEST_SLIDE if kind == "prismatic" else FURTHEST_TURN
        far = kind != "continuous" and max(spread(q), float(np.abs(q).max())) > furthest
        if far or (kind != "prismatic" and fastest > FASTEST_TURN):
            unit = "m" if kind == "prismatic" else "rad"
            strange[joint] = f"goes from {q.min():.4g} to {q.max():.4g} {unit}"
            strange[joint] += f" at up to {fastest:.3g} {unit}/s" if fastest else ""
    found = []
    for slides, guess in ((False, "degrees"), (True, "millimetres")):
        kin = [joint for joint, kind in enumerate(joints.kinds) if (kind == "prismatic") == slides]
        odd = [joint for joint in kin if joint in strange]
        remedy = "divide the column by 1000" if slides else "read the log with --degrees"
        for joint in odd if len(odd) < max(2, len(kin)) else [None]:
            text = strange[odd[0] if joint is None else joint] + f": that looks like {guess}"
            text = text if joint is not None else f"joint {odd[0]} {text}, and so do the others"
            found.append(Finding(kind="units", severity="warning", joint=joint, column="q", text=text, remedy=remedy))
    return found


def _explained(told: np.ndarray, real: np.ndarray) -> float:
    return float((told @ real) ** 2 / ((told @ told) * (real @ real)))


def _judged(motion: Motion, truth: np.ndarray, name: str, compared: Agreement) -> Finding | None:
    """What is wrong with one column, the worst of it."""
    joint = compared.joint
    if compared.explained < STRANGER:
        return _stranger(motion, truth, name, compared)
    if compared.explained > FOLLOWS and compared.ratio < 0:
        return Finding(
            kind="sign",
            severity="error",
            joint=joint,
            column=name,
            text=f"runs against the positions: it is {compared.ratio:.3g} times what they say",
            remedy=f"turn the sign of {name}{joint}, or leave {name} out (--map {name}=) and have it computed",
        )
    if compared.scaled:
        return _other_unit(name, joint, compared.ratio)
    return None if compared.lag is None else _late(motion, truth[:, joint], name, joint, compared.lag)


def _other_unit(name: str, joint: int | None, ratio: float) -> Finding:
    """Of one joint, or of all alike: then it may be the clock."""
    factor, guess = next((one for one in FACTORS.items() if abs(ratio / one[0] - 1) < SAME_RATIO), (ratio, ""))
    clock = joint is None and guess != "degrees"
    return Finding(
        kind="units",
        severity="warning" if 1 / RATIO_HARM < ratio < RATIO_HARM else "error",
        joint=joint,
        column=name,
        text=f"is {ratio:.4g} times what positions and time say" + (f", as {guess} would make it" if guess else ""),
        remedy=f"divide {name} by {factor:.4g}, or leave it out (--map {name}=) and have it computed"
        + ("; if the clock is wrong, mend it (--time-scale)" if clock else ""),
    )


def _stranger(motion: Motion, truth: np.ndarray, name: str, compared: Agreement) -> Finding:
    """A column that follows another joint's motion, or none."""
    told = motion.logged[name][:, compared.joint]
    told = told - told.mean()
    centred = truth - truth.mean(axis=0)
    others = [_explained(told, real) if (real @ real) > 0 else 0.0 for real in centred.T]
    twin = int(np.argmax(others))
    swapped = f"; it follows joint {twin} instead" if others[twin] > FOLLOWS else ""
    return Finding(
        kind="mismatch",
        severity="warning",
        joint=compared.joint,
        column=name,
        text=f"the positions explain only {max(compared.explained, 0.0):.0%} of it{swapped}",
        remedy="check the order of the columns (--map)" if swapped else f"leave {name} out (--map {name}=)",
    )


def _late(motion: Motion, real: np.ndarray, name: str, joint: int, lag: Lag) -> Finding | None:
    wrong = harm(motion, real, lag.seconds)
    if wrong < LAG_HARM or abs(lag.seconds) < LAG_SURE * lag.error or lag.gain < LAG_GAIN:
        return None
    size, word = f"{1e3 * abs(lag.seconds):.3g} ms", "late" if lag.seconds > 0 else "early"
    return Finding(
        kind="delay",
        severity="warning",
        joint=joint,
        column=name,
        text=f"comes {size} {word} against the positions, which makes it wrong by {wrong:.0%} of its size",
        remedy=f"leave {name} out (--map {name}=) and have it computed, or shift it by {size}",
    )
