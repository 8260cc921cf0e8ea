"""Bounds on the torque of a network in boxes of positions: intervals through its layers.

Values are followed with their first and second derivatives by the joints (`_Jet`), as intervals
over each box and as numbers in its middle; the mean value theorem narrows the intervals by both.
The intervals hold what is computed in single precision, as the C code computes: large terms that
cancel leave rounding errors, which large weights behind them make torques of.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from ..models.dynamics import Normalisation
from ..models.layers import Perceptron
from ..models.networks import LagrangianNetwork, input_scale, output_scale
from .bounds import Boxes, Parts

# Relative rounding error of a number in single precision, and how many such errors a function of
# the C library or a product has at most.
ROUNDED = float(np.finfo(np.float32).eps) / 2
FEW = 8


class _Interval(NamedTuple):
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def around(cls, middle: np.ndarray, reach: np.ndarray) -> "_Interval":
        return cls(middle - reach, middle + reach)

    @property
    def size(self) -> np.ndarray:
        """The largest absolute value."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def plus(self, other: "_Interval") -> "_Interval":
        return _Interval(self.low + other.low, self.high + other.high)

    def times(self, other: "_Interval") -> "_Interval":
        products = (
            self.low * other.low,
            self.low * other.high,
            self.high * other.low,
            self.high * other.high,
        )
        low = np.minimum(np.minimum(products[0], products[1]), np.minimum(*products[2:]))
        high = np.maximum(np.maximum(products[0], products[1]), np.maximum(*products[2:]))
        return _Interval(low, high)

    def within(self, other: "_Interval") -> "_Interval":
        """Return what both hold; rounding must not leave it empty."""
        low = np.maximum(self.low, other.low)
        high = np.minimum(self.high, other.high)
        return _Interval(np.minimum(low, high), np.maximum(low, high))

    def mapped(self, weight: np.ndarray, bias: np.ndarray | float = 0.0) -> "_Interval":
        """Return W x + b along the last axis."""
        middle = (self.low + self.high) / 2 @ weight.T + bias
        reach = (self.high - self.low) / 2 @ np.abs(weight).T
        return _Interval.around(middle, reach)

    def picked(self, index: Any) -> "_Interval":
        return _Interval(self.low[index], self.high[index])

    def widened(self, reach: np.ndarray) -> "_Interval":
        return _Interval(self.low - reach, self.high + reach)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return (1 + np.tanh(x / 2)) / 2


class _Curve(NamedTuple):
    """A function with its two derivatives, and the places where each of the three turns.

    With a period, these places repeat. A curve that is not smooth has a slope that jumps.
    """

    orders: tuple[Callable[[np.ndarray], np.ndarray], ...]
    turns: tuple[tuple[float, ...], ...]
    period: float | None = None
    smooth: bool = True

    def over(self, x: _Interval, order: int) -> _Interval:
        """Return the range of a derivative over an interval."""
        function = self.orders[order]
        ends = function(x.low), function(x.high)
        low = np.minimum(*ends)
        high = np.maximum(*ends)
        for place in self._places(x, order):
            inside = (x.low <= place) & (place <= x.high)
            value = function(place)
            low = np.where(inside, np.minimum(low, value), low)
            high = np.where(inside, np.maximum(high, value), high)
        return _Interval(low, high)

    def _places(self, x: _Interval, order: int) -> list[np.ndarray]:
        """Return the places where a derivative turns; of a period, the first two of an interval."""
        places = []
        for place in self.turns[order]:
            if self.period is None:
                places.append(np.full_like(x.low, place))
            else:
                first = place + self.period * np.ceil((x.low - place) / self.period)
                places += [first, first + self.period]
        return places


