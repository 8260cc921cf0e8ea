"""Laws that every robot obeys, and agreement of three engines and the models on the same arm."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jax
import numpy as np
import pinocchio as pin  # pyright: ignore[reportMissingImports]
import pytest

from delan.errors import RobotError, SettingsError
from delan.joints import Joints
from delan.learning.scores import evaluate
from delan.models.rigid_body import RigidBody
from delan.motions.cosines import cosines
from delan.robots import from_mjcf, from_urdf
from delan.robots.arms import DRIVE_INERTIA, TWO_LINK, WAM4, WAM4_ANALYTIC, WAM7, WAM7_ANALYTIC
from delan.robots.cable_drive import CableDrivenRobot, CableSettings
from delan.robots.description import Arm
from delan.robots.mujoco_robot import MujocoRobot
from delan.robots.robot import Robot, physics_steps, safe_torque
from delan.robots.robot_files import urdf_limits
from delan.robots.tolerances import produced
from tests.support.tracking import track

pytest.importorskip("pybullet", reason="PyBullet is an extra")
from delan.robots.pybullet_robot import PybulletRobot

RIGID: dict[str, Callable[[Arm], Any]] = {"mujoco": MujocoRobot.of, "pybullet": PybulletRobot}
ROBOTS: dict[str, Callable[[], Robot]] = {
    **{
        f"{arm.name} in {engine}": lambda arm=arm, make=make: make(arm)
        for arm in (TWO_LINK, WAM4, WAM7)
        for engine, make in RIGID.items()
    },
    "wam4 with cables": lambda: CableDrivenRobot(WAM4),
    "wam7 with cables": lambda: CableDrivenRobot(WAM7),
}
ARMS = {"two_link": TWO_LINK, "wam4": WAM4, "wam7": WAM7}
POSE = np.array([0.2, 0.6, 0.1, 0.9, 0.1, 0.1, 0.1])


@pytest.fixture(params=ROBOTS)
def robot(request) -> Robot:
    return ROBOTS[request.param]()


def drive(robot: Robot, periods: int, seed: int = 0) -> np.ndarray:
    """Return the states of a robot under random torques."""
    rng = np.random.default_rng(seed)
    robot.reset(POSE[: robot.joints.dof])
    states = [
        robot.step(rng.normal(0, 0.2, robot.joints.dof) * robot.limits.torque)
        for _ in range(periods)
    ]
    return np.array([np.concatenate([state.q, state.qd]) for state in states])


def test_a_robot_keeps_its_protocol(robot):
    assert isinstance(robot, Robot)
    state = robot.reset()
    assert state.t == 0
    assert state.q.shape == state.qd.shape == (robot.joints.dof,)
    assert robot.step(np.zeros(robot.joints.dof)).t == pytest.approx(robot.dt)


def test_the_same_torques_give_the_same_motion(robot):
    first = drive(robot, 200)
    np.testing.assert_array_equal(first, drive(robot, 200))
    assert not np.array_equal(first, drive(robot, 200, seed=1))


def test_a_non_finite_torque_is_refused(robot):
    robot.reset()
    tau = np.zeros(robot.joints.dof)
    tau[-1] = np.nan
    with pytest.raises(RobotError, match=f"joint {robot.joints.names[-1]} is nan"):
        robot.step(tau)
    with pytest.raises(RobotError, match=f"each of {robot.joints.dof} joints"):
        robot.step(np.zeros(robot.joints.dof + 1))


def test_torques_saturate_at_the_limits(robot):
    """Ten times the limit does what the limit does."""

    def end(factor: float) -> np.ndarray:
        robot.reset(POSE[: robot.joints.dof])
        return [robot.step(factor * robot.limits.torque).q for _ in range(20)][-1]

    np.testing.assert_array_equal(end(10.0), end(1.0))


def test_drives_cut_a_torque_off_on_either_side():
    limits, joints = WAM4.limits, WAM4.joints
    tau = np.array([-1e9, 1e9, -0.5, 0.25])
    np.testing.assert_array_equal(
        safe_torque(tau, limits, joints), [-limits.torque[0], limits.torque[1], -0.5, 0.25]
    )
    tau[1:3] = np.nan, np.inf
    with pytest.raises(RobotError, match=f"joint {joints.names[1]} is nan"):
        safe_torque(tau, limits, joints)


def test_stops_hold(robot):
    """Driven hard in both directions, no joint passes its stop by more than the stop may yield."""
    states = []
    robot.reset(POSE[: robot.joints.dof])
    for direction in (1, -1):
        states += [robot.step(direction * 0.1 * robot.limits.torque).q for _ in range(1000)]
    past = np.maximum(
        robot.limits.lower - np.min(states, axis=0), np.max(states, axis=0) - robot.limits.upper
    )
    assert past[:4].max() < 0.1
    assert past.max() < 0.25, "a wrist of 0.1 g m² arrives at its stop at 100 rad/s"
    assert past.max() > -0.1, "at least one joint got to its stop"


def without_stops(arm: Arm) -> Arm:
    return replace(arm, links=tuple(replace(link, position=(-1e3, 1e3)) for link in arm.links))


@pytest.mark.parametrize("engine", RIGID)
@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
def test_a_free_arm_keeps_its_energy(engine, arm):
    """Ten seconds of free motion without stops, with the energy of the rigid-body model."""
    robot = RIGID[engine](without_stops(arm))
    model = RigidBody.from_urdf(arm.urdf())
    start = np.array([0.2, 2.6, 0.1, 0.3, 0.1, 0.1, 0.1])[: arm.joints.dof]
    if arm is TWO_LINK:
        start = np.array([-1.2, 0.4])
    energies = [model.energy(robot.reset(start).q, np.zeros(arm.joints.dof))]
    for _ in range(round(10 / robot.dt)):
        state = robot.step(np.zeros(arm.joints.dof))
        energies.append(model.energy(state.q, state.qd))
    total = np.array([energy.total for energy in energies])
    assert np.abs(total - total[0]).max() < 1e-3 * abs(total[0])
    assert max(energy.kinetic for energy in energies) > 0.1 * abs(total[0])  # it did swing
    if engine == "mujoco":
        assert np.abs(total - total[0]).max() < 1e-8 * abs(total[0])


@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
def test_mujocos_energy_is_that_of_the_model_but_for_a_constant(arm):
    robot = MujocoRobot.of(arm)
    model = RigidBody.from_urdf(arm.urdf())
    rng = np.random.default_rng(0)
    energies = []
    for _ in range(5):
        q = rng.uniform(arm.limits.lower, arm.limits.upper)
        qd = rng.normal(size=arm.joints.dof)
        robot.reset(q, qd)
        energies.append((robot.energy(), model.energy(q, qd).total))
    engine, ours = np.diff(np.array(energies), axis=0).T
    np.testing.assert_allclose(engine, ours, rtol=1e-9, atol=1e-9)


def test_closing_a_world_leaves_the_others_open():
    robot, other = PybulletRobot(TWO_LINK), PybulletRobot(TWO_LINK)
    for _ in range(2):
        robot.close()
    with pytest.raises(Exception, match=r"[Nn]ot connected"):
        robot.step(np.zeros(2))
    assert other.step(np.zeros(2)).t > 0
    other.close()


@pytest.mark.parametrize("engine", RIGID)
@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
def test_gravity_torque_holds_the_arm(engine, arm):
    robot, model = RIGID[engine](arm), RigidBody.from_urdf(arm.urdf())
    pose = POSE[: arm.joints.dof]
    still = np.zeros_like(pose)
    robot.reset(pose)
    state = [robot.step(model.inverse_dynamics(pose, still, still)) for _ in range(100)][-1]
    np.testing.assert_allclose(state.q, pose, atol=1e-9)


def test_engines_agree_on_joints_rotated_about_all_axes():
    turned = (
        replace(WAM7.links[0], rpy=(0.3, -0.5, 0.7)),
        replace(WAM7.links[1], rpy=(-0.9, 0.4, 0.2)),
    )
    whole_arm = replace(WAM7, links=(*turned, *WAM7.links[2:]))
    stump_arm = whole_arm.locked(1, name="stump")
    whole = RigidBody.from_urdf(whole_arm.urdf())
    stump = RigidBody.from_urdf(stump_arm.urdf())
    for arm, model in ((whole_arm, whole), (stump_arm, stump)):
        motion = [POSE[: arm.joints.dof]] * 3
        np.testing.assert_allclose(
            MujocoRobot.of(arm).inverse_dynamics(*motion),
            model.inverse_dynamics(*motion),
            atol=1e-8,
        )
    locked = np.concatenate([[0.4], np.zeros(6)])
    np.testing.assert_allclose(
        stump.inverse_dynamics(locked[:1], locked[:1], locked[:1]),
        whole.inverse_dynamics(locked, locked, locked)[:1],
        atol=1e-8,
    )


@pytest.mark.parametrize("arm", [*ARMS.values(), WAM7_ANALYTIC], ids=[*ARMS, "wam7_analytic"])
def test_three_engines_agree_on_the_torque(arm):
    """Pinocchio, MuJoCo and PyBullet on 1,000 random states inside the joints' ranges."""
    model, mujoco, bullet = RigidBody.from_urdf(arm.urdf()), MujocoRobot.of(arm), PybulletRobot(arm)
    rng = np.random.default_rng(0)
    for _ in range(1000):
        q = rng.uniform(arm.limits.lower, arm.limits.upper)
        qd, qdd = rng.normal(0, 2, (2, arm.joints.dof))
        torque = model.inverse_dynamics(q, qd, qdd)
        np.testing.assert_allclose(mujoco.inverse_dynamics(q, qd, qdd), torque, rtol=0, atol=1e-8)
        np.testing.assert_allclose(bullet.inverse_dynamics(q, qd, qdd), torque, rtol=0, atol=1e-8)


