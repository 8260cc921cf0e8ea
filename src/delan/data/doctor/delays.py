"""Whether torques and motion were logged by one clock."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .finding import Finding
from .lag import Lag, best_lag, harm, scan_delays
from .motion import Motion

HARM = 0.03
"""A delay is told of if it makes the torque wrong by this share of its deviation,"""
GAIN = 0.25
"""if shifting takes away this share of what is unexplained,"""
SURE = 5.0
"""and if it is so many times its standard error."""
ALIKE = 0.3
"""One clock makes one delay: those of several joints differ by less than this share of it."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """Features that make up a torque, and the share of it that they must explain for a delay to be believed."""

    features: Float[np.ndarray, "samples features"]
    enough: float


def examine_delays(motion: Motion, explanations: Mapping[int, Explanation]) -> list[Finding]:
    """Delays of torques against what motion asks for.

    Drives and sensors of one robot share a bus, so a delay of most joints is one of all. Delays that differ from joint
    to joint are no clock's: joints that stick, and drives that give way, let torque and motion part as well.
    """
    lags = {joint: _lag(motion, joint, one) for joint, one in explanations.items()}
    found = {joint: lag for joint, lag in lags.items() if lag is not None}
    if not found:
        return []
    seconds = np.array([lag.seconds for lag in found.values()])
    usual = float(np.median(seconds))
    if np.abs(seconds - usual).max() > ALIKE * abs(usual):
        return [_scattered(found)]
    if 1 < len(explanations) < 2 * len(found):
        return [_told(motion, None, usual, found)]
    return [_told(motion, joint, lag.seconds, {joint: lag}) for joint, lag in found.items()]


def _lag(motion: Motion, joint: int, explanation: Explanation) -> Lag | None:
    """A joint's delay, if it is large and sure."""
    tau = motion.logged["tau"][:, joint]
    tried = scan_delays(motion, tau, explanation.features)
    lag = None if tried is None else best_lag(tried)
    if lag is None or lag.left > 1 - explanation.enough:
        return None
    sure = lag.gain > GAIN and abs(lag.seconds) > SURE * lag.error
    return lag if sure and harm(motion, tau, lag.seconds) > HARM else None


def _told(motion: Motion, joint: int | None, seconds: float, lags: Mapping[int, Lag]) -> Finding:
    size = f"{1e3 * abs(seconds):.3g} ms"
    word, other = ("later", "earlier") if seconds > 0 else ("earlier", "later")
    wrong = max(harm(motion, motion.logged["tau"][:, one], seconds) for one in lags)
    gain = max(lag.gain for lag in lags.values())
    return Finding(
        kind="delay",
        severity="warning",
        joint=joint,
        column="tau",
        text=f"comes {size} {word} than the motion asks for it, which makes it wrong by {wrong:.0%} of its size; "
        f"shifting it removes {gain:.0%} of what is unexplained",
        remedy=f"shift the torque by {size} to {other} times; log torque and motion by one clock",
    )


def _scattered(lags: Mapping[int, Lag]) -> Finding:
    told = ", ".join(f"{1e3 * lag.seconds:+.3g} ms of joint {joint}" for joint, lag in lags.items())
    return Finding(
        kind="delay",
        severity="note",
        column="tau",
        text=f"torques do not line up with the motion, each joint by another delay ({told})",
        remedy="nothing, if joints stick or drives are elastic; else compare the clocks of torque and motion",
    )
