"""A picture of an arm as the axes of its joints and the lines between them, the learned one over the true one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d import proj3d

from ..drawing import INK, LEARNED, TRUTH, drawing
from ..models.geometry import LearnedArm

Point = Float[np.ndarray, "3"]

VIEW = (18.0, -55.0)
"""Elevation and azimuth of the eye [degrees]."""
AXIS = 0.07
"""How far an axis is drawn to either side of its joint, as a share of the picture."""
SAME_PLACE = 0.02
"""Joints nearer to each other than this share of the picture have one label."""
LINE, GAP = 0.04, 0.6
"""Height of a line of text, as a share of the picture, and of the gap between labels, in lines."""
LEGEND = 0.12
"""Height of the legend below the names, as a share of the picture."""


def draw_skeleton(learned: LearnedArm, true: LearnedArm | None = None) -> Figure:
    """The learned arm at joint positions zero in its own frame, and beneath it the true arm, if there is one."""
    arms = [learned] if true is None else [true, laid_over(learned, true)]
    low, high = _box(arms)
    size = float((high - low).max())
    with drawing(7.6, 5.6) as figure:
        figure.set_layout_engine("none")
        axes: Any = figure.add_axes((-0.02, 0.02, 0.76, 0.96), projection="3d", computed_zorder=False)
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
        axes.set_box_aspect(high - low, zoom=0.85)
        axes.view_init(*VIEW)
        _dress(axes, low, high)
        if true is not None:
            _draw(axes, arms[0], TRUTH, size, broad=2.4, layer=1)
        _draw(axes, arms[-1], LEARNED, size, broad=1.0, layer=3)
        figure.draw_without_rendering()  # settles where in the picture a point is seen
        _point_down(axes, arms[-1].gravity, np.array([low[0], high[1], high[2]]), size)
        _label(axes, arms[-1], size)
        _explain(axes, arms)
    return figure


def laid_over(learned: LearnedArm, true: LearnedArm) -> LearnedArm:
    """The learned arm where it lies best on the true one, of all the places that joint data leave it.

    It may turn about its first axis and slide along it, and be its mirror image; a sliding first joint has a direction
    and no place, so that the rest may slide across it, too.
    """
    candidates = [_turned(one, true) for one in (learned, _mirrored(learned))]
    return min(candidates, key=lambda one: _distance(one, true))


def _distance(one: LearnedArm, other: LearnedArm) -> float:
    """Of points [m] and directions together."""
    return float(np.abs(one.points - other.points).sum() + np.abs(one.directions - other.directions).sum())


def _mirrored(arm: LearnedArm) -> LearnedArm:
    """The arm in a mirror across its first axis; an axis of a turn gives a sense, not a way, and is mirrored as one."""
    flip = np.array([1.0, 1.0, -1.0])
    sign = np.array([[1.0] if kind == "prismatic" else [-1.0] for kind in arm.joints.kinds])
    return replace(arm, points=arm.points * flip, directions=sign * arm.directions * flip, gravity=arm.gravity * flip)


def _turned(arm: LearnedArm, true: LearnedArm) -> LearnedArm:
    """The arm after the turn about z and the shift that bring its points and directions nearest to those of another."""
    free = np.array([arm.joints.kinds[0] == "prismatic"] * 2 + [True])
    centres = [np.where(free, one.points.mean(axis=0), 0.0) for one in (arm, true)]
    ours, theirs = (
        np.concatenate([one.points - centre, one.directions]) for one, centre in zip((arm, true), centres, strict=True)
    )
    # Coordinates in the plane as complex numbers: the best turn is the phase of their product.
    angle = np.angle(np.sum((ours[:, 0] - 1j * ours[:, 1]) * (theirs[:, 0] + 1j * theirs[:, 1])))
    turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    return replace(
        arm,
        points=(arm.points - centres[0]) @ turn.T + centres[1],
        directions=arm.directions @ turn.T,
        gravity=turn @ arm.gravity,
    )


def _box(arms: Sequence[LearnedArm]) -> tuple[Point, Point]:
    """The lowest and highest corner of the picture; every side is long enough for its numbers."""
    points = np.concatenate([arm.points for arm in arms])
    middle, size = (points.max(axis=0) + points.min(axis=0)) / 2, np.ptp(points, axis=0)
    longest = max(float(size.max()), 0.1)
    half = (np.maximum(size, 0.35 * longest) + 2 * AXIS * longest) / 2
    return middle - half, middle + half


def _dress(axes: Any, low: Point, high: Point) -> None:
    for name, first, last in zip("xyz", low, high, strict=True):
        one = getattr(axes, f"{name}axis")
        one.set_pane_color((1.0, 1.0, 1.0, 0.0))
        # Marks of x and y near a corner would collide there.
        marks, edge = MaxNLocator(4).tick_values(first, last), (0.0 if name == "z" else 0.1) * (last - first)
        one.set_ticks(marks[(marks > first + edge) & (marks < last - edge)])
    axes.set(xlabel="x [m]", ylabel="y [m]")
    axes.set_zlabel("z [m]", rotation=90, labelpad=11)
    axes.zaxis.set_rotate_label(False)
    axes.zaxis.set_ticks_position("lower")  # away from the names
    axes.zaxis.set_label_position("lower")
    axes.tick_params(pad=-1)
    axes.tick_params(axis="z", pad=6)


def _draw(axes: Any, arm: LearnedArm, colour: str, size: float, *, broad: float, layer: int) -> None:
    """Links as lines from point to point, axes as short thick ones; those of sliding joints are dotted."""
    for body, point in zip(arm.bodies, arm.points, strict=True):
        if body.parent >= 0:
            ends = np.stack([arm.points[body.parent], point])
            axes.plot(*ends.T, color=colour, linewidth=1.6 * broad, solid_capstyle="round", zorder=layer)
    for kind, point, direction in zip(arm.joints.kinds, arm.points, arm.directions, strict=True):
        ends = point + AXIS * size * broad**0.3 * np.array([[-1.0], [1.0]]) * direction
        dots: Any = (0, (0.5, 0.4)) if kind == "prismatic" else "solid"
        axes.plot(
            *ends.T, color=colour, linewidth=4.5 * broad**0.7, linestyle=dots, solid_capstyle="butt", zorder=layer
        )
    axes.plot(*arm.points.T, "o", color=INK if layer > 1 else colour, markersize=3.5 * broad, zorder=layer + 1)


def _seen(axes: Any, point: Point) -> tuple[float, float]:
    """Where a point stands in the picture, as shares of its width and height."""
    x, y, z = point
    flat = proj3d.proj_transform(x, y, z, axes.get_proj())[:2]
    across, up = axes.transAxes.inverted().transform(axes.transData.transform(flat))
    return float(across), float(up)


def _point_down(axes: Any, gravity: Point, corner: Point, size: float) -> None:
    """An arrow along gravity in a corner of the picture."""
    if gravity.any():
        ends = [_seen(axes, corner + way * gravity) for way in (0.0, 0.16 * size / np.linalg.norm(gravity))]
        arrow = {"arrowstyle": "->", "color": INK, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=ends[1], xytext=ends[0], xycoords="axes fraction", arrowprops=arrow)
        above = ends[1][1] < ends[0][1]  # where the arrow is not
        axes.annotate(
            "gravity",
            xy=ends[0],
            xytext=(0, 3 if above else -3),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
            fontsize=8,
        )


def _label(axes: Any, arm: LearnedArm, size: float) -> None:
    """Names in a column beside the picture, one label for joints in one place, in the order of their heights there."""
    labels = [(_seen(axes, point), names) for names, point in _places(arm, SAME_PLACE * size)]
    lines = sum(len(names) + GAP for _, names in labels)
    line = min(LINE, (1 - LEGEND) / lines)
    top, lowest = 1.0, LEGEND + line * lines
    for at, names in sorted(labels, key=lambda label: -label[0][1]):
        height = line * (len(names) + GAP)
        top = min(top, max(at[1] + height / 2, lowest))
        lowest -= height
        axes.annotate(
            "\n".join(names),
            xy=at,
            xytext=(1.0, top - height / 2),
            xycoords="axes fraction",
            va="center",
            fontsize=8.5 * line / LINE,
            arrowprops={"arrowstyle": "-", "color": "#9aa5b1", "linewidth": 0.6, "shrinkA": 2, "shrinkB": 4},
        )
        top -= height


def _places(arm: LearnedArm, same: float) -> list[tuple[list[str], Point]]:
    """The joints, grouped by place."""
    places: list[tuple[list[str], Point]] = []
    for name, point in zip(arm.joints.names, arm.points, strict=True):
        here = next((names for names, other in places if np.linalg.norm(point - other) < same), None)
        if here is None:
            places.append(([name], point))
        else:
            here.append(name)
    return places


def _explain(axes: Any, arms: Sequence[LearnedArm]) -> None:
    dotted: Any = (0, (0.5, 0.4))
    looks: dict[str, Any] = {"axis of a turning joint": {"color": LEARNED, "linewidth": 4.5}}
    if "prismatic" in arms[-1].joints.kinds:
        looks["axis of a sliding joint"] = {"color": LEARNED, "linewidth": 4.5, "linestyle": dotted}
    looks["to the joint it hangs on"] = {"color": LEARNED, "linewidth": 1.6}
    if len(arms) > 1:
        looks["the true arm"] = {"color": TRUTH, "linewidth": 7}
    handles = [Line2D([], [], label=label, **look) for label, look in looks.items()]
    axes.figure.legend(handles=handles, loc="lower right", fontsize=8)