def test_the_two_sets_of_numbers_disagree():
    """The analytic baseline is not the truth: its torques differ from the simulated arm's."""
    truth = RigidBody.from_urdf(WAM4.urdf())
    analytic = RigidBody.from_urdf(WAM4_ANALYTIC.urdf())
    rng = np.random.default_rng(0)
    q = rng.uniform(WAM4.limits.lower, WAM4.limits.upper, (200, 4))
    qd, qdd = rng.normal(0, 2, (2, 200, 4))
    tau = truth.rows(q, qd, qdd).total
    nmse = np.mean((tau - analytic.rows(q, qd, qdd).total) ** 2, axis=0) / tau.var(axis=0)
    assert (nmse > 1e-3).any()
    assert (nmse < 0.2).all()


def test_a_locked_wrist_weighs_what_it_did():
    """Welding by our own sums against Pinocchio's reduction of the whole arm."""
    full = pin.buildModelFromXML(WAM7.urdf())
    reduced = RigidBody(pin.buildReducedModel(full, [5, 6, 7], np.zeros(7)))
    locked = RigidBody.from_urdf(WAM4.urdf())
    for motion in np.random.default_rng(0).normal(0, 2, (20, 3, 4)):
        np.testing.assert_allclose(
            locked.inverse_dynamics(*motion), reduced.inverse_dynamics(*motion), atol=1e-10
        )