# The derivatives of x σ(x) by s = σ(x): s + x s (1 − s), and s (1 − s) (2 + x (1 − 2 s)).
_CURVES = {
    "tanh": _Curve(
        (np.tanh, lambda x: 1 - np.tanh(x) ** 2, lambda x: -2 * np.tanh(x) * (1 - np.tanh(x) ** 2)),
        # The last turns where tanh² = 1/3.
        ((), (0.0,), (-0.6584789484624084, 0.6584789484624084)),
    ),
    "softplus": _Curve(
        (lambda x: np.logaddexp(0, x), _sigmoid, lambda x: _sigmoid(x) * _sigmoid(-x)),
        ((), (), (0.0,)),
    ),
    "relu": _Curve(
        (lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0, lambda x: np.zeros_like(x)),
        ((), (), ()),
        smooth=False,
    ),
    "silu": _Curve(
        (
            lambda x: x * _sigmoid(x),
            lambda x: _sigmoid(x) * (1 + x * _sigmoid(-x)),
            lambda x: _sigmoid(x) * _sigmoid(-x) * (2 + x * (1 - 2 * _sigmoid(x))),
        ),
        (
            (-1.2784645427610738,),
            (-2.3993572805154317, 2.3993572805154317),
            (-3.435841, 0.0, 3.435841),
        ),
    ),
    "sin": _Curve(
        (np.sin, np.cos, lambda x: -np.sin(x)),
        ((np.pi / 2,), (0.0,), (np.pi / 2,)),
        np.pi,
    ),
}


class _Jet(NamedTuple):
    """A value with its derivatives by the joints, in the middle of each box and all over it.

    Attributes:
        at, rate: value and first derivatives in the middle, with joints along the second axis.
        value, slope, bend: intervals of the value, the first and the second derivatives over the
            box; pairs of joints are along the second axis of the last. Those of value and slope
            hold what is computed as well as what is exact.
        value_error, slope_error: bounds on the rounding errors of value and slope.
    """

    at: np.ndarray
    rate: np.ndarray
    value: _Interval
    slope: _Interval
    bend: _Interval
    value_error: np.ndarray
    slope_error: np.ndarray

    def tightened(self, reach: Boxes, smooth: bool) -> "_Jet":
        """Return the jet with the intervals that the mean value theorem leaves."""
        far = (self.slope.size * reach[:, :, None]).sum(axis=1)
        value = self.value.within(_Interval.around(self.at, far + self.value_error))
        if not smooth:
            return self._replace(value=value)
        dof = reach.shape[1]
        far = np.zeros_like(self.rate)
        for row, (i, j) in enumerate(_pairs(dof)):
            size = self.bend.size[:, row]
            far[:, i] += size * reach[:, j, None]
            if i != j:
                far[:, j] += size * reach[:, i, None]
        slope = self.slope.within(_Interval.around(self.rate, far + self.slope_error))
        return self._replace(value=value, slope=slope)

    def mapped(self, weight: np.ndarray, bias: np.ndarray) -> "_Jet":
        """Return W x + b."""
        size = np.abs(weight).T
        # Of a sum in any order, each term is rounded at most once with every other one.
        each = ROUNDED * (len(size) + FEW)
        value_error = each * (self.value.size @ size + np.abs(bias))
        slope_error = each * (self.slope.size @ size)
        return _Jet(
            self.at @ weight.T + bias,
            self.rate @ weight.T,
            self.value.mapped(weight, bias).widened(value_error),
            self.slope.mapped(weight).widened(slope_error),
            self.bend.mapped(weight),
            self.value_error @ size + value_error,
            self.slope_error @ size + slope_error,
        )

    def curved(self, curve: _Curve) -> "_Jet":
        """Return f(x), with f′ x_i and f″ x_i x_j + f′ x_ij as its derivatives."""
        value = curve.over(self.value, 0)
        slope = curve.over(self.value, 1)
        bent = curve.over(self.value, 2)
        dof = self.rate.shape[1]
        first, second = np.array(_pairs(dof)).T
        product = self.slope.picked(np.s_[:, first]).times(self.slope.picked(np.s_[:, second]))
        slopes = slope.picked(np.s_[:, None])
        rates = slopes.times(self.slope)
        value_error = FEW * ROUNDED * value.size
        slope_error = FEW * ROUNDED * rates.size
        turned = bent.size[:, None] * self.value_error[:, None] * self.slope.size
        return _Jet(
            curve.orders[0](self.at),
            curve.orders[1](self.at)[:, None] * self.rate,
            value.widened(value_error),
            rates.widened(slope_error),
            bent.picked(np.s_[:, None]).times(product).plus(slopes.times(self.bend)),
            slope.size * self.value_error + value_error,
            turned + slopes.size * self.slope_error + slope_error,
        )

    def picked(self, outputs: slice) -> "_Jet":
        """Return some of the outputs."""
        last = (Ellipsis, outputs)
        return _Jet(
            self.at[last],
            self.rate[last],
            self.value.picked(last),
            self.slope.picked(last),
            self.bend.picked(last),
            self.value_error[last],
            self.slope_error[last],
        )


