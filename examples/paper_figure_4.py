# %% [markdown]
# # Figure 4 of the paper, from data to picture
# A two-link arm writes letters; a DeLaN network learns the torque and is asked for its three parts,
# none of which it was shown. Then both networks learn from few letters and from more.
# Cells are in the percent format, which VS Code, Jupyter (jupytext) and Spyder open as a notebook.

# %%
import matplotlib
import numpy as np

import delan
from delan.paper import letter_log, seed_statistics, shuffled_letters

matplotlib.use("Agg")  # leave this line out in a notebook
import matplotlib.pyplot as plt

# %% [markdown]
# ## Data: joint motion, torques, and the true parts, which only the picture uses

# %%
LETTERS = "ade"
log = letter_log(LETTERS + "bcglmopq")
print(len(log), "samples of", log.dof, "joints")

# %% [markdown]
# ## One network, trained on the torque alone

# %%
QUICK = delan.FitSettings(training=delan.TrainingSettings(epochs=40))
model = delan.fit(log, "delan", settings=QUICK).model
shown = log.select(range(len(LETTERS)))
parts = [model.components(*motion) for motion in zip(shown.q, shown.qd, shown.qdd, strict=True)]
learned = {name: np.array([getattr(part, name) for part in parts]) for name in shown.truth}

# %% [markdown]
# ## Test error over the number of training letters, for both networks and several seeds

# %%
KNOWN, SEEDS = (1, 4), range(2)
errors = {"delan": [], "feedforward": []}
for name, rows in errors.items():
    for n in KNOWN:
        for seed in SEEDS:
            order = shuffled_letters(seed)
            fit = delan.fit(letter_log(order[:n]), name, settings=QUICK, seed=seed)
            scores = delan.evaluate(fit.model, letter_log(order[-4:]), rollouts=False)
            rows.append(scores.torque.mse_sum)
tables = {name: np.reshape(rows, (len(KNOWN), len(SEEDS))) for name, rows in errors.items()}
for name, table in tables.items():
    for n, row in zip(KNOWN, table, strict=True):
        found = seed_statistics(row)
        assert found is not None  # every fit has a finite error
        print(f"{name}, {n} letters: {found.iqm:.2g} N² m², 95 % interval {found.interval}")

# %% [markdown]
# ## The picture: torque and parts of joint 0 in letters a, d, e; the test error on the right

# %%
figure, axes = plt.subplots(1, 5, figsize=(13, 2.6), layout="constrained")
true = {"torque": shown.tau, **shown.truth}
learned["torque"] = np.sum(list(learned.values()), axis=0)
for panel, name in zip(axes, true, strict=False):
    panel.plot(true[name][:, 0], "k", linewidth=2, label="true")
    panel.plot(learned[name][:, 0], "r--", linewidth=1, label="DeLaN")
    panel.set_title(f"{name} [N m]", loc="left")
for name, table in tables.items():
    axes[-1].semilogy(KNOWN, np.median(table, axis=1), "o-", label=name)
axes[-1].set_title("test MSE over n", loc="left")
for panel in (axes[0], axes[-1]):
    panel.legend()
figure.savefig("figure_4.png", dpi=100)
print("written to figure_4.png")
