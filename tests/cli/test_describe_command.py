"""The description of a fitted chain: its geometry, identifiable links, a picture, and a URDF."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from matplotlib.text import Text
from scipy.spatial.transform import Rotation
from typer.testing import CliRunner

from delan import storage
from delan.cli.main import app
from delan.errors import ModelError
from delan.identification.identifiable_axes import identifiable_axes
from delan.identification.identifiable_links import identifiable_links, in_plain_frames
from delan.identification.physical_links import is_physical
from delan.joints import JointLimits, Joints
from delan.models.chain import with_third_column
from delan.models.friction import Friction, FrictionSettings, MotorPair
from delan.models.geometry import from_rigid_body, learned_arm
from delan.models.model import Model
from delan.models.networks import FeedForwardNetwork, LagrangianNetwork
from delan.models.rigid_body import LINK_PARAMETERS, RigidBody
from delan.report.robot_figures import draw_skeleton, laid_over
from delan.robots import from_urdf
from delan.robots.arms import DRIVE_INERTIA, WAM7
from delan.robots.robot_files import urdf_of
from tests.support.members import chain
from tests.support.random_arms import random_arm, rigid

SLIDING = ("revolute", "prismatic", "revolute", "continuous", "prismatic", "revolute")
TREE = (-1, 0, 1, 1, 3, 0)
PAIR = MotorPair(4, 5, 0.6)
TERMS = ("armature", "viscous", "coulomb", "stribeck", "offset")


def wam() -> RigidBody:
    return RigidBody.from_urdf(WAM7.urdf(), armature=np.array(DRIVE_INERTIA))


def arms() -> dict[str, RigidBody]:
    return {
        "wam": wam(),
        "serial": rigid(random_arm(("revolute",) * 4, seed=2)[0]),
        "sliding": rigid(random_arm(SLIDING, seed=1)[0]),
        "tree": rigid(random_arm(SLIDING, seed=3, parents=TREE)[0]),
    }


def motion(dof: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(3, dof))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Model files, and the URDFs of the WAM and of another arm."""
    folder = tmp_path_factory.mktemp("models")
    exact = from_rigid_body(wam())
    storage.save(exact, folder / "wam.delan")
    (folder / "wam.urdf").write_text(WAM7.urdf())
    (folder / "short.urdf").write_text(WAM7.locked(4, name="wam4").urdf())
    settings = FrictionSettings(terms=TERMS, pairs=(PAIR,), width=0.02)
    head = Friction.of(exact.joints, settings, np.arange(40.0).reshape(5, 8) / 10)
    storage.save(Model(exact, jax.tree.map(jax.numpy.asarray, head)), folder / "rubbing.delan")
    made = chain(Joints.revolute(3), seed=0)
    storage.save(
        eqx.tree_at(lambda item: item.turn, made, made.turn.at[1, 0, 1].add(2.0)),
        folder / "bent.delan",
    )
    two = Joints.revolute(2)
    storage.save(LagrangianNetwork(two, key=jax.random.key(0)), folder / "network.delan")
    storage.save(FeedForwardNetwork(two, key=jax.random.key(0)), folder / "feedforward.delan")
    return folder


def described(folder: Path, name: str, *options: object) -> Any:
    return CliRunner().invoke(app, ["describe", str(folder / name), *map(str, options)])


def payload_of(folder: Path, name: str, *options: object) -> dict[str, Any]:
    shown = described(folder, name, "--json", *options)
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)