def _pairs(dof: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(dof) for j in range(i, dof)]


def _features(network: LagrangianNetwork, middle: Boxes, reach: Boxes) -> _Jet:
    """Return the inputs of the trunk: cosines and sines of angles, then positions."""
    circular, size, centre = input_scale(network, _units(network), np)
    turning = np.flatnonzero(circular).tolist()
    straight = np.flatnonzero(~circular).tolist()
    count, dof = middle.shape
    inputs = 2 * len(turning) + len(straight)
    pairs = _pairs(dof)
    at = np.zeros((count, inputs))
    rate = np.zeros((count, dof, inputs))
    low, high = at.copy(), at.copy()
    slope = (rate.copy(), rate.copy())
    bend = (np.zeros((count, len(pairs), inputs)), np.zeros((count, len(pairs), inputs)))
    largest, slope_error = np.zeros_like(at), np.zeros_like(rate)
    angles = _Interval.around(middle, reach)
    wave = _CURVES["sin"]
    for half, phase in enumerate((np.pi / 2, 0.0)):
        for place, joint in enumerate(turning):
            column = half * len(turning) + place
            angle = _Interval(angles.low[:, joint] + phase, angles.high[:, joint] + phase)
            at[:, column] = size[joint] * np.sin(middle[:, joint] + phase)
            rate[:, joint, column] = size[joint] * np.cos(middle[:, joint] + phase)
            largest[:, column] = size[joint]
            slope_error[:, joint, column] = size[joint]
            ranges = [wave.over(angle, order) for order in range(3)]
            row = pairs.index((joint, joint))
            for side in range(2):
                (low, high)[side][:, column] = size[joint] * ranges[0][side]
                slope[side][:, joint, column] = size[joint] * ranges[1][side]
                bend[side][:, row, column] = size[joint] * ranges[2][side]
    for place, joint in enumerate(straight):
        column = 2 * len(turning) + place
        gain = float(size[joint])
        offset = float(centre[joint])
        at[:, column] = gain * (middle[:, joint] - offset)
        low[:, column] = gain * (angles.low[:, joint] - offset)
        high[:, column] = gain * (angles.high[:, joint] - offset)
        largest[:, column] = abs(gain) * (angles.size[:, joint] + abs(offset))
        slope_error[:, joint, column] = abs(gain)
        for side in (rate, *slope):
            side[:, joint, column] = gain
    value_error = FEW * ROUNDED * largest
    slope_error *= FEW * ROUNDED
    return _Jet(
        at,
        rate,
        _Interval(low, high).widened(value_error),
        _Interval(*slope).widened(slope_error),
        _Interval(*bend),
        value_error,
        slope_error,
    )


def _units(network: LagrangianNetwork) -> Normalisation:
    """Return the normalisation of a network in NumPy's float64."""
    return jax.tree.map(lambda values: np.asarray(values, dtype=float), network.normalisation)


