"""From a log file to a model file: record a pendulum, learn its dynamics, predict its torques.

Replace `swings.csv` with your own log: columns t, q0, …, qd0, …, qdd0, …, tau0, … and trajectory.
"""

import tempfile
from pathlib import Path

import numpy as np

import delan

folder = Path(tempfile.mkdtemp())

# Six swings of a pendulum of 2 kg at 0.5 m: inertia 0.5 kg m², gravity torque 9.81 cos q N m.
t = np.arange(0, 1, 0.02)
rows = []
for swing in range(6):
    amplitude = 0.5 + 0.2 * swing
    rate = 2 + 0.5 * swing
    q = amplitude * np.sin(rate * t)
    qd = amplitude * rate * np.cos(rate * t)
    qdd = -amplitude * rate**2 * np.sin(rate * t)
    tau = 0.5 * qdd + 9.81 * np.cos(q)
    rows.append(np.stack([t, q, qd, qdd, tau, np.full_like(t, swing)], axis=1))
log = folder / "swings.csv"
np.savetxt(
    log, np.concatenate(rows), delimiter=",", header="t,q0,qd0,qdd0,tau0,trajectory", comments=""
)

settings = delan.FitSettings(training=delan.TrainingSettings(epochs=60))
result = delan.fit(delan.read_log(log), "delan", settings=settings)
delan.save(result.model, folder / "pendulum.delan", provenance=result.provenance())
print(f"{result.verdict.decision}: validation nMSE {result.verdict.error:.1e}")

model = delan.load(folder / "pendulum.delan")
assert model.promises.mechanics
parts = model.components(*np.array([[0.3], [1.0], [2.0]], dtype=np.float32))
print(f"inertial torque {parts.inertial[0]:.3f} N m (truth {0.5 * 2.0:.3f})")
print(f"gravity torque {parts.gravity[0]:.3f} N m (truth {9.81 * np.cos(0.3):.3f})")