def test_the_tool_is_where_kinematics_put_it():
    """MuJoCo's forward kinematics against Pinocchio's, for the whole arm and the locked one."""
    for arm in (WAM7, WAM4):
        robot = MujocoRobot.of(arm)
        model = pin.buildModelFromXML(WAM7.urdf())
        data = model.createData()
        pose = np.zeros(7)
        pose[: arm.joints.dof] = POSE[: arm.joints.dof]
        robot.reset(pose[: arm.joints.dof])
        pin.forwardKinematics(model, data, pose)
        np.testing.assert_allclose(
            robot.tool_position(), data.oMi[7].act(np.array(WAM7.tool)), atol=1e-12
        )


@pytest.mark.parametrize(
    ("dt", "step", "message"),
    [
        (0.0025, 0.001, r"0\.0025 s .* nearest valid period is 0\.002 s"),
        (0.0005, 0.001, "physics step ≤ control period"),
        (float("nan"), 0.001, "physics step ≤ control period"),
        (float("inf"), 0.001, "physics step ≤ control period"),
        (0.002, 0.0, "0 < physics step"),
    ],
)
def test_periods_that_do_not_fit_are_refused(dt, step, message):
    with pytest.raises(RobotError, match=message):
        MujocoRobot.of(TWO_LINK, dt=dt, physics_dt=step)


