"""Check of the torques: against the motion, against a described robot, and their lag."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ...joints import evenly_spaced
from . import cases
from .checked_log import CheckedLog, Comparison, DescriptionMatch, Motion, SampleRows, TorqueRows
from .finding import Case, Finding
from .lags import Lag, Regression, find_lag, lag_error

# Independent samples per free weight; with fewer, the least important terms are left out.
SAMPLES_PER_WEIGHT = 4.0
# Width of the transition from backward to forward friction, in a joint's usual speed.
SLOW_SPEED = 0.05
# A term is distinguishable if no combination of the others explains this share of its variance.
DISTINGUISHABLE = 0.02
# A weight counts if that share explains this share of the torque's standard deviation, ...
VISIBLE = 0.01
# ... and if the weight is this many times its standard error.
CERTAINTY = 4.0
# A weight of the wrong sign is an error if it is this many times its standard error, and a warning
# below: the errors, from eight parts, are so uncertain that 4 occurs once in some hundred weights.
ERROR_CERTAINTY = 6.0
# Joints whose sign is uncertain speak against a reversal of all joints if their dry friction, taken
# together, has the right sign by this many standard errors.
SPEAKS_AGAINST = 1.0
# Friction is absent if its standard error is below this share of the torque's standard deviation.
ABSENT = 0.05

# Samples that are compared with a description, evenly over the log: enough for a few weights.
SAMPLES = 400
# Fewer samples say nothing.
FEWEST_SAMPLES = 20
# Masses of a description are wrong by less than this factor; beyond it, the unit differs.
SCALE = 3.0
# A torque shows signs and units if the description explains this share of it beside friction.
INFORMATIVE = 0.3
# Description and friction together should explain this share of a torque.
EXPLAINS = 0.5
# Another unit or sign is believed if the residual of all joints falls below this share of it.
BETTER = 0.6
# Torques beyond any robot's [N m]: positions or times are in wrong units.
LARGEST = 1e6

# A lag is reported if it makes the torque wrong by this share of its standard deviation, ...
LAG_HARM = 0.03
# ... if shifting removes this share of the residual, ...
LAG_GAIN = 0.25
# ... and if it is this many times its standard error.
LAG_CERTAINTY = 5.0
# One clock makes one lag: those of the joints then differ by less than this share of it.
ALIKE = 0.3
# With the many free weights of any arm, a lag is not believed if less than this share is explained.
ENOUGH = 0.97
# The few weights beside a description allow less.
ENOUGH_WITH_MODEL = 0.85
# Lags against a description are not searched in longer motions, because the description is slow.
MOST_SAMPLES = 20_000


@dataclass(frozen=True)
class TermWeight:
    """Weight of one term of a joint's torque, in shares of that torque's standard deviation.

    Attributes:
        error: standard error of the value.
        unique: share of the term that no combination of the others explains.
    """

    value: float
    error: float
    unique: float

    @property
    def certain(self) -> bool:
        """Whether the log determines the weight."""
        effect = abs(self.value) * np.sqrt(self.unique)
        distinguishable = self.unique > DISTINGUISHABLE and effect > VISIBLE
        return bool(distinguishable and abs(self.value) > CERTAINTY * self.error)

    @property
    def in_errors(self) -> float:
        """The value in standard errors; beyond `CERTAINTY` in either direction it counts no more.

        A value without an error is that of a term that does not occur.
        """
        if not self.error > 0:
            return 0.0
        return float(np.clip(self.value / self.error, -CERTAINTY, CERTAINTY))


@dataclass(frozen=True)
class JointTerms:
    """Inertia, viscous friction and dry friction of one joint.

    Attributes:
        samples: independent samples of the log per weight.
    """

    inertia: TermWeight
    viscous: TermWeight
    dry: TermWeight
    samples: float

    @property
    def sign(self) -> TermWeight | None:
        """The weight that shows the sign of the torque, None if none is certain."""
        for weight in (self.inertia, self.dry):
            if weight.certain:
                return weight
        return None

    @property
    def violation(self) -> Case | None:
        """The law of mechanics that these weights violate."""
        if self.sign is None or self.sign.value > 0:
            return None
        return cases.NEGATIVE_INERTIA if self.inertia.certain else cases.NEGATIVE_FRICTION

    @property
    def clearly_reversed(self) -> bool:
        """Whether the violation is beyond doubt."""
        if self.sign is None or self.samples < SAMPLES_PER_WEIGHT:
            return False
        return -self.sign.value > ERROR_CERTAINTY * self.sign.error

    @property
    def friction(self) -> Case:
        """The friction that is visible."""
        dry = self.dry.certain and self.dry.value > 0
        viscous = self.viscous.certain and self.viscous.value > 0
        if dry and viscous:
            return cases.FRICTION
        if dry:
            return cases.DRY_FRICTION
        if viscous:
            return cases.VISCOUS_FRICTION
        if max(self.dry.error, self.viscous.error) < ABSENT:
            return cases.NO_FRICTION
        # The free weights for any arm absorb part of the friction, so that it can remain uncertain.
        return cases.UNCERTAIN_FRICTION


def examine_torque(log: CheckedLog) -> list[Finding]:
    """Report signs and friction of the joints that are not dead."""
    if log.motion is None or not log.alive:
        return []
    terms = joint_terms(log.motion, log.alive)
    friction = []
    for joint, weights in terms.items():
        if weights.violation is None:
            measured = {"dry": weights.dry.value, "viscous": weights.viscous.value}
            friction.append(Finding(weights.friction, "note", joint, "tau", measured))
    return _signs(terms, part=log.part) + friction


def joint_terms(motion: Motion, alive: list[int]) -> dict[int, JointTerms]:
    """Return inertia and friction of each joint that has a torque, {} if the motion is too short.

    They come from a regression of the torque on the terms of any arm.
    """
    features = torque_features(motion, alive)
    if len(motion) < 2 * features.shape[1]:
        return {}
    regression = Regression(features)
    fit = regression.fit(motion.logged["tau"][:, alive])
    unique = regression.unique / len(motion)
    terms = {}
    for index, joint in enumerate(alive):
        deviation = float(motion.logged["tau"][:, joint].std())
        if deviation == 0:
            continue
        # The first features: a constant, then accelerations, positions, velocities, directions.
        weights = []
        for group in (0, 2, 3):
            feature = 1 + group * len(alive) + index
            value = float(fit.weights[feature, index] / deviation)
            error = float(fit.errors[feature, index] / deviation)
            weights.append(TermWeight(value, error, float(unique[feature])))
        inertia, viscous, dry = weights
        samples = motion.independent / features.shape[1]
        terms[joint] = JointTerms(inertia, viscous, dry, samples)
    return terms


def _signs(terms: Mapping[int, JointTerms], *, part: bool) -> list[Finding]:
    """Report reversed torques, as one finding if those of all joints are reversed."""
    violations = {}
    for joint, weights in terms.items():
        if weights.violation is not None:
            violations[joint] = weights.violation
    # Too few joints may show their sign in a part of a log.
    if not part and len(terms) > 1 and _all_reversed(terms):
        clear = any(terms[joint].clearly_reversed for joint in violations)
        severity = "error" if clear else "warning"
        measured = {"shown": tuple(violations)}
        return [Finding(cases.ALL_REVERSED, severity, None, "tau", measured)]
    findings = []
    for joint, violation in violations.items():
        severity = "error" if terms[joint].clearly_reversed else "warning"
        findings.append(Finding(violation, severity, joint, "tau"))
    return findings


def _all_reversed(terms: Mapping[int, JointTerms]) -> bool:
    """Decide whether the torques of all joints are reversed, or only those that show it.

    A sign convention concerns all joints, a wrong cable or column one. It is a convention if no
    joint shows the right sign and if the joints without a certain sign, taken together, do not lean
    to the right one. Only dry friction leans: it is the term that slow motion shows first.
    """
    reversed_joints = 0
    leanings = []
    for weights in terms.values():
        if weights.sign is None:
            leanings.append(weights.dry.in_errors)
        elif weights.sign.value > 0:
            return False
        else:
            reversed_joints += 1
    if not reversed_joints:
        return False
    return bool(sum(leanings) <= SPEAKS_AGAINST * np.sqrt(len(leanings)))


def torque_features(motion: Motion, alive: list[int]) -> Float[np.ndarray, "samples features"]:
    """Return as many terms of any arm's torque as the log can weight, with mean square 1.

    The most important terms come first.
    """
    q = motion.q[:, alive]
    velocity = motion.velocity[:, alive]
    acceleration = motion.acceleration[:, alive]
    z = (q - q.mean(axis=0)) / np.maximum(q.std(axis=0), 1e-12)
    v = velocity / np.maximum(velocity.std(axis=0), 1e-12)
    direction = np.tanh(v / SLOW_SPEED)
    features = np.concatenate([np.ones((len(z), 1)), acceleration, z, v, direction], axis=1)
    crossed = (acceleration[:, :, None] * z[:, None, :]).reshape(len(z), z.shape[1] ** 2)
    for group in (_products(z), _products(v), crossed, z**3):
        if SAMPLES_PER_WEIGHT * (features.shape[1] + group.shape[1]) > motion.independent:
            break
        features = np.concatenate([features, group], axis=1)
    return features / np.maximum(np.sqrt(np.mean(features**2, axis=0)), 1e-300)


def _products(values: np.ndarray) -> np.ndarray:
    """Return the products of all pairs of columns."""
    rows, columns = np.triu_indices(values.shape[1])
    return values[:, rows] * values[:, columns]


def match_description(log: CheckedLog) -> DescriptionMatch | None:
    """Compare the log with the described robot: as it is, in degrees, and with joints reversed.

    None without a description, or without enough motion to compare.
    """
    motion = log.motion
    model = log.model
    if motion is None or model is None or not log.alive or len(motion) < FEWEST_SAMPLES:
        return None
    chosen = evenly_spaced(len(motion), SAMPLES)

    def compare(factor: np.ndarray) -> Comparison:
        return _compare(motion, chosen, log.alive, model, factor)

    as_radians = compare(np.ones(log.joints.dof))
    as_degrees = compare(np.where(log.joints.turning, np.pi / 180, 1.0))
    best = as_radians
    if as_degrees.unexplained < BETTER * as_radians.unexplained:
        best = as_degrees
    # One joint after the other: all combinations of reversed joints would be too many.
    while True:
        trials = {}
        for joint in log.alive:
            reversal = np.where(np.arange(log.joints.dof) == joint, -1.0, 1.0)
            trials[joint] = compare(best.factor * reversal)
        joint = min(trials, key=lambda number: trials[number].unexplained)
        improved = trials[joint].unexplained < BETTER * best.unexplained
        if best.factor[joint] < 0 or not improved:
            return DescriptionMatch(as_radians, as_degrees, best)
        best = trials[joint]


def _compare(
    motion: Motion,
    chosen: Int[np.ndarray, " chosen"],
    alive: list[int],
    model: TorqueRows,
    factor: Float[np.ndarray, " dof"],
) -> Comparison:
    """Regress each joint's torque on the description, friction and an offset."""
    tau = motion.logged["tau"][chosen]
    described = _described(motion, chosen, model, factor)
    dof = tau.shape[1]
    slope = np.zeros(dof)
    explained = np.zeros(dof)
    residual = np.ones(dof)
    for joint in range(dof):
        friction = np.linalg.qr(_friction_terms(motion, joint)[chosen])[0]
        logged = tau[:, joint] - friction @ (friction.T @ tau[:, joint])
        expected = described[:, joint] - friction @ (friction.T @ described[:, joint])
        variance = float(np.sum((tau[:, joint] - tau[:, joint].mean()) ** 2))
        if not (logged @ logged > 0 and expected @ expected > 0):
            continue
        slope[joint] = float(logged @ expected / (expected @ expected))
        explained[joint] = float((logged @ expected) ** 2 / (expected @ expected)) / variance
        residual[joint] = float(logged @ logged) / variance - explained[joint]
    # The torque of a joint without a motor is zero, whatever the description says.
    shown = [joint for joint in alive if tau[:, joint].any()]
    return Comparison(factor, slope, explained, residual, float(residual[shown].mean()))


