"""Learn while the robot moves: a two-link arm writes letters and learns its own dynamics.

The stepped clock makes the run reproducible; `clock="wall"` and more seconds run it in real time,
as `delan online` does. Run it: python examples/online_two_link.py
"""

from dataclasses import replace

import numpy as np

from delan import online

# The arm repeats `letters` while it learns from random weights; `test` follows with a frozen model.
learning = online.OnlineRun(
    robot="two-link", model="delan", letters="an", test="e", seconds=4, clock="stepped"
)
learned = online.run_online(learning)
baseline = online.run_online(replace(learning, model="none"))  # PD control alone

print("letter  PD alone  learning   (mean square tracking error of both joints [rad²])")
for pd, model in zip(baseline.train.segments, learned.train.segments, strict=True):
    print(f"{pd.label:6}  {pd.tracking.mse_sum:.1e}   {model.tracking.mse_sum:.1e}")

before = baseline.tracking["test"].mse_sum
after = learned.tracking["test"].mse_sum
print(f"test letter: {before:.1e} with PD alone, {after:.1e} with the learned model")
print(f"{learned.stats.swaps} models were used in turn, the first after", end=" ")
print(f"{learned.train.first_model_seconds:.1f} s")

model = learned.model  # as from `delan.load`: inverse and forward dynamics, inertia, energy
print(f"inertia at q = 0 [kg m²]: {model.mass_matrix(np.zeros(2)).round(3).tolist()}")
assert after < before / 10
