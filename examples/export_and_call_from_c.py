"""From a model to a controller in C: write the code, build it with the system's compiler, call it, compare.

The model is the pendulum of `fit_a_log.py`; `delan.load("arm.delan")` gives yours. `delan export` does the first half.
Run it: python examples/export_and_call_from_c.py
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
    sys.exit("this example needs a C compiler; `delan doctor` says how to get one")

# Learn a pendulum of 2 kg at 0.5 m from five swings.
t, size, rate = np.arange(0, 1, 0.02), np.linspace(0.5, 2, 5)[:, None], np.linspace(2, 5, 5)[:, None]
q, qd, qdd = size * np.sin(rate * t), size * rate * np.cos(rate * t), -size * rate**2 * np.sin(rate * t)
q, qd, qdd, tau = (signal.reshape(-1, 1) for signal in (q, qd, qdd, 0.5 * qdd + 9.81 * np.cos(q)))
label, joints = np.repeat(np.arange(5), len(t)), delan.Joints.revolute(1)
dataset = delan.Dataset(t=np.tile(t, 5), q=q, qd=qd, qdd=qdd, tau=tau, trajectory=label, joints=joints)
model = delan.fit(dataset, settings=delan.FitSettings(epochs=20)).model

# The folder has arm.h, arm.c, test.c, example.c and CMakeLists.txt: it needs nothing of Python.
folder = Path(tempfile.mkdtemp())
code = delan.export(model, folder, delan.ExportSettings(name="arm", precision="double"))
print(f"arm.h and arm.c have {', '.join(code.functions)}")
subprocess.run([compiler, "-std=c99", "-O3", "arm.c", "test.c", "-lm", "-o", "test"], cwd=folder, check=True)
tested = subprocess.run([folder / "test"], capture_output=True, text=True, check=True)  # the receiver's own test
print(tested.stdout.strip())

# Call it as a controller would: void arm_inverse_dynamics(memory, q, qd, qdd, tau), of double arrays.
subprocess.run(
    [compiler, "-std=c99", "-O3", "-shared", "-fPIC", "arm.c", "-lm", "-o", "arm.so"], cwd=folder, check=True
)
arm = ctypes.CDLL(str(folder / "arm.so"))
Vector = ctypes.c_double * 1
q, qd, qdd, tau = Vector(0.3), Vector(1.0), Vector(2.0), Vector()
arm.arm_inverse_dynamics(None, q, qd, qdd, tau)  # this model's friction remembers nothing: no memory
wanted = float(model.inverse_dynamics(*np.array([[0.3], [1.0], [2.0]]))[0])
print(f"torque: {tau[0]:.6f} N m in C, {wanted:.6f} in Python, {0.5 * 2 + 9.81 * np.cos(0.3):.6f} in truth")
assert abs(tau[0] - wanted) < 1e-5 * abs(wanted)
