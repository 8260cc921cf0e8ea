"""From a model to a controller in C: write the code, compile it, call it and compare.

The model is the pendulum of `fit_a_log.py`; use `delan.load("arm.delan")` for yours. `delan export`
does the first half. Run it: python examples/export_and_call_from_c.py
"""

import ctypes
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import delan

compiler = shutil.which("cc")
if compiler is None:
    sys.exit("this example needs a C compiler; `delan machine` says how to get one")

# Learn a pendulum of 2 kg at 0.5 m from five swings.
swings = np.arange(5)
amplitude = np.linspace(0.5, 2, 5)[:, None]
rate = np.linspace(2, 5, 5)[:, None]
t = np.arange(0, 1, 0.02)
q = amplitude * np.sin(rate * t)
qd = amplitude * rate * np.cos(rate * t)
qdd = -amplitude * rate**2 * np.sin(rate * t)
tau = 0.5 * qdd + 9.81 * np.cos(q)
dataset = delan.Dataset(
    t=np.tile(t, 5),
    q=q.reshape(-1, 1),
    qd=qd.reshape(-1, 1),
    qdd=qdd.reshape(-1, 1),
    tau=tau.reshape(-1, 1),
    trajectory=np.repeat(swings, len(t)),
    joints=delan.Joints.revolute(1),
)
settings = delan.FitSettings(training=delan.TrainingSettings(epochs=20))
model = delan.fit(dataset, "delan", settings=settings).model

# The folder has arm.h, arm.c, test.c, example.c and CMakeLists.txt, and needs no Python.
folder = Path(tempfile.mkdtemp())
code = delan.export(model, folder, delan.ExportSettings(name="arm", precision="double"))
print(f"arm.h and arm.c have {', '.join(code.functions)}")
subprocess.run(
    [compiler, "-std=c99", "-O3", "arm.c", "test.c", "-lm", "-o", "test"], cwd=folder, check=True
)
# test.c compares the code with torques of the model, on the machine that will run it.
test = subprocess.run([folder / "test"], capture_output=True, text=True, check=True)
print(test.stdout.strip())

# Call it as a controller does: void arm_inverse_dynamics(memory, q, qd, qdd, tau), double arrays.
subprocess.run(
    [compiler, "-std=c99", "-O3", "-shared", "-fPIC", "arm.c", "-lm", "-o", "arm.so"],
    cwd=folder,
    check=True,
)
arm = ctypes.CDLL(str(folder / "arm.so"))
Vector = ctypes.c_double * 1
torque = Vector()
# No memory: this model has no friction that remembers the past.
arm.arm_inverse_dynamics(None, Vector(0.3), Vector(1.0), Vector(2.0), torque)
expected = float(model.inverse_dynamics(*np.array([[0.3], [1.0], [2.0]]))[0])
truth = 0.5 * 2 + 9.81 * np.cos(0.3)
print(f"torque: {torque[0]:.6f} N m in C, {expected:.6f} in Python, true {truth:.6f}")
assert abs(torque[0] - expected) < 1e-5 * abs(expected)
