"""Arrays turned so that time is their first axis: logs also hold (joints × samples)."""

from collections import Counter
from collections.abc import Mapping

from ..joints import MOST_JOINTS
from .column_names import measures

Shape = tuple[int, ...]

# Quantities without rows: one number, or one per joint.
GAINS = ("kp", "kd")


def time_first(shapes: Mapping[str, Shape], *, vectors: bool = False) -> dict[str, Shape]:
    """Return shapes with time along the first axis, by the lengths of the arrays of each group.

    With `vectors`, n × 1 and 1 × n are columns of single numbers: MATLAB has no arrays of one axis.
    """
    upright = {}
    counts = {}
    for name, shape in shapes.items():
        group = name.rpartition("/")[0]
        if group not in counts:
            counts[group] = _sample_count(shapes, group)
        samples = counts[group]
        upright[name] = shape
        if vectors and len(shape) == 2 and min(shape) == 1 and max(shape) > 1:
            upright[name] = (max(shape),)
        elif len(shape) == 2 and shape[0] != samples and shape[1] == samples:
            upright[name] = shape[::-1]
    return upright


def gain_names(shapes: Mapping[str, Shape]) -> frozenset[str]:
    """Return the arrays that hold gains of the drives and have no rows."""
    names = set()
    for name, shape in shapes.items():
        group, _, leaf = name.rpartition("/")
        if measures(leaf) not in GAINS:
            continue
        lengths = [length for length in shape if length != 1]
        if not lengths:
            names.add(name)
        elif len(lengths) == 1 and lengths[0] <= MOST_JOINTS:
            others = {other: shapes[other] for other in shapes if other != name}
            if lengths[0] != _sample_count(others, group):
                names.add(name)
    return frozenset(names)


def _sample_count(shapes: Mapping[str, Shape], group: str) -> int:
    """Return the number of samples in a group: that of its times, or the commonest length."""
    inside = {}
    outside = {}
    for name, shape in shapes.items():
        place, _, leaf = name.rpartition("/")
        if len(shape) not in (1, 2) or 0 in shape or measures(leaf) in GAINS:
            continue
        if place == group:
            inside[leaf] = shape
        elif group.startswith(f"{place}/") or not place:
            outside[leaf] = shape
    lengths = {length for shape in inside.values() for length in shape}
    for arrays in (inside, outside):
        for leaf, shape in arrays.items():
            is_vector = len(shape) == 1 or min(shape) == 1
            if is_vector and measures(leaf) == "t" and max(shape) in lengths:
                return max(shape)
    votes = Counter(max(shape) for shape in inside.values())
    return max(votes, key=lambda length: (votes[length], length), default=0)