def test_the_table_shows_the_wam_as_it_was_drawn(folder):
    shown = described(folder, "wam.delan")
    assert shown.exit_code == 0, shown.output
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.stdout.splitlines()]
    assert ["base_yaw", "base", "–", "–", "–"] in rows
    assert ["shoulder_pitch", "base_yaw", "90.000", "0.00000", "–"] in rows
    assert ["elbow_pitch", "shoulder_yaw", "90.000", "0.04500", "0.55000"] in rows
    assert ["wrist_pitch", "wrist_yaw", "90.000", "0.00000", "0.30000"] in rows
    assert ["elbow_pitch", "armature", "0.03462", "", "kg m²"] in rows
    assert [
        "base_yaw",
        "armature",
        "–",
        "",
        "kg m²",
    ] in rows  # no motion tells it from the link's own Izz
    text = " ".join(shown.stdout.split())
    assert "7 joints, 194 weights" in text
    assert "Gravity: 9.81 m/s², 180.00° from the first axis" in text
    assert "its mirror image" in text
    assert "gravity is taken as 9.81 m/s²" in text
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_a_script_gets_all_of_it(folder, tmp_path):
    found = payload_of(
        folder, "wam.delan", "--plot", tmp_path / "arm.png", "--out", tmp_path / "arm.urdf"
    )
    assert found.keys() == {
        *("file", "kind", "scores", "seed", "log", "versions", "fit", "joints", "weights"),
        *("geometry", "links", "springs", "friction", "free", "notes"),
    }
    assert found["kind"] == "lagrangian_chain"
    assert found["joints"][0] == {"name": "base_yaw", "kind": "revolute"}
    axes = {axis["joint"]: axis for axis in found["geometry"]["axes"]}
    assert axes["elbow_pitch"]["offset"] == pytest.approx(0.55)
    assert axes["elbow_pitch"]["distance"] == pytest.approx(0.045)
    assert axes["base_yaw"]["offset"] is None
    np.testing.assert_allclose(found["geometry"]["gravity"], [0, 0, -9.81], atol=1e-9)
    assert found["links"]["of"] == 77
    assert {"owner", "name", "value", "error"} == found["links"]["alone"][0].keys()
    assert "base_yaw mass" in found["links"]["no"]
    assert found["friction"] is None


def test_friction_is_shown_by_motor(folder):
    found = payload_of(folder, "rubbing.delan")["friction"]
    assert found["motors"][-1] == "wrist_yaw + 0.6 wrist_pitch"
    assert list(found["weights"]) == list(TERMS)
    np.testing.assert_allclose(found["weights"]["viscous"], np.arange(8, 16) / 10)
    np.testing.assert_allclose(found["width"], 0.02)
    np.testing.assert_allclose(found["stribeck_speed"], 0.1)
    shown = described(folder, "rubbing.delan").stdout
    assert "with friction at the motors" in " ".join(shown.split())
    assert "viscous 0.8, coulomb 1.6" in " ".join(shown.split())
    assert "A stop is" not in shown


def test_stops_are_explained_and_those_of_zero_left_out(tmp_path):
    exact = from_rigid_body(arms()["serial"])
    settings = FrictionSettings(terms=("coulomb", "stops"), radii=(0.01, 0.1))
    head = Friction.of(exact.joints, settings, np.tile([[0.5], [0.0], [0.2]], 4))
    storage.save(Model(exact, jax.tree.map(jax.numpy.asarray, head)), tmp_path / "stops.delan")
    shown = " ".join(described(tmp_path, "stops.delan").stdout.split())
    assert "coulomb 0.5, stop 0.1 0.2, width" in shown
    assert "stop 0.01" not in shown
    assert "A stop is friction that remembers the way" in shown


def test_what_a_fit_left_in_the_file_is_shown(folder):
    provenance = {
        "scores": {
            "validation": {"torque": {"nmse_mean": 2e-9, "nmse": [2e-9] * 7, "rmse": [0.1] * 7}}
        },
        "seed": [0, 7],
        "log": "arm.npz",
        "fit": {"samples": 400, "seconds": 12.0},
    }
    storage.save(from_rigid_body(wam()), folder / "fitted.delan", provenance=provenance)
    text = " ".join(described(folder, "fitted.delan").stdout.split())
    assert "Learned from arm.npz, 400 samples in 12 s, seed [0, 7]." in text
    assert "2.00e-09 on validation" in text
    assert "Written by delan" in text
    assert all(item["error"] > 0 for item in payload_of(folder, "fitted.delan")["links"]["alone"])


