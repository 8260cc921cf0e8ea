"""When the starts of a chain agree on a valley, and starts that diverge."""

from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from delan.joints import Joints
from delan.models.chain import looseness
from delan.models.model import Model
from delan.solvers.linearised import one_blas_thread
from delan.solvers.stages import _movable, _replaced, _settled, agreed
from tests.support.members import actuator, chain


def losses(*pairs: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Of starts, on validation and in training; more are still to come."""
    known = np.array([*pairs, (np.inf, np.inf), (np.inf, np.inf)])
    return known[:, 0], known[:, 1]


def test_two_starts_that_do_alike_on_validation_agree():
    assert agreed(*losses((0.102, 0.052), (0.099, 0.055)))
    assert not agreed(*losses((0.102, 0.052), (0.05, 0.03)))


def test_two_that_do_alike_in_training_agree_if_what_they_learned_holds():
    assert agreed(*losses((0.104, 0.0145), (0.0047, 0.0041), (0.0067, 0.0042)))
    # Two starts in the same wrong valley.
    assert not agreed(*losses((0.104, 0.0145), (0.09, 0.0148)))


def test_one_start_alone_agrees_with_nobody():
    assert not agreed(*losses((0.004, 0.004)))
    assert not agreed(*losses((0.004, 0.004), (0.69, 0.19)))


@pytest.mark.parametrize("wrong", [jnp.nan, jnp.inf])
def test_a_start_that_went_astray_is_left_as_it_is(wrong):
    model = Model(chain(Joints.revolute(3)), actuator(Joints.revolute(3), "viscous"))
    at_rest = _settled(model).chain
    assert at_rest is not None
    assert np.abs(looseness(at_rest)).max() < 1e-9
    bent = chain(Joints.revolute(3)).turn.at[1, 0, 0].set(wrong)
    astray = eqx.tree_at(lambda model: model.mechanics.turn, model, bent)
    assert _settled(astray) is astray


def test_a_hop_places_one_joint_anew_and_leaves_the_others():
    joints = Joints.revolute(4)
    model = Model(chain(joints), actuator(joints, "viscous"))
    before = model.chain
    assert before is not None
    assert list(_movable(model)) == [0, 1, 2]
    rng = np.random.default_rng(0)
    turned = placed = 0
    for _ in range(20):
        after = _replaced(model, 1, rng).chain
        assert after is not None
        changed = [k for k in range(3) if not np.array_equal(before.turn[k], after.turn[k])]
        assert changed == [1]
        moved = [k for k in range(3) if not np.array_equal(before.shift[k], after.shift[k])]
        assert set(moved) <= {1}
        placed += len(moved)
        turned += 1 - len(moved)
        assert eqx.tree_equal(before.factor, after.factor)
    assert turned
    assert placed


def test_a_seed_gives_the_same_numbers_in_any_thread():
    """Factors of larger matrices depend on the number of threads of the BLAS."""
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((900, 230))
    matrix = columns.T @ columns

    @one_blas_thread()
    def factor(_: int) -> np.ndarray:
        return np.linalg.cholesky(matrix)

    with one_blas_thread(), ThreadPoolExecutor(3) as pool:
        here = factor(0)
        for there in pool.map(factor, range(6)):
            np.testing.assert_array_equal(here, there)