def _described(
    motion: Motion, chosen: np.ndarray | slice, model: TorqueRows, factor: np.ndarray
) -> SampleRows:
    """Return the described torques of a motion whose joints are scaled by a factor."""
    torques = model(
        motion.q[chosen] * factor,
        motion.velocity[chosen] * factor,
        motion.acceleration[chosen] * factor,
    )
    torques = np.asarray(torques, dtype=float)
    return np.where(np.abs(torques) < LARGEST, torques, 0.0)


def _friction_terms(motion: Motion, joint: int) -> Float[np.ndarray, "samples 3"]:
    """Return what is not in the description: an offset, viscous and dry friction."""
    v = motion.velocity[:, joint] / max(float(motion.velocity[:, joint].std()), 1e-12)
    return np.stack([np.ones(len(v)), v, np.tanh(v / SLOW_SPEED)], axis=1)


def examine_description(log: CheckedLog) -> list[Finding]:
    """Report units and signs with which the described robot agrees better, and disagreement."""
    if log.match is None:
        return []
    findings = []
    best = log.match.best
    if (np.abs(best.factor) != 1).any():
        measured = {
            "as_degrees": log.match.as_degrees.unexplained,
            "as_radians": log.match.as_radians.unexplained,
        }
        findings.append(Finding(cases.URDF_DEGREES, "error", None, "q", measured))
    for joint in log.driven:
        if best.factor[joint] < 0:
            findings.append(Finding(cases.URDF_JOINT_SIGN, "error", joint, "q"))
        findings += _torque_findings(best, joint)
    return findings