def _numbers(layer: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(layer.weight, dtype=float), np.asarray(layer.bias, dtype=float)


def _hidden(trunk: Perceptron, jet: _Jet, reach: Boxes) -> _Jet:
    curve = _CURVES[trunk.activation]
    for layer in trunk.layers:
        jet = jet.mapped(*_numbers(layer)).tightened(reach, curve.smooth)
        jet = jet.curved(curve).tightened(reach, curve.smooth)
    return jet


def network_bound(network: LagrangianNetwork, middle: Boxes, reach: Boxes) -> Parts:
    """Return bounds in boxes of positions, given by their middles and half their lengths.

    The factor of the inertia and the potential are followed through the layers with their first and
    second derivatives; the mean value theorem then narrows values and first derivatives.
    """
    dof = middle.shape[1]
    smooth = _CURVES[network.settings.activation].smooth
    hidden = _hidden(network.trunk, _features(network, middle, reach), reach)
    diagonal = hidden.mapped(*_numbers(network.diagonal)).tightened(reach, smooth)
    positive = _CURVES[network.settings.diagonal]
    diagonal = diagonal.curved(positive).tightened(reach, smooth and positive.smooth)
    lower = hidden.mapped(*_numbers(network.lower)).tightened(reach, smooth)
    gain = output_scale(network, _units(network), np).factor
    factor = np.zeros((2, len(middle), dof, dof))
    rates = np.zeros((2, len(middle), dof, dof, dof))
    rows, columns = np.tril_indices(dof, -1)
    own = np.arange(dof)
    for side in range(2):
        factor[side][:, own, own] = gain * (diagonal.value[side] + network.settings.offset)
        factor[side][:, rows, columns] = gain[rows] * lower.value[side]
        rates[side][:, :, own, own] = gain * diagonal.slope[side]
        rates[side][:, :, rows, columns] = gain[rows] * lower.slope[side]
    entries = _Interval(*factor)
    inertia = _product(entries, entries)
    along = _Interval(*rates)
    half = _product(along, entries.picked(np.s_[:, None]))
    # ∂_i H = ∂_i L Lᵀ + (∂_i L Lᵀ)ᵀ, with i along the second axis.
    change = half.plus(_Interval(half.low.swapaxes(2, 3), half.high.swapaxes(2, 3)))
    return Parts(
        inertia.size,
        _christoffel(change),
        _network_gravity(network, hidden, reach, smooth),
        (inertia.low + inertia.high) / 2,
        (inertia.high - inertia.low) / 2,
    )


def steepest_unit(network: LagrangianNetwork, lower: np.ndarray, upper: np.ndarray) -> float:
    """Return a bound on how fast the input of any unit changes in a box, per rad or m."""
    jet = _features(network, ((lower + upper) / 2)[None], ((upper - lower) / 2)[None])
    steepest = 0.0
    for layer in network.trunk.layers:
        jet = jet.mapped(*_numbers(layer))
        steepest = max(steepest, float(np.linalg.norm(jet.slope.size[0], axis=0).max()))
        jet = jet.curved(_CURVES[network.settings.activation])
    return steepest


def largest_number(network: LagrangianNetwork, lower: np.ndarray, upper: np.ndarray) -> float:
    """Return a bound on all numbers in the layers and their slopes, anywhere in a box."""
    middle = ((lower + upper) / 2)[None]
    reach = ((upper - lower) / 2)[None]
    jet = _features(network, middle, reach)
    curve = _CURVES[network.settings.activation]
    largest = 0.0
    for layer in network.trunk.layers:
        weight, bias = _numbers(layer)
        # Sums in any order stay below the sum of absolute values.
        sums = (jet.value.size @ np.abs(weight).T + np.abs(bias), jet.slope.size @ np.abs(weight).T)
        largest = max(largest, *(float(part.max()) for part in sums))
        jet = jet.mapped(weight, bias).curved(curve)
    for head in (network.diagonal, network.lower, network.gravity):
        weight, bias = _numbers(head)
        sums = (jet.value.size @ np.abs(weight).T + np.abs(bias), jet.slope.size @ np.abs(weight).T)
        largest = max(largest, *(float(part.max(initial=0.0)) for part in sums))
    scale = output_scale(network, _units(network), np)
    return largest * max(1.0, float(scale.factor.max()), float(scale.gravity.max()))


def _product(first: _Interval, second: _Interval) -> _Interval:
    """Return A Bᵀ of the last two axes."""
    product = first.picked(np.s_[..., :, None, :]).times(second.picked(np.s_[..., None, :, :]))
    return _Interval(product.low.sum(axis=-1), product.high.sum(axis=-1))


def _christoffel(change: _Interval) -> np.ndarray:
    """Return bounds on |c_kij|, c_kij = ½ (∂_i H_kj + ∂_j H_ki − ∂_k H_ij)."""
    by_i = [part.transpose(0, 2, 1, 3) for part in change]
    by_j = [part.transpose(0, 2, 3, 1) for part in change]
    low = (by_i[0] + by_j[0] - change.high) / 2
    high = (by_i[1] + by_j[1] - change.low) / 2
    return _Interval(low, high).size


def _network_gravity(
    network: LagrangianNetwork, hidden: _Jet, reach: Boxes, smooth: bool
) -> np.ndarray:
    scale = output_scale(network, _units(network), np).gravity
    head = hidden.mapped(*_numbers(network.gravity)).tightened(reach, smooth)
    if network.settings.gravity == "potential":
        return scale[0] * head.slope.size[:, :, 0]
    return scale * head.value.size