def test_what_is_identified_alone_is_the_wams_own():
    """The frames of these joints are those of the URDF but for quarter turns about the axes."""
    true = dict(zip(WAM7.joints.names, wam().parameters, strict=True))
    alone = {
        (item.owner, item.name): item.value
        for item in identifiable_links(from_rigid_body(wam())).named("alone")
    }
    for joint, name in [
        *(("palm_yaw", name) for name in ("mx", "my", "Ixy", "Ixz", "Iyz", "Izz")),
        *(("shoulder_pitch", name) for name in ("mx", "Ixy", "Ixz", "Iyz")),
        *(("wrist_pitch", name) for name in ("mx", "Ixy", "Ixz", "Iyz")),
    ]:
        like = {"mx": "mx my", "my": "mx my", "Ixz": "Ixz Iyz", "Iyz": "Ixz Iyz"}.get(
            name, name
        ).split()
        sizes = [abs(true[joint][LINK_PARAMETERS.index(item)]) for item in like]
        assert (
            min(abs(abs(alone[joint, name]) - size) for size in sizes) < 1e-9 * max(sizes) + 1e-15
        ), (joint, name)
    rotors = {joint: value for (joint, name), value in alone.items() if name == "armature"}
    assert rotors == pytest.approx(dict(zip(WAM7.joints.names[2:], DRIVE_INERTIA[2:], strict=True)))


@pytest.mark.parametrize("name", arms())
def test_nothing_is_claimed_that_other_links_could_make_up(name):
    """A number is identified alone if, and only if, torques give it: then it is a combination of
    the regressor's rows.
    """
    model = from_rigid_body(arms()[name])
    body, links = in_plain_frames(model), identifiable_links(model)
    rng, dof = np.random.default_rng(7), body.joints.dof
    q, qd, qdd = rng.uniform(-1, 1, (3, 100, dof))
    rows = np.concatenate([body.regressor_rows(q, qd, qdd), qdd[:, :, None] * np.eye(dof)], axis=2)
    rows = np.concatenate(rows)
    missed = np.linalg.norm(np.linalg.pinv(rows, rcond=1e-9) @ rows - np.eye(rows.shape[1]), axis=0)
    for item, share in zip(links.parameters, missed, strict=True):
        assert (share < 1e-6) == (item.identifiable == "alone"), item
    assert links.rank == np.linalg.matrix_rank(rows, tol=1e-9 * np.linalg.norm(rows))


def test_motors_compete_with_the_links_for_what_data_tell(folder):
    links = identifiable_links(storage.load(folder / "rubbing.delan"))
    by_name = {(item.owner, item.name): item for item in links.parameters}
    assert len(links.parameters) == 70 + 8 + 7
    assert by_name["elbow_pitch", "armature"].value == pytest.approx(DRIVE_INERTIA[3] + 0.3)
    assert by_name["elbow_pitch", "offset"].value == pytest.approx(3.5)
    assert by_name["elbow_pitch", "offset"].identifiable == "alone"


def test_small_errors_of_a_fit_make_up_no_knowledge():
    """Axes that nearly cross, and gravity nearly along the first, would show a fit's errors as
    masses.
    """
    exact = from_rigid_body(wam())
    rng = np.random.default_rng(0)
    rough = eqx.tree_at(
        lambda item: (item.shift, item.gravity),
        exact,
        (exact.shift + 1e-4 * rng.normal(size=(6, 3)), exact.gravity + 1e-3 * rng.normal(size=3)),
    )
    found, true = identifiable_links(rough), identifiable_links(exact)
    assert found.rank == true.rank
    assert {item.identifiable for item in found.parameters} == {"alone", "combined", "no"}
    claimed = {(item.owner, item.name) for item in found.named("alone")}
    assert claimed <= {(item.owner, item.name) for item in true.named("alone")}
    assert ("palm_yaw", "Izz") in claimed


def test_noise_and_few_samples_make_the_numbers_worse():
    model, rmse = from_rigid_body(wam()), np.full(7, 0.1)
    rough, finer, long = (
        identifiable_links(model, rmse=noise, samples=samples)
        for noise, samples in ((rmse, 100), (rmse / 2, 100), (rmse, 10_000))
    )
    for item, half, tenth in zip(rough.parameters, finer.parameters, long.parameters, strict=True):
        assert (item.error is None) == (item.identifiable != "alone")
        if item.error is not None:
            assert half.error == pytest.approx(item.error / 2, rel=1e-6)
            assert tenth.error == pytest.approx(item.error / 10, rel=1e-6)