def _torque_findings(best: Comparison, joint: int) -> list[Finding]:
    """Return what the best comparison shows about one joint's torque."""
    slope = float(best.slope[joint])
    residual = float(best.residual[joint])
    findings = []
    if best.explained[joint] > INFORMATIVE:
        if slope < 0:
            measured = {"ratio": slope}
            findings.append(Finding(cases.URDF_TORQUE_SIGN, "error", joint, "tau", measured))
        if not 1 / SCALE < abs(slope) < SCALE:
            measured = {"ratio": abs(slope), "gain": 1 / abs(slope)}
            findings.append(Finding(cases.URDF_TORQUE_UNIT, "error", joint, "tau", measured))
    if residual > EXPLAINS:
        measured = {"explained": 1 - residual}
        findings.append(Finding(cases.URDF_MISMATCH, "warning", joint, "tau", measured))
    return findings


@dataclass(frozen=True, eq=False)
class Explanation:
    """Features of a joint's torque, and the share they must explain for a lag to be believed."""

    features: Float[np.ndarray, "samples features"]
    enough: float


def examine_lags(log: CheckedLog) -> list[Finding]:
    """Report lags of the torques behind the motion.

    Drives and sensors of a robot share a bus, so a lag of most joints is one of all joints. Lags
    that differ between joints do not come from a clock: joints that stick and elastic drives
    separate torque and motion, too.
    """
    if log.motion is None or not log.alive:
        return []
    lags: dict[int, Lag] = {}
    for joint, explanation in _explanations(log, log.motion).items():
        lag = _certain_lag(log.motion, joint, explanation)
        if lag is not None:
            lags[joint] = lag
    if not lags:
        return []
    seconds = np.array([lag.seconds for lag in lags.values()])
    usual = float(np.median(seconds))
    if np.abs(seconds - usual).max() > ALIKE * abs(usual):
        measured = {"milliseconds": {joint: 1e3 * lag.seconds for joint, lag in lags.items()}}
        return [Finding(cases.SCATTERED_LAGS, "note", None, "tau", measured)]
    if 1 < len(log.driven) < 2 * len(lags):
        return [_torque_lag(log.motion, None, usual, lags)]
    findings = []
    for joint, lag in lags.items():
        findings.append(_torque_lag(log.motion, joint, lag.seconds, {joint: lag}))
    return findings