def test_periods_that_fit_are_counted():
    assert physics_steps(0.002, 0.0001) == 20
    assert physics_steps(1 / 500, 1 / 4000) == 8
    assert physics_steps(0.001, 0.001) == 1
    # Off by half a millionth: written with few digits.
    assert physics_steps(1.0, 1e-4 * (1 + 5e-7)) == 10000


@pytest.mark.slow
def test_cables_make_rigid_bodies_wrong():
    """The arm follows, but its elasticity makes more than a tenth of the torque's variance."""
    model = RigidBody.from_urdf(WAM4.urdf())
    motion = cosines(WAM4.limits, key=jax.random.key(0), duration=6.0, share=0.4).sample(2e-3)
    elastic = track(CableDrivenRobot(WAM4), model, motion)
    rigid = track(MujocoRobot.of(WAM4), model, motion)
    assert np.abs(elastic.q - motion.q[100:-100]).max() < 0.15
    assert evaluate(model, elastic, rollouts=False).torque.nmse_mean > 0.1
    assert evaluate(model, rigid, rollouts=False).torque.nmse_mean < 1e-3


def test_cable_drives_stretch_and_stick_and_encoders_count_whole_steps():
    robot = CableDrivenRobot(WAM4)
    pose = POSE[:4]
    robot.reset(pose)
    hold = RigidBody.from_urdf(WAM4.urdf()).inverse_dynamics(pose, np.zeros(4), np.zeros(4))
    state = [robot.step(hold) for _ in range(500)][-1]
    # Encoders sit on the motors; those of joints 2 and 3 turn by q₂ − q₃/ρ and −q₂ − q₃/ρ.
    ((_, _, ratio),) = robot.settings.differentials[:1]
    motors = np.array(
        [state.q[0], state.q[1] - state.q[2] / ratio, -state.q[1] - state.q[2] / ratio, state.q[3]]
    )
    steps = motors / np.array(robot.settings.encoder_step[:4])
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-6)
    stretch = np.abs(state.q - robot.link_state.q)
    assert stretch.max() > 1e-3
    # Friction holds it: a little more torque than gravity asks for moves nothing.
    pushed = [robot.step(hold + 0.2 * np.array(robot.settings.coulomb[:4])) for _ in range(100)][-1]
    assert np.abs(pushed.q - state.q).max() < 1e-3


def test_a_torque_takes_effect_after_the_delay():
    def moved(delay: int, torque: float) -> np.ndarray:
        robot = CableDrivenRobot(WAM4, CableSettings(delay=delay))
        robot.reset(POSE[:4])
        robot.step(np.array([torque, 0, 0, 0]))
        return robot.link_state.q

    np.testing.assert_array_equal(moved(1, 50.0), moved(1, 0.0))
    assert not np.array_equal(moved(0, 50.0), moved(0, 0.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CableSettings(stiffness=(0.0,)), "stiffness must be positive"),
        (lambda: CableSettings(motor_share=2.0), "need 0 ≤ motor_share ≤ 1"),
        (
            lambda: CableDrivenRobot(WAM4, CableSettings(damping=(1.0,))),
            "damping has 1 entries; wam4 has 4 joints",
        ),
        (lambda: WAM7.locked(9, name="x"), "1 to 7 free joints, got 9"),
    ],
)
def test_bad_robots_are_refused(make, message):
    with pytest.raises(SettingsError, match=message):
        make()