def reframed(body: RigidBody, seed: int) -> RigidBody:
    """The same arm on another base, with joint frames that are turned about their axes and slid
    along them.
    """
    rng = np.random.default_rng(seed)
    base = (Rotation.random(rng=rng).as_matrix(), rng.normal(size=3))
    old, new, bodies = [], [], []
    for item in body.bodies:
        turn, place = old[item.parent] if item.parent >= 0 else base
        before = new[item.parent] if item.parent >= 0 else (np.eye(3), np.zeros(3))
        old.append((turn @ item.rotation, turn @ item.position + place))
        twist = Rotation.from_rotvec([0, 0, rng.uniform(-3, 3)]).as_matrix()
        frame = old[-1][0] @ with_third_column(item.axis) @ twist
        slide = (
            rng.normal(0, 0.3, 3) if item.kind == "prismatic" else rng.normal(0, 0.3) * frame[:, 2]
        )
        new.append((frame, old[-1][1] + slide))
        across = frame.T @ old[-1][0]
        bodies.append(
            replace(
                item,
                position=before[0].T @ (new[-1][1] - before[1]),
                rotation=before[0].T @ frame,
                axis=np.array([0.0, 0.0, 1.0]),
                centre=across @ item.centre - frame.T @ slide,
                inertia=across @ item.inertia @ across.T,
            )
        )
    x, y, z = (base[0] @ body.gravity).tolist()
    return RigidBody.from_bodies(bodies, gravity=(x, y, z))


@pytest.mark.parametrize(
    ("kinds", "parents"),
    [
        (("revolute",) * 4, None),
        (("revolute", "revolute", "prismatic", "revolute"), None),
        (("revolute",) * 5, (-1, 0, 0, 2, 1)),
    ],
)
def test_the_numbers_do_not_depend_on_frames_that_joints_cannot_see(kinds, parents):
    body = rigid(random_arm(kinds, seed=5, parents=parents)[0])
    other = reframed(body, seed=6)
    rows = motion(body.joints.dof)
    np.testing.assert_allclose(
        other.inverse_dynamics(*rows), body.inverse_dynamics(*rows), atol=1e-9
    )
    item, two = (identifiable_links(from_rigid_body(arm)) for arm in (body, other))
    for a, b in zip(item.parameters, two.parameters, strict=True):
        assert a.identifiable == b.identifiable
        if a.identifiable == "alone":
            assert a.value == pytest.approx(b.value, rel=1e-7, abs=1e-10)


def test_one_joint_and_an_arm_without_weight():
    pendulum = chain(Joints.revolute(1))
    turn = np.eye(4)
    turn[:3, :3] = Rotation.from_rotvec([0, 0, 2.0]).as_matrix()
    turned = eqx.tree_at(
        lambda item: (item.factor, item.gravity),
        pendulum,
        (turn @ pendulum.factor, turn[:3, :3] @ pendulum.gravity),
    )
    item, two = (identifiable_links(model).named("alone") for model in (pendulum, turned))
    assert [number.name for number in item] == ["mx", "my"]
    assert [number.value for number in item] == pytest.approx([number.value for number in two])
    floating = RigidBody.from_bodies(
        random_arm(("revolute",) * 3, seed=0)[0], gravity=(0.0, 0.0, 0.0)
    )
    assert identifiable_links(pendulum).feels_gravity
    assert not identifiable_links(from_rigid_body(floating)).feels_gravity


@pytest.mark.parametrize("name", arms())
def test_a_written_urdf_moves_like_the_arm(name):
    body = in_plain_frames(from_rigid_body(reframed(arms()[name], seed=4)))
    again = RigidBody.from_urdf(urdf_of(body), armature=np.zeros(body.joints.dof))
    order = [
        again.joints.names.index(joint) for joint in body.joints.names
    ]  # trees are read in another order
    back = np.argsort(order)
    for seed in range(3):
        rows = motion(body.joints.dof, seed)
        rotors = body.armature * rows[2]
        torque = again.inverse_dynamics(*rows[:, back])[order] + rotors
        np.testing.assert_allclose(torque, body.inverse_dynamics(*rows), rtol=1e-8, atol=1e-8)
    assert {kind for kind in again.joints.kinds if kind != "prismatic"} == {"continuous"}


