"""Repairs that the check of a log advises: which errors need them, and the log read anew."""

from dataclasses import replace

import numpy as np
import pytest

from delan.errors import DataError, SettingsError
from delan.joints import Joints
from delan.logs.doctor import cases, examine
from delan.logs.doctor.finding import Finding
from delan.logs.options import LogOptions
from delan.logs.reading import read_log
from delan.logs.repair import Repair, find_repair
from tests.support.faulty_logs import EXCHANGED, clean, exchanged, fault

JOINTS = Joints(("a", "b", "c"), ("revolute",) * 3)


def write(path, log):
    np.savez(path, t=log.t, q=log.q, qd=log.qd, tau=log.tau, trajectory=log.trajectory)
    return path


@pytest.mark.parametrize(
    ("joints", "flipped"), [((1,), (1,)), ((0, 2), (0, 2)), ((0, 1, 2), "all")]
)
def test_reversed_torques_are_read_with_their_signs_changed(tmp_path, joints, flipped):
    log = clean("sliding", noisy=True)
    sign = np.ones(3)
    sign[list(joints)] = -1
    path = write(tmp_path / "log.npz", replace(log, tau=sign * log.tau))
    repair = find_repair(examine(replace(log, tau=sign * log.tau)))
    assert repair is not None
    assert not repair.beyond
    options = repair.options(LogOptions(), log.joints)
    assert options.flip == {"tau": flipped}
    np.testing.assert_array_equal(read_log(path, options).tau, log.tau)


@pytest.mark.parametrize(("item", "other"), EXCHANGED)
def test_exchanged_columns_are_read_in_order(tmp_path, item, other):
    log = clean("wam4", noisy=True)
    wrong = exchanged(log, item, other)
    repair = find_repair(examine(wrong))
    assert repair is not None
    options = repair.options(LogOptions(), log.joints)
    back = read_log(write(tmp_path / "log.npz", wrong), options)
    for name in ("q", "qd", "tau"):
        np.testing.assert_array_equal(getattr(back, name), getattr(log, name))


def test_columns_in_order_have_the_units_and_signs_of_their_quantity(tmp_path):
    """Degrees are of positions and a sign is of torques, under whatever names they stand."""
    log = clean("two-link", noisy=True)
    assert log.qd is not None
    in_degrees = replace(log, q=np.degrees(log.q), qd=np.degrees(log.qd), tau=-log.tau)
    path = write(tmp_path / "log.npz", exchanged(in_degrees, "q", "tau"))
    order = {"q": "tau", "tau": "q"}
    options = LogOptions(degrees=True, flip={"tau": "all"}, exchanged=order)
    back = read_log(path, options)
    np.testing.assert_allclose(back.q, log.q, rtol=1e-12)
    np.testing.assert_allclose(back.tau, log.tau, rtol=1e-12)


def test_an_exchange_needs_the_columns_and_whole_pairs(tmp_path):
    log = clean("two-link")
    np.savez(tmp_path / "log.npz", t=log.t, q=log.q, tau=log.tau)
    options = LogOptions(exchanged={"q": "qd", "qd": "q"})
    with pytest.raises(DataError, match="has no qd, whose columns are to be read as q"):
        read_log(tmp_path / "log.npz", options)
    with pytest.raises(SettingsError, match="exchanged must read each of q from one of q"):
        LogOptions(exchanged={"q": "qd"})


def test_reversed_velocities_are_left_out():
    log = clean("wam4", noisy=True)
    repair = find_repair(examine(fault("velocity sign", log, 2).recording))
    assert repair is not None
    assert repair.options(LogOptions(map={"q": "x"}), log.joints).map == {"q": "x", "qd": ""}
    assert repair.ways(LogOptions(), log.joints) == ("with --map qd=",)


def sign(joint: int | None, column: str = "tau", case=cases.NEGATIVE_INERTIA) -> Finding:
    return Finding(case, "error", joint, column, {"shown": (0,), "ratio": -1.0})


@pytest.mark.parametrize(
    ("given", "joints", "found", "flip", "ways"),
    [
        ({}, None, (1,), {"tau": (1,)}, ("with --flip tau:1",)),
        ({}, None, "all", {"tau": "all"}, ("with --flip tau",)),
        ({}, None, (0, 1, 2), {"tau": "all"}, ("with --flip tau",)),
        # Numbers are those of the log, not of the chosen joints.
        ({}, (2, 0), (1,), {"tau": (0,)}, ("with --flip tau:0",)),
        ({}, ("c", "a"), (0,), {"tau": ("c",)}, ("with --flip tau:c",)),
        # A sign that was changed already is changed back.
        ({"tau": (2,)}, None, (1,), {"tau": (1, 2)}, ("with --flip tau:1,2",)),
        ({"tau": ("b",)}, None, (1,), {}, ("without --flip tau:b",)),
        ({"tau": "all"}, None, "all", {}, ("without --flip tau",)),
        (
            {"tau": "all", "q": (0,)},
            None,
            (1,),
            {"tau": (0, 2), "q": (0,)},
            ("with --flip tau:0,2",),
        ),
    ],
)
def test_signs_are_changed_on_top_of_those_given(given, joints, found, flip, ways):
    findings = [sign(None, case=cases.ALL_REVERSED)]
    if found != "all":
        findings = [sign(joint) for joint in found]
    repair = find_repair(findings)
    assert repair is not None
    chosen = JOINTS
    if joints is not None:
        chosen = JOINTS.pick([JOINTS.names.index(j) if isinstance(j, str) else j for j in joints])
    options = LogOptions(flip=given, joints=joints)
    assert repair.options(options, chosen).flip == flip
    assert repair.ways(options, chosen) == ways


def test_a_description_decides_between_positions_and_torques():
    """It shows which of the two is reversed; the log alone shows only that one is."""
    of_log = sign(1)
    positions = sign(1, "q", cases.URDF_JOINT_SIGN)
    torques = sign(1, "tau", cases.URDF_TORQUE_SIGN)
    assert _flip(find_repair([of_log, positions])) == {"q": (1,)}
    assert _flip(find_repair([of_log, torques])) == {"tau": (1,)}
    # An axis of the description that points the other way: every model can be learned.
    assert find_repair([positions, torques]) is None


def _flip(repair: Repair | None) -> object:
    assert repair is not None
    return repair.options(LogOptions(), JOINTS).flip


def test_files_that_contradict_each_other_cannot_be_repaired_by_an_option():
    log = fault("one file reversed", clean("sliding", noisy=True), 1).recording
    repair = find_repair(examine(log))
    assert repair is not None
    assert [item.case for item in repair.beyond] == [cases.CONTRADICTING_SIGN]
    assert repair.ways(LogOptions(), log.joints) == ()


@pytest.mark.parametrize("name", ["torque late", "dead joint", "gap", "one file scaled"])
def test_other_findings_stop_no_fit(name):
    assert find_repair(examine(fault(name, clean("sliding", noisy=True), 1).recording)) is None


def test_warnings_stop_no_fit():
    assert find_repair([replace(sign(1), severity="warning")]) is None
