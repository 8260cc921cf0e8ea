"""From a log file to a model file: a pendulum's swings are recorded, learned and asked for their torques.

Your own log takes the place of `swings.csv`: columns t, q0, …, qd0, …, qdd0, …, tau0, … and trajectory.
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
    size, rate = 0.5 + 0.2 * swing, 2 + 0.5 * swing
    q, qd, qdd = size * np.sin(rate * t), size * rate * np.cos(rate * t), -size * rate**2 * np.sin(rate * t)
    rows.append(np.stack([t, q, qd, qdd, 0.5 * qdd + 9.81 * np.cos(q), np.full_like(t, swing)], axis=1))
log = folder / "swings.csv"
np.savetxt(log, np.concatenate(rows), delimiter=",", header="t,q0,qd0,qdd0,tau0,trajectory", comments="")

dataset = delan.prepare(delan.read_log(log))
result = delan.fit(dataset, settings=delan.FitSettings(epochs=60))
delan.save(result.model, folder / "pendulum.delan", provenance=result.provenance())
print(
    f"validation nMSE {result.validation.torque.nmse_mean:.1e}, trained by {result.optimizer} in {result.seconds:.1f} s"
)

model = delan.load(folder / "pendulum.delan")
assert isinstance(model, delan.DynamicsModel)
parts = model.components(*np.array([[0.3], [1.0], [2.0]], dtype=np.float32))
print(f"inertial torque {parts.inertial[0]:.3f} N m (truth {0.5 * 2.0:.3f})")
print(f"gravity torque {parts.gravity[0]:.3f} N m (truth {9.81 * np.cos(0.3):.3f})")
