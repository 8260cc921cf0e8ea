"""Learn while the robot moves: a two-link arm writes letters under PD control and learns its own dynamics on the way.

By the stepped clock, the same every time; `clock="wall"` and more seconds make it real time (`delan online` does that).
Run it: python examples/online_two_link.py
"""

from dataclasses import replace

import numpy as np

import delan

# `letters` are written over and over while it learns from random weights, `test` after that with the model frozen.
writing = delan.OnlineRun(robot="two-link", feed_forward="delan", letters="an", test="e", seconds=4, clock="stepped")
learned = delan.run_online(writing)
alone = delan.run_online(replace(writing, feed_forward="none"))  # the same motions, with PD control and no model

print("letter  PD alone  learning   (mean square tracking error, both joints [rad²])")
for pd, learning in zip(alone.train.segments, learned.train.segments, strict=True):
    print(f"{pd.label:6}  {pd.tracking.mse_sum:.1e}   {learning.tracking.mse_sum:.1e}")

before, after = (one.test["test"].tracking.mse_sum for one in (alone, learned))
print(
    f"a letter never seen: {before:.1e} by PD alone, {after:.1e} with what was learned: {before / after:.0f} times less"
)
print(
    f"{learned.train.stats.swaps} models were taken into use, the first after {learned.train.first_model_seconds:.1f} s"
)

model = learned.model  # as from `delan.load`: inverse and forward dynamics, inertia, energy
print(f"its inertia at q = 0 [kg m²]: {model.mass_matrix(np.zeros(2)).round(3).tolist()}")
assert after < before / 10