def test_a_urdf_has_the_limits_it_is_given():
    bodies, limits = random_arm(("revolute", "prismatic", "revolute"), seed=0)
    endless = JointLimits(
        lower=np.array([*limits.lower[:2], -np.inf]),
        upper=np.array([*limits.upper[:2], np.inf]),
        velocity=np.full(3, np.inf),
        torque=limits.torque,
    )
    text = urdf_of(rigid(bodies), name="three", limits=endless)
    assert RigidBody.from_urdf(text).joints.kinds == ("revolute", "prismatic", "continuous")
    assert 'name="three"' in text
    assert '<limit lower="-0.3" upper="0.3" velocity="1000000.0" effort="1000.0" />' in text
    assert '<limit velocity="1000000.0" effort="1000.0" />' in text
    assert text.count("<limit") == 3
    assert (
        urdf_of(rigid(bodies)).count("<limit") == 1
    )  # that of the sliding joint, which must have one


def test_the_torque_limit_of_an_endless_joint_is_read_back(tmp_path):
    bodies, limits = random_arm(("revolute", "revolute"), seed=0)
    endless = replace(limits, lower=np.full(2, -np.inf), upper=np.full(2, np.inf))
    (tmp_path / "arm.urdf").write_text(urdf_of(rigid(bodies), limits=endless))
    robot = from_urdf(tmp_path / "arm.urdf").robot
    assert robot.joints.kinds == ("continuous", "continuous")
    np.testing.assert_allclose(robot.limits.torque, limits.torque)
    np.testing.assert_allclose(robot.limits.velocity, limits.velocity)


def test_a_model_file_becomes_a_urdf(folder, tmp_path):
    for name in ("wam.delan", "rubbing.delan"):
        shown = described(folder, name, "--out", tmp_path / "arm.urdf")
        assert shown.exit_code == 0, shown.output
        assert "but for rotors and friction, which a URDF does not hold" in " ".join(
            shown.stdout.split()
        )
        again, true, rows = (
            RigidBody.from_urdf(tmp_path / "arm.urdf"),
            RigidBody.from_urdf(WAM7.urdf()),
            motion(7),
        )
        np.testing.assert_allclose(
            again.inverse_dynamics(*rows), true.inverse_dynamics(*rows), atol=1e-8
        )


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_picture_is_written(folder, tmp_path, suffix):
    picture = tmp_path / f"arm.{suffix}"
    shown = described(folder, "wam.delan", "--plot", picture, "--urdf", folder / "wam.urdf")
    assert shown.exit_code == 0, shown.output
    assert f"Picture: {picture}" in shown.stdout
    assert picture.stat().st_size > 5_000
    assert picture.read_bytes()[:4] == {"png": b"\x89PNG", "svg": b"<?xm", "pdf": b"%PDF"}[suffix]


@pytest.mark.parametrize("name", [*arms(), "many"])
def test_joints_in_one_place_share_a_label_and_labels_do_not_overlap(name):
    body = (arms() | {"many": rigid(random_arm(("revolute",) * 20, seed=0)[0])})[name]
    figure = draw_skeleton(learned_arm(from_rigid_body(body)))
    figure.draw_without_rendering()
    names = [text for text in figure.axes[0].texts if text.get_text() not in ("", "gravity")]
    labelled = sorted(name for text in names for name in text.get_text().split("\n"))
    assert labelled == sorted(body.joints.names)
    boxes = [Text.get_window_extent(text) for text in names]  # without the line to the joint
    if name == "wam":
        assert {text.get_text() for text in names} == {
            "base_yaw\nshoulder_pitch\nshoulder_yaw",
            "elbow_pitch",
            "wrist_yaw",
            "wrist_pitch\npalm_yaw",
        }
    for item, other in combinations(boxes, 2):
        assert not item.overlaps(other)