def _explanations(log: CheckedLog, motion: Motion) -> dict[int, Explanation]:
    """Return how to explain each joint's torque: by its description, else as that of any arm."""
    any_arm = Explanation(torque_features(motion, log.alive), ENOUGH)
    explanations = dict.fromkeys(log.driven, any_arm)
    if log.match is None or log.model is None or len(motion) > MOST_SAMPLES:
        return explanations
    best = log.match.best
    described = _described(motion, slice(None), log.model, best.factor)
    for joint in log.driven:
        if best.residual[joint] < EXPLAINS:
            features = np.column_stack([_friction_terms(motion, joint), described[:, joint]])
            explanations[joint] = Explanation(features, ENOUGH_WITH_MODEL)
    return explanations


def _certain_lag(motion: Motion, joint: int, explanation: Explanation) -> Lag | None:
    """Return the lag of a joint's torque if it is harmful and certain."""
    tau = motion.logged["tau"][:, joint]
    lag = find_lag(motion, tau, explanation.features)
    if lag is None or lag.residual > 1 - explanation.enough:
        return None
    if not lag.certain(gain=LAG_GAIN, errors=LAG_CERTAINTY):
        return None
    return lag if lag_error(motion, tau, lag.seconds) > LAG_HARM else None


def _torque_lag(
    motion: Motion, joint: int | None, seconds: float, lags: Mapping[int, Lag]
) -> Finding:
    errors = [lag_error(motion, motion.logged["tau"][:, number], seconds) for number in lags]
    case = cases.TORQUE_LAG if seconds > 0 else cases.TORQUE_LEAD
    measured = {
        "milliseconds": 1e3 * abs(seconds),
        "error": max(errors),
        "gain": max(lag.gain for lag in lags.values()),
    }
    return Finding(case, "warning", joint, "tau", measured)