@pytest.mark.parametrize("arm", [TWO_LINK, WAM7], ids=lambda arm: arm.name)
def test_any_file_becomes_a_robot_and_its_model(arm, tmp_path):
    (tmp_path / "arm.urdf").write_text(arm.urdf())
    (tmp_path / "arm.xml").write_text(arm.mjcf())
    truth = RigidBody.from_urdf(arm.urdf())
    for robot, model in (from_urdf(tmp_path / "arm.urdf"), from_mjcf(tmp_path / "arm.xml")):
        assert robot.joints == model.joints == arm.joints
        np.testing.assert_allclose(robot.limits.torque, arm.limits.torque)
        np.testing.assert_allclose(robot.limits.lower, arm.limits.lower)
        for motion in np.random.default_rng(0).normal(0, 0.5, (20, 3, arm.joints.dof)):
            np.testing.assert_allclose(
                model.inverse_dynamics(*motion), truth.inverse_dynamics(*motion), atol=1e-9
            )
    assert from_urdf(tmp_path / "arm.urdf").robot.limits.velocity == pytest.approx(
        arm.limits.velocity
    )


LIMITED = """<robot name="limited">
 <joint name="a" type="revolute"><limit lower="0" upper="2" velocity="3" effort="40"/></joint>
 <joint name="b" type="prismatic"><limit lower="-1" upper="0" velocity="0" effort="0"/></joint>
 <joint name="c" type="continuous"><limit lower="0" upper="0" velocity="5" effort="6"/></joint>
 <joint name="d" type="continuous"/>
 <transmission name="t"><joint name="a"/></transmission></robot>"""


def test_limits_are_those_that_stand_in_a_urdf():
    limits = urdf_limits(ElementTree.fromstring(LIMITED), ("b", "a", "c", "d", "nowhere"))
    np.testing.assert_array_equal(limits.lower, [-1, 0, -np.inf, -np.inf, -np.inf])
    np.testing.assert_array_equal(limits.upper, [0, 2, np.inf, np.inf, np.inf])
    np.testing.assert_array_equal(limits.velocity, [np.inf, 3, 5, np.inf, np.inf])
    np.testing.assert_array_equal(limits.torque, [np.inf, 40, 6, np.inf, np.inf])


DRIVEN = """<mujoco><compiler angle="radian"/><option gravity="0 0 0"/><worldbody>
 <site name="base"/><body><joint name="a" axis="0 1 0"/><site name="tip"/>
 <geom type="capsule" fromto="0 0 0 .3 0 0" size=".05"/></body>
 </worldbody><actuator>{}</actuator></mujoco>"""


def driven(folder: Path, actuators: str) -> MujocoRobot:
    """One joint with the actuators of an MJCF file."""
    (folder / "driven.xml").write_text(DRIVEN.format(actuators))
    return from_mjcf(folder / "driven.xml").robot


def test_servos_of_a_file_are_disabled(tmp_path):
    robot = driven(tmp_path, '<position joint="a" kp="100"/>')
    robot.reset(np.array([0.5]))
    state = [robot.step(np.zeros(1)) for _ in range(50)][-1]
    np.testing.assert_array_equal((*state.q, *state.qd), (0.5, 0.0))


@pytest.mark.parametrize(
    ("actuators", "torque"),
    [
        ('<motor joint="a" gear="3" ctrlrange="-2 2"/>', 6.0),
        ('<general joint="a" gainprm="50" ctrlrange="-1 1"/>', 50.0),
        ('<motor joint="a" gear="3" ctrlrange="-2 2" forcerange="-1 1"/>', 3.0),
        ('<motor jointinparent="a" ctrlrange="-5 5"/>', 5.0),
        ('<position joint="a" kp="100" ctrlrange="-2.8 2.8" forcerange="-87 87"/>', 87.0),
        ('<position joint="a" kp="100" ctrlrange="-2.8 2.8"/>', np.inf),
        ('<motor site="tip" refsite="base" ctrlrange="-2 2"/>', np.inf),
        ('<motor joint="a"/>', np.inf),
    ],
)
def test_torque_limits_come_from_actuators(actuators, torque, tmp_path):
    np.testing.assert_array_equal(driven(tmp_path, actuators).limits.torque, [torque])


