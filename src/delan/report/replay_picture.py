"""A replayed log as a table, and as a picture with a row of panels for each joint."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import INK, LEARNED, TRUTH, drawing
from ..simulation.replay import LogReplay

# Size of a panel [inches].
WIDTH = 3.1
HEIGHT = 1.35
# Windows drawn, evenly spaced over the log.
SHOWN = 3


def draw_replay(replay: LogReplay) -> Figure:
    """Return recorded and simulated positions in some windows, and the error against time."""
    joints = replay.joints
    chosen = np.unique(np.linspace(0, len(replay.starts) - 1, SHOWN).astype(int))
    t = replay.step * np.arange(1, replay.paths.shape[1] + 1)
    errors = np.sqrt(np.nanmean((replay.paths - replay.recorded) ** 2, axis=0))
    with drawing(WIDTH * (len(chosen) + 1), HEIGHT * joints.dof + 0.6) as figure:
        axes = figure.subplots(joints.dof, len(chosen) + 1, squeeze=False, sharex=True)
        for joint, (row, units) in enumerate(zip(axes, joints.units, strict=True)):
            for panel, window in zip(row, chosen, strict=False):
                panel.plot(t, replay.recorded[window, :, joint], color=TRUTH, linewidth=3)
                panel.plot(t, replay.paths[window, :, joint], color=LEARNED, linewidth=1.2)
                _around(panel, replay.recorded[window, :, joint])
            row[0].set_ylabel(f"{joints.names[joint]} [{units.q}]")
            row[-1].plot(t, errors[:, joint], color=INK, linewidth=1.2)
            row[-1].set_ylabel(f"RMS error [{units.q}]")
            row[-1].set_ylim(bottom=0)
        for panel, window in zip(axes[0], chosen, strict=False):
            panel.set_title(f"from {replay.starts[window]:.1f} s of the log")
        axes[0, -1].set_title(f"error over {len(replay.starts)} starts")
        axes[0, 0].legend(["recorded", "simulated"], loc="best")
        for panel in axes[-1]:
            panel.set_xlabel("time [s]")
    return figure


def replay_rows(replay: LogReplay) -> Iterator[dict[str, Any]]:
    """Yield how far the simulated positions of each joint stray, a cell for each horizon."""
    for joint, name in enumerate(replay.joints.names):
        cells = []
        for horizon, error in replay.open_loop.items():
            unit = replay.joints.units[joint].q
            cells.append(
                {
                    "horizon": f"{horizon:g} s",
                    "error": f"{error.rmse[joint]:.2g} {unit}",
                    "over_hold": f"{error.over_hold[joint]:.2g}",
                }
            )
        yield {"joint": name, "cells": cells}


def _around(panel: Axes, recorded: np.ndarray) -> None:
    """Limit the axis to the recorded motion and as much again: a path that runs away hides it."""
    low = float(np.nanmin(recorded))
    high = float(np.nanmax(recorded))
    margin = max(high - low, 1e-3)
    panel.set_ylim(low - margin, high + margin)