@pytest.mark.parametrize("name", arms())
def test_a_learned_arm_is_laid_over_the_true_one(name):
    """Turned about its first axis, slid along it and mirrored, which is what data leave free."""
    true = learned_arm(from_rigid_body(arms()[name]))
    turn = Rotation.from_rotvec([0, 0, 2.0]).as_matrix()
    moved = replace(
        true,
        points=true.points @ turn.T + np.array([0, 0, 0.4]),
        directions=true.directions @ turn.T,
    )
    flip = np.array([1.0, 1.0, -1.0])
    sense = np.array([[1.0] if kind == "prismatic" else [-1.0] for kind in true.joints.kinds])
    mirrored = replace(
        moved, points=moved.points * flip, directions=sense * moved.directions * flip
    )
    for item in (moved, mirrored):
        over = laid_over(item, true)
        np.testing.assert_allclose(over.points, true.points, atol=1e-9)
        np.testing.assert_allclose(over.directions, true.directions, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "kind"), [("network", "LagrangianNetwork"), ("feedforward", "FeedForwardNetwork")]
)
def test_a_network_has_no_geometry(folder, tmp_path, name, kind):
    shown = described(folder, f"{name}.delan")
    assert shown.exit_code == 0
    assert "It has no geometry to show" in shown.stdout
    assert payload_of(folder, f"{name}.delan")["geometry"] is None
    for option in ("--plot", "--out"):
        refused = described(
            folder,
            f"{name}.delan",
            option,
            tmp_path / f"arm.{'png' if option == '--plot' else 'urdf'}",
        )
        assert refused.exit_code == 1
        assert (
            f"{option} shows the geometry of a chain, and {name}.delan is a {kind}, which has none"
            in refused.output
        )
        assert not list(tmp_path.iterdir())


def test_a_chain_that_is_no_rigid_arm_is_refitted_and_says_so(folder, tmp_path):
    urdf = tmp_path / "bent.urdf"
    shown = described(folder, "bent.delan", "--out", urdf)
    assert shown.exit_code == 0, shown.output
    assert "refitted as a rigid arm" in " ".join(shown.stdout.split())
    assert payload_of(folder, "bent.delan")["links"] is not None
    body = RigidBody.from_urdf(urdf)
    assert is_physical(body.parameters).all()
    with pytest.raises(ModelError, match="away from a rotation"):
        identifiable_links(storage.load(folder / "bent.delan"))


def test_nearly_parallel_axes_are_doubted(folder):
    bodies = random_arm(("revolute", "revolute"), seed=0)[0]
    tilted = Rotation.from_rotvec([0.01, 0, 0]).as_matrix()
    up = np.array([0.0, 0.0, 1.0])
    pair = [replace(bodies[0], axis=up), replace(bodies[1], axis=up, rotation=tilted)]
    storage.save(from_rigid_body(rigid(pair)), folder / "flat.delan")
    assert "0.57° from parallel" in " ".join(described(folder, "flat.delan").stdout.split())


def planar(tilt: float) -> RigidBody:
    """Two links that hang in a plane, 0.5 m between their axes, the second tilted out of parallel
    [rad].
    """
    up, inertia = np.array([0.0, 0.0, 1.0]), np.diag([0.02, 0.03, 0.04])
    first = random_arm(("revolute", "revolute"), seed=0)[0][0]
    first = replace(
        first,
        axis=up,
        anchor=np.zeros(3),
        position=np.zeros(3),
        rotation=np.eye(3),
        centre=np.array([0.2, 0.0, 0.0]),
    )
    turn = Rotation.from_rotvec([0, tilt, 0]).as_matrix()
    second = replace(first, parent=0, joint="elbow", position=np.array([0.5, 0, 0]), rotation=turn)
    bodies = [replace(item, mass=1.0, inertia=inertia) for item in (first, second)]
    return RigidBody.from_bodies(bodies, gravity=(0.0, -9.81, 0.0))


def provenance(rmse: float, dof: int = 2) -> dict[str, Any]:
    scores = {
        "validation": {"torque": {"nmse_mean": 1e-6, "nmse": [1e-6] * dof, "rmse": [rmse] * dof}}
    }
    return {"scores": scores, "fit": {"samples": 400, "seconds": 1.0}}