TREE = """<mujoco><compiler angle="radian"/><worldbody>
 <body pos="0 0 1"><joint name="a" axis="0 1 0" pos="0.1 0 0.05" armature="0.2"
 damping="0.3" frictionloss="0.4"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".05"/>
 <body pos=".3 0 0" euler="0.3 0 0"><geom type="sphere" size=".06"/>
 <body pos="0 .1 0"><joint name="b" type="slide" axis="0 .6 .8" range="-1 1"/>
 <geom type="box" size=".1 .05 .02"/></body></body>
 <body pos=".1 0 0" euler="0 0.2 0.5"><joint name="c" axis="1 0 0"/>
 <geom type="capsule" fromto="0 0 0 0 .2 0" size=".04"/></body>
</body></worldbody></mujoco>"""


def test_trees_slides_welded_bodies_and_shifted_joints(tmp_path):
    """The model of a file with all features agrees with MuJoCo's own inverse dynamics."""
    (tmp_path / "tree.xml").write_text(TREE)
    robot, model = from_mjcf(tmp_path / "tree.xml")
    assert robot.joints == Joints(("a", "b", "c"), ("continuous", "prismatic", "continuous"))
    assert model.friction is not None
    for q, qd, qdd in np.random.default_rng(0).normal(0, 0.3, (30, 3, 3)):
        # MuJoCo's frictionloss is a constraint of its own: compare without it.
        rigid = model.inverse_dynamics(q, qd, qdd) - model.components(q, qd, qdd).friction
        robot.model.dof_frictionloss[:] = 0
        np.testing.assert_allclose(
            rigid + np.array([0.3, 0, 0]) * qd, robot.inverse_dynamics(q, qd, qdd), atol=1e-9
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<robot", "not well-formed XML"),
        ("<mujoco/>", "<robot>, got <mujoco>"),
        (
            TWO_LINK.urdf().replace('name="elbow" type="revolute"', 'name="elbow" type="planar"'),
            "joint elbow has the type 'planar'",
        ),
        (
            TWO_LINK.urdf().replace(
                'name="shoulder" type="revolute"', 'name="shoulder" type="floating"'
            ),
            "joint shoulder has the type 'floating'",
        ),
        (
            TWO_LINK.urdf().replace(
                '<axis xyz="0.0 -1.0 0.0" />', '<axis xyz="0 1 0"/><mimic joint="elbow"/>'
            ),
            "joint shoulder mimics",
        ),
        (
            TWO_LINK.urdf().replace(
                '<link name="elbow_link">',
                '<link name="elbow_link"><visual><geometry>'
                '<mesh filename="package://arm/elbow.stl"/></geometry></visual>',
            ),
            "link elbow_link needs the mesh 'package://arm/elbow.stl'.* meshes=False",
        ),
        (
            TWO_LINK.urdf().replace('<child link="elbow_link" />', '<child link="hand" />'),
            "joint elbow has the child link 'hand'",
        ),
    ],
)
def test_broken_urdf_is_refused_by_name(text, message, tmp_path):
    (tmp_path / "arm.urdf").write_text(text)
    with pytest.raises(RobotError, match=message):
        from_urdf(tmp_path / "arm.urdf")


def test_meshes_are_found_beside_the_file_and_no_others_are_read(tmp_path):
    """A mesh under the path that the arm names, and others of the same name elsewhere."""
    corners = ("0 0 0", "1 0 0", "0 1 0", "0 0 1")
    faces = ((0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3))
    for folder in ("arm", "other/a", "other/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "elbow.obj").write_text(
            "".join(f"v {corner}\n" for corner in corners)
            + "".join("f " + " ".join(str(i + 1) for i in face) + "\n" for face in faces)
        )
    shape = '<collision><geometry><mesh filename="package://arm/elbow.obj"/></geometry></collision>'
    text = TWO_LINK.urdf().replace('<link name="elbow_link">', f'<link name="elbow_link">{shape}')
    (tmp_path / "arm.urdf").write_text(text)
    assert from_urdf(tmp_path / "arm.urdf").robot.model.nmesh == 1


