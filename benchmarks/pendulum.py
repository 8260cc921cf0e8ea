"""What a rigid model can reach on the real double pendulum, whatever learns it.

    python -m benchmarks.pendulum --data FOLDER

The robot is planar and its kinematics are known, so that all its numbers follow from least squares:
inertias, gravity, rotors, and viscous and Coulomb friction with an offset. They are identified on
motions 00 to 02, or on the test motions 04 and 05 themselves, which no learned model may see; or
they are those that its makers published. Torques are compared at 10 Hz, motion is filtered at
several cut-offs. The motions are periodic, so that noise shows as the difference of cycles.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

from .choice_cases import Rows, double_pendulum
from .results import write_results

KNOWN, UNSEEN = (0, 1, 2), (3, 4)
STEP = 0.002  # [s]
RULER = 10.0  # bandwidth of the torques [Hz]
CUTOFFS = (2.0, 3.0, 4.0, 5.0, 7.0, 10.0)
CREEP = 0.05  # speed at which friction turns [rad/s]
FRICTION_BANDWIDTH = 30.0  # of the velocity that friction follows [Hz]
ENDS = 100  # rows that filters spoil at both ends
# Periods of the torques that drove motions 04 and 05 [s], and the joint that was driven.
CYCLES = {3: (0.4 * np.pi, 1), 4: (0.2 * np.pi, 0)}
# Vibration: faster than this [Hz], although the motors drive at 0.8 and 1.6 Hz.
FAST = 5.0
# Parameters of "design_C.0/model_3.0" of the repository of the robot, in SI units.
PUBLISHED = {
    "m1": 0.6416936775868083,
    "m2": 0.5639360564500752,
    "l1": 0.2,
    "r1": 0.2,
    "r2": 0.32126693265850237,
    "I1": 0.026710760905753486,
    "I2": 0.05387812962959988,
    "rotor": 9.937281204851094e-05,
    "gear": 6.0,
    "viscous": (0.001, 0.001),
    "coulomb": (0.093, 0.078),
    "g": 9.81,
}


class Motion(NamedTuple):
    """A motion filtered at a cut-off, the sign of its speed likewise, and torques at 10 Hz."""

    q: np.ndarray
    qd: np.ndarray
    qdd: np.ndarray
    sign: np.ndarray
    tau: np.ndarray


def motion(run: Rows, cutoff: float) -> Motion:
    """Return a run at even steps; velocities are slopes of the positions."""
    t = np.arange(run["t"][0], run["t"][-1], STEP)

    def column(name: str) -> np.ndarray:
        return np.stack([np.interp(t, run["t"], values) for values in run[name].T], axis=1)

    q = column("q")
    smooth = np.gradient(filtered(q, FRICTION_BANDWIDTH), STEP, axis=0)
    sign = filtered(np.tanh(smooth / CREEP), cutoff)
    q = filtered(q, cutoff)
    qd = np.gradient(q, STEP, axis=0)
    qdd = np.gradient(qd, STEP, axis=0)
    tau = filtered(column("tau"), RULER)
    return Motion(*(values[ENDS:-ENDS] for values in (q, qd, qdd, sign, tau)))


def filtered(values: np.ndarray, cutoff: float) -> np.ndarray:
    sections = scipy.signal.butter(4, cutoff, fs=1 / STEP, output="sos")
    return scipy.signal.sosfiltfilt(sections, values, axis=0)


def regressor(parts: Motion) -> np.ndarray:
    """Return the torques of a unit of each parameter, rows × joints × parameters."""
    first, second = parts.q.T
    v1, v2 = parts.qd.T
    a1, a2 = parts.qdd.T
    still = np.zeros_like(first)
    both = a1 + a2
    cosine, sine = np.cos(second), np.sin(second)
    coupled = (cosine * (a1 + both) - sine * v2 * (2 * v1 + v2), cosine * a1 + sine * v1**2)
    weight = np.sin(first + second)
    columns = [(a1, still), (both, both), coupled, (np.sin(first), still), (weight, weight)]
    columns += [(still, a2), (a2, a1)]  # the rotor of the elbow, alone and with the shoulder
    for values in (parts.qd, parts.sign, np.ones_like(parts.q)):
        columns += [(values[:, 0], still), (still, values[:, 1])]
    return np.stack([np.stack(column, axis=1) for column in columns], axis=2)


def published() -> np.ndarray:
    """Return the published numbers in the order of the regressor."""
    p: dict[str, Any] = PUBLISHED
    geared = p["gear"] ** 2 * p["rotor"]
    return np.array(
        [
            p["I1"] + p["m2"] * p["l1"] ** 2 + p["rotor"] + geared,
            p["I2"],
            p["m2"] * p["l1"] * p["r2"],
            (p["m1"] * p["r1"] + p["m2"] * p["l1"]) * p["g"],
            p["m2"] * p["r2"] * p["g"],
            geared,
            -p["gear"] * p["rotor"],
            *p["viscous"],
            *p["coulomb"],
            0.0,
            0.0,
        ]
    )


def identified(motions: Sequence[Motion]) -> np.ndarray:
    """Return the parameters by least squares, every joint by its own spread."""
    columns = np.concatenate([regressor(parts) for parts in motions])
    tau = np.concatenate([parts.tau for parts in motions])
    spread = tau.std(axis=0)
    rows = (columns / spread[:, None]).reshape(-1, columns.shape[2])
    return np.linalg.lstsq(rows, (tau / spread).ravel())[0]


def error(parameters: np.ndarray, motions: Sequence[Motion]) -> float:
    """Return the nMSE of the torques, mean over joints."""
    tau = np.concatenate([parts.tau for parts in motions])
    predicted = np.concatenate([regressor(parts) @ parameters for parts in motions])
    return float(np.mean(np.mean((predicted - tau) ** 2, axis=0) / tau.var(axis=0)))


def cycles(values: np.ndarray, period: float) -> np.ndarray:
    """Return the last cycles of a periodic motion, cycles × rows × joints."""
    rows = round(period / STEP)
    whole = len(values) // rows - 2  # the first two swing in
    return values[-whole * rows :].reshape(whole, rows, -1)


def between_cycles(runs: list[Rows]) -> float:
    """Return the variance of the driven torques about their mean cycle, over their variance."""
    shares = []
    for run, (period, joint) in CYCLES.items():
        tau = motion(runs[run], RULER).tau
        shares.append(
            cycles(tau, period).var(axis=0, ddof=1).mean(axis=0)[joint] / tau.var(0)[joint]
        )
    return float(np.mean(shares))


def vibration(runs: list[Rows], parameters: np.ndarray) -> dict[str, float]:
    """Return the standard deviation of mean cycles above 5 Hz, as measured and as predicted.

    The mean cycle has little noise, so that what is predicted and not measured did happen, and is
    no motion of rigid links: torques would show it.
    """
    sizes: dict[str, list[float]] = {"measured": [], "predicted": []}
    for run, (period, _) in CYCLES.items():
        parts = motion(runs[run], RULER)
        predicted = regressor(parts) @ parameters
        for name, tau in (("measured", parts.tau), ("predicted", predicted)):
            mean = cycles(tau - filtered(tau, FAST), period).mean(axis=0)
            sizes[name].append(float(mean.std()))
    return {name: float(np.mean(values)) for name, values in sizes.items()}


def results(runs: list[Rows]) -> dict[str, Any]:
    """Return the errors of all models at every cut-off."""
    table: dict[str, list[float]] = {}
    for cutoff in CUTOFFS:
        motions = [motion(run, cutoff) for run in runs]
        known = [motions[run] for run in KNOWN]
        unseen = [motions[run] for run in UNSEEN]
        models = {
            "identified_on_00_to_02": identified(known),
            "identified_on_the_test_itself": identified(unseen),
            "published": published(),
        }
        for name, parameters in models.items():
            table.setdefault(name, []).append(error(parameters, unseen))
    slow = [motion(runs[run], FAST) for run in UNSEEN]
    return {
        "cutoffs_hz": list(CUTOFFS),
        "test_nmse": table,
        "torque_between_cycles": between_cycles(runs),
        "above_5_hz": vibration(runs, identified(slow)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    found = results(double_pendulum(arguments.data))
    print(found)
    write_results("pendulum", found)


if __name__ == "__main__":
    main()