def test_axes_that_torques_cannot_tell_from_parallel_ones_are_shown_parallel(folder, tmp_path):
    skew = from_rigid_body(planar(0.02))
    storage.save(skew, folder / "skew.delan", provenance=provenance(0.05))
    found = payload_of(folder, "skew.delan", "--out", tmp_path / "arm.urdf")
    elbow = found["geometry"]["axes"][1]
    assert elbow["twist"] == pytest.approx(0, abs=1e-6)
    assert elbow["twist_error"] == pytest.approx(np.degrees(0.02), rel=1e-6)
    assert elbow["distance"] == pytest.approx(0.5, abs=2e-3)
    assert 0 < elbow["distance_error"] < 0.01
    assert "1.1° from parallel" in found["notes"][0]
    assert "square to the axes" in found["free"][1]
    again = RigidBody.from_urdf(tmp_path / "arm.urdf")
    for seed in range(5):
        rows = motion(2, seed)
        np.testing.assert_allclose(
            again.inverse_dynamics(*rows), planar(0.02).inverse_dynamics(*rows), atol=0.15
        )
    shown = described(folder, "skew.delan").stdout
    assert "0.0 ±1" in shown
    assert "they are shown as parallel" in " ".join(shown.split())


def test_axes_that_a_good_fit_tells_from_parallel_ones_stay_as_they_are(folder):
    storage.save(from_rigid_body(planar(0.02)), folder / "sharp.delan", provenance=provenance(1e-6))
    found = payload_of(folder, "sharp.delan")
    elbow = found["geometry"]["axes"][1]
    assert elbow["twist"] == pytest.approx(np.degrees(0.02), rel=1e-6)
    assert 0 < elbow["twist_error"] < 0.1
    assert "if they are parallel on the robot" in found["notes"][0]


def test_the_doubt_in_axes_grows_with_the_error():
    exact = from_rigid_body(wam())
    fine, rough = (
        identifiable_axes(exact, rmse=np.full(7, noise), samples=100).uncertainties
        for noise in (0.01, 0.02)
    )
    for axis, item, two in zip(learned_arm(exact).axes, fine, rough, strict=True):
        for name in ("twist", "distance", "offset"):
            error = getattr(item, name)
            assert (error is None) == (axis.parent is None or getattr(axis, name) is None)
            if error is not None:
                assert 0 < error < np.inf
                assert getattr(two, name) == pytest.approx(2 * error, rel=1e-4)


def test_a_length_that_no_joint_feels_is_unknown():
    """Parallel axes without gravity: only products of lengths and masses move the joints."""
    floating = RigidBody.from_bodies(planar(0.0).bodies, gravity=(0.0, 0.0, 0.0))
    found = identifiable_axes(from_rigid_body(floating), rmse=np.full(2, 0.01), samples=100)
    assert found.uncertainties[1].distance == np.inf
    assert not found.flat


def test_a_centre_of_mass_far_outside_of_the_arm_is_reported(folder, tmp_path):
    body = planar(0.0)
    far = [body.bodies[0], replace(body.bodies[1], centre=np.array([0.2, 0.0, 8.0]))]
    storage.save(
        from_rigid_body(RigidBody.from_bodies(far, gravity=(0.0, -9.81, 0.0))), folder / "far.delan"
    )
    shown = " ".join(described(folder, "far.delan", "--out", tmp_path / "far.urdf").stdout.split())
    assert "The centre of mass of elbow is written 8 m from its joint, in an arm of 0.5 m" in shown


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            ("--urdf", "wam.urdf"),
            "--urdf is the true arm, drawn beneath the learned one; say where with --plot",
        ),
        (("--plot", "arm.gif"), "a picture is a .png, .svg or .pdf file"),
        (
            ("--plot", "arm.png", "--urdf", "short.urdf"),
            "has 4 joints, 0 of them sliding, and the model 7",
        ),
        (("--plot", "arm.png", "--urdf", "none.urdf"), "the URDF cannot be read"),
        (("--out", "nowhere/arm.urdf"), "there is no folder nowhere"),
    ],
)
def test_wrong_wishes_are_refused(folder, monkeypatch, options, problem):
    monkeypatch.chdir(folder)
    refused = described(folder, "wam.delan", *options)
    assert refused.exit_code == 1
    assert problem in refused.output
    assert not (folder / "arm.png").exists()