def test_meshes_can_be_left_out(tmp_path):
    shape = '<visual><geometry><mesh filename="elbow.stl"/></geometry></visual>'
    (tmp_path / "arm.urdf").write_text(
        TWO_LINK.urdf().replace('<link name="elbow_link">', f'<link name="elbow_link">{shape}')
    )
    assert from_urdf(tmp_path / "arm.urdf", meshes=False).robot.joints.dof == 2


def test_a_urdf_may_leave_an_effort_unlimited_but_not_undefined(tmp_path):
    effort = f'effort="{TWO_LINK.links[0].torque}"'
    assert effort in TWO_LINK.urdf()
    (tmp_path / "arm.urdf").write_text(TWO_LINK.urdf().replace(effort, 'effort="0"', 1))
    assert from_urdf(tmp_path / "arm.urdf").robot.limits.torque[0] == np.inf
    (tmp_path / "arm.urdf").write_text(TWO_LINK.urdf().replace(effort, 'effort="nan"', 1))
    with pytest.raises(RobotError, match=r"arm\.urdf: .*torque limit above zero.*joint 0 is nan"):
        from_urdf(tmp_path / "arm.urdf")


IN_A_BODY = "<mujoco><worldbody><body name='b'>{}<geom size='.1'/></body></worldbody></mujoco>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (IN_A_BODY.format("<freejoint name='f'/>"), "joint 'f' is a floating base"),
        (IN_A_BODY.format("<joint name='s' type='ball'/>"), "joint 's' is a ball joint"),
        (IN_A_BODY.format("<joint name='x'/><joint name='y'/>"), "body 'b' has 2 joints"),
        ("<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>", "the model has no joints"),
        (
            "<mujoco><asset><mesh name='m' file='no.stl'/></asset></mujoco>",
            "MuJoCo cannot build it: .*no.stl",
        ),
    ],
)
def test_broken_mjcf_is_refused_by_name(text, message, tmp_path):
    (tmp_path / "arm.xml").write_text(text)
    with pytest.raises(RobotError, match=message):
        from_mjcf(tmp_path / "arm.xml")


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(RobotError, match=r"none\.urdf: .*No such file or directory"):
        from_urdf(tmp_path / "none.urdf")


def test_the_differential_gives_the_published_inertia_to_both_joints():
    """The maker publishes one inertia for each joint; two equal motors must make both numbers."""
    motors = np.array([[1.0, -1 / 1.68], [-1.0, -1 / 1.68]])
    each = DRIVE_INERTIA[1] / 2
    np.testing.assert_allclose(
        motors.T @ (each * motors), np.diag(DRIVE_INERTIA[1:3]), rtol=1e-4, atol=1e-12
    )


def test_a_motor_of_a_differential_rubs_on_both_joints():
    """With one joint driven, friction of its two motors cancels in the other joint."""
    robot = CableDrivenRobot(WAM4, CableSettings(delay=0))
    robot.reset(np.zeros(4))
    weightless(robot)
    state = [robot.step(np.array([0.0, 8.0, 0.0, 0.0])) for _ in range(50)][-1]
    assert abs(state.qd[1]) > 0.1
    assert abs(state.qd[2]) < 0.05 * abs(state.qd[1])


def weightless(robot: CableDrivenRobot) -> None:
    robot._links.model.opt.gravity[:] = 0.0


def test_arms_of_a_series_differ_within_the_tolerances():
    drawn = WAM7
    one = produced(drawn, seed=1)
    for link, made in zip(drawn.links, one.links, strict=True):
        shift = np.abs(np.array(made.xyz) - link.xyz)
        turn = np.degrees(np.abs(np.array(made.rpy) - link.rpy))
        assert 0 < shift.max() <= 8e-4
        assert 0 < turn.max() <= 0.5
        assert (made.mass, made.inertia) == (link.mass, link.inertia)
    assert produced(drawn, seed=1) == one != produced(drawn, seed=2)
