"""A window into a running loop: what onlookers see, what they can order, and that the loop does not
depend on them.
"""

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco as mujoco_module
import numpy as np
import pytest

from delan.errors import RobotError
from delan.online.admission import Admission
from delan.online.broadcast import (
    MODES,
    Address,
    Audience,
    Broadcast,
    Orders,
    ShownPeriod,
    WatchError,
    address_folder,
    announce,
    read_address,
    running,
)
from delan.online.channels import ChannelError, Latest, Stream
from delan.online.clocks import SteppedClock
from delan.online.controller import Compiled, NoFeedForward, on_device
from delan.online.host import Host
from delan.online.host_process import LiveSettings, begin
from delan.online.learner import LearnerSettings
from delan.online.learner_process import ProcessLearner
from delan.online.learner_worker import Task
from delan.online.loop import LoopSettings, run_loop
from delan.online.online_run import KICK_SECONDS, DisturbedRobot
from delan.online.recorder import Recorder, RecordingFormat
from delan.online.rig import Observers, Rig
from delan.online.schedule import make_schedule
from delan.online.stats import row_layout
from delan.robots.arms import TWO_LINK, letter_motion, pen_position
from delan.robots.mujoco_robot import MujocoRobot, VisualModel
from delan.robots.robot import low_gains
from tests.support.stand_ins import CHAIN, chain_weights

mujoco: Any = mujoco_module  # its names are made at import, where the type checker cannot see them
DT = 2e-3


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def lead(onlooker, *, stop=None, letter="c"):
    robot = MujocoRobot.of(TWO_LINK, dt=DT)
    motion = letter_motion(letter, dt=DT)
    rig = Rig(robot, low_gains(TWO_LINK), NoFeedForward(TWO_LINK.joints))
    observers = Observers(onlooker=onlooker, stop=stop or threading.Event())
    return run_loop(rig, motion, SteppedClock(), observers=observers)


def test_many_onlookers_see_every_row_and_the_reader_loses_none():
    with Stream(8, 2) as stream:
        seen = 0
        for k in range(5):
            stream.write([k, -k])
        for _ in range(2):
            rows, seen = stream.since(0)
            assert rows[:, 0].tolist() == [0, 1, 2, 3, 4]
        stream.write([5, -5])
        assert stream.since(seen)[0].tolist() == [[5, -5]]
        assert stream.read()[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
        assert stream.lost == 0
        for k in range(20):
            stream.write([k, 0])
        assert stream.since(6)[0][:, 0].tolist() == list(range(12, 20))  # the oldest are gone
        assert stream.unread == 20


def test_what_is_shown_is_what_happened():
    settings = LiveSettings()
    broadcast, address = begin(settings)
    audience = Audience(address)
    result = lead(broadcast)
    columns = audience.layout.unpack(audience.rows())
    assert len(audience.rows()) == 0
    for name in ("q", "qd", "tau", "q_des", "tau_ff"):
        np.testing.assert_array_equal(columns[name], getattr(result, name))
    np.testing.assert_array_equal(columns["t"][:, 0], result.t)
    assert (columns["missed"] == 0).all()
    ahead = audience.ahead()
    assert ahead is not None
    np.testing.assert_allclose(
        ahead[-1], result.q_des[-1], atol=1e-12
    )  # the end of the motion stays
    broadcast.close()
    audience.close()


def test_counts_go_on_from_one_stretch_to_the_next():
    broadcast, address = begin(LiveSettings())
    audience = Audience(address)
    row = np.zeros(row_layout(2).width)
    wanted = make_schedule(letter_motion("c", dt=DT), TWO_LINK.limits, DT)
    for _ in range(2):
        broadcast.begin()
        broadcast.see(ShownPeriod(0, row, wanted.rows, 0.0, missed=2, late=1, refused=3))
    columns = audience.layout.unpack(audience.rows())
    assert columns["missed"][:, 0].tolist() == [2, 4]
    assert columns["refused"][:, 0].tolist() == [3, 6]
    broadcast.close()
    audience.close()


def test_an_order_to_stop_brakes_the_robot():
    stop = threading.Event()
    broadcast = Broadcast(2, DT, stop=stop)
    _, address = begin(LiveSettings())
    audience = Audience(Address(**{**address.__dict__, **broadcast.names}))
    audience.order(mode=MODES.index("stop"))
    result = lead(broadcast, stop=stop, letter="m")
    assert result.ended == "interrupted"
    assert result.t[-1] < 1.0
    assert np.abs(result.qd[-1]).max() < 0.2
    audience.close()
    broadcast.close()


def test_orders_survive_the_way_and_garbage_is_ignored():
    broadcast, address = begin(LiveSettings(model="analytic", speed=1.5))
    audience, other = Audience(address), Audience(address)
    assert audience.wanted == Orders(model=1, speed=1.5)
    audience.order(kicks=1, payload=0.3)
    assert broadcast.orders() == Orders(model=1, speed=1.5, kicks=1, payload=0.3)
    audience._orders.write(np.full(len(Orders._fields), np.nan))
    assert broadcast.orders().kicks == 1
    other.close()
    late = Audience(
        address
    )  # who comes later goes on from what was wanted last, as far as it can be read
    audience.order(kicks=2)
    assert broadcast.orders().kicks == 2
    for item in (audience, late, broadcast):
        item.close()


def test_a_run_can_wait_for_those_who_look():
    broadcast, address = begin(LiveSettings())
    assert not broadcast.await_audience(0.0)
    audience = Audience(address)
    assert not broadcast.await_audience(0.05)
    audience.order()
    assert broadcast.await_audience(0.0)
    assert broadcast.orders() == Orders(model=4)
    audience.close()
    broadcast.close()


def test_runs_are_found_and_what_dead_ones_left_is_cleared_away():
    assert running() == []
    broadcast, address = begin(LiveSettings())
    here = address_folder() / f"{os.getpid()}.json"
    announce(address, here)
    gone = address_folder() / "4194304.json"
    announce(Address(**{**address.__dict__, "pid": 4194304}), gone)
    (address_folder() / "junk.json").write_text("{")
    assert [(item.pid, item.rows, item.models) for item in running()] == [
        (os.getpid(), address.rows, address.models)
    ]
    assert not gone.exists()
    with pytest.raises(WatchError, match="not the address of a run"):
        read_address(address_folder() / "junk.json")
    broadcast.close()
    with pytest.raises(WatchError, match="cannot be watched"):
        Audience(address)


def test_a_run_that_ends_while_it_is_looked_at_is_no_error():
    broadcast, address = begin(LiveSettings())
    here = address_folder() / f"{os.getpid()}.json"
    announce(address, here)
    audience = Audience(address)
    here.write_text("{")  # read while it is taken away
    assert audience.weights("delan") is None
    announce(replace(address, weights={"delan": "gone"}), here)
    assert audience.weights("delan") is None
    (address_folder() / "gone.json").symlink_to("nowhere")  # listed, and not there any more
    assert [item.pid for item in running()] == [os.getpid()]
    audience.close()
    broadcast.close()


def test_learned_models_can_be_seen_as_soon_as_they_are_told():
    broadcast, address = begin(LiveSettings())
    here = address_folder() / f"{address.pid}.json"
    announce(address, here)
    with Latest(3) as weights:
        audience = Audience(address)
        assert audience.weights("delan") is None
        announce(replace(address, weights={"delan": weights.name}), here)
        assert audience.weights("feedforward") is None
        assert audience.weights("delan") is None  # nothing learned yet
        weights.write([1, 2, 3])
        np.testing.assert_array_equal(audience.weights("delan"), [1, 2, 3])
        assert audience.weights("delan") is None  # nothing new
        audience.close()
    broadcast.close()


def test_before_a_sudden_end_a_run_leaves_nothing_behind():
    broadcast, address = begin(LiveSettings())
    broadcast.remove()
    assert not [name for name in broadcast.names.values() if Path("/dev/shm", name).exists()]
    with pytest.raises(WatchError, match="cannot be watched"):
        Audience(address)
    broadcast.close()


def test_a_run_of_somebody_else_is_left_and_his_folder_not_used(monkeypatch):
    def forbidden(pid: int, sign: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    broadcast, address = begin(LiveSettings())
    here = address_folder() / f"{address.pid}.json"
    announce(address, here)
    monkeypatch.setattr(os, "kill", forbidden)
    assert [item.pid for item in running()] == [address.pid]
    assert here.exists()
    monkeypatch.setattr(os, "getuid", lambda: here.stat().st_uid + 1)
    with pytest.raises(WatchError, match="set XDG_RUNTIME_DIR"):
        address_folder()
    broadcast.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"robot": "wam4"}, "wam4 cannot follow letters"),
        ({"model": "delan", "models": ("none",)}, "expected models among"),
        ({"seconds": 0.0}, "seconds and speed must be positive"),
    ],
)
def test_impossible_runs_are_refused(wrong, message):
    with pytest.raises(Exception, match=message):
        LiveSettings(**wrong)


def test_a_kick_pushes_and_a_payload_weighs():
    def fall(prod) -> np.ndarray:
        robot = DisturbedRobot(MujocoRobot.of(TWO_LINK, dt=DT))
        robot.reset(np.array([0.5, 0.5]))
        prod(robot)
        return np.array([robot.step(np.zeros(2)).qd for _ in range(round(2 * KICK_SECONDS / DT))])

    plain, kicked = fall(lambda robot: None), fall(lambda robot: robot.kick())
    gained = np.abs(kicked - plain).max(axis=1)
    assert 0 < gained[0] < gained.max()
    assert gained.max() > 1.0
    loaded = fall(lambda robot: robot.load(1.0))
    unloaded = fall(lambda robot: (robot.load(1.0), robot.load(0.0)))
    assert not np.allclose(loaded, plain)
    np.testing.assert_array_equal(unloaded, plain)


def test_a_torque_that_is_no_number_is_refused_while_the_arm_is_kicked():
    robot = DisturbedRobot(MujocoRobot.of(TWO_LINK, dt=DT))
    robot.kick()
    with pytest.raises(RobotError, match=r"the torque of joint \w+ is nan"):
        robot.step(np.array([np.nan, 0.0]))


def test_a_host_ends_its_recording_first_and_leaves_no_channel(tmp_path, capsys):
    broadcast, _ = begin(LiveSettings())
    host, ended, shown = Host(LiveSettings(), broadcast), [], Latest(3)

    class Failing(ProcessLearner):
        def close(self) -> None:
            super().close()
            ended.append("learner")
            raise KeyboardInterrupt

    class Full(Recorder):
        def close(self, *, patience: float = 10.0) -> None:
            super().close(patience=patience)
            ended.append("recording")
            self.problem = "a.run: recording stopped after 0 rows: No space left on device"

    host._shown["delan"] = shown
    learner = Failing(Task(CHAIN, DT, LearnerSettings(), seed=0))
    session = host._session
    none = NoFeedForward(TWO_LINK.joints)
    session.rigs["delan"] = Rig(session.robot, low_gains(TWO_LINK), none, learner=learner)
    content = RecordingFormat(TWO_LINK.joints, row_layout(2), DT)
    session.recorder = Full(tmp_path / "a.run", content)
    with pytest.raises(KeyboardInterrupt):
        host.close()
    assert ended == ["recording", "learner"]
    assert "delan: a.run: recording stopped after 0 rows" in capsys.readouterr().err
    with pytest.raises(ChannelError):
        Latest.attach(shown.name)
    broadcast.close()


def test_the_mannequin_stands_where_the_arm_is():
    visual, rng = VisualModel.of(TWO_LINK), np.random.default_rng(0)
    q = rng.uniform(-2, 2, (20, 2))
    path = visual.tool_path(q)
    np.testing.assert_allclose(path[:, [0, 2]], pen_position(q), atol=1e-12)
    np.testing.assert_allclose(visual.at(q[3]).tool, path[3])
    for look in visual.meshes():
        a, b, c = (look.vertices[look.faces[:, corner]] for corner in range(3))
        volume = np.einsum("ij,ij->", a, np.cross(b, c)) / 6
        assert volume > 0  # closed, and faces look outwards
        length = np.ptp(look.vertices, axis=0).max()
        assert length < 0.6


SHAPES = """
<mujoco><asset><mesh name="corner" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/></asset><worldbody>
  <geom type="plane" size="1 1 1"/>
  <geom type="box" size="0.1 0.2 0.3" pos="1 2 3" euler="10 20 30"/>
  <geom type="cylinder" size="0.1 0.4"/>
  <geom type="ellipsoid" size="0.1 0.2 0.3"/>
  <geom type="mesh" mesh="corner"/>
  <geom type="sphere" size="0.1" rgba="1 1 1 0"/>
</worldbody></mujoco>"""


def test_every_solid_has_its_volume_and_what_has_no_end_or_no_color_is_left_out():
    box, cylinder, ellipsoid, corner = VisualModel(mujoco.MjModel.from_xml_string(SHAPES)).meshes()
    found = []
    for look in (box, cylinder, ellipsoid, corner):
        a, b, c = (
            look.vertices[look.faces[:, place]] - look.vertices.mean(axis=0) for place in range(3)
        )
        found.append(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)
    np.testing.assert_allclose(found[0], 8 * 0.1 * 0.2 * 0.3, rtol=1e-12)
    np.testing.assert_allclose(
        found[1:3], [np.pi * 0.01 * 0.8, 4 / 3 * np.pi * 0.006], rtol=0.05
    )  # of flat faces
    np.testing.assert_allclose(found[3], 1 / 6, rtol=1e-6)
    assert (found[1] < np.pi * 0.01 * 0.8) & (found[2] < 4 / 3 * np.pi * 0.006)
    np.testing.assert_allclose(box.vertices.mean(axis=0), [1, 2, 3])
    np.testing.assert_allclose(corner.vertices.min(axis=0), 0, atol=1e-6)  # where it was drawn


def test_a_gate_compiles_once_for_the_same_models():
    feed_forward = Compiled(CHAIN)
    robot = MujocoRobot.of(TWO_LINK, dt=DT)
    gates = [Admission(feed_forward, robot.limits, DT, LoopSettings().admission) for _ in range(2)]
    for gate in gates:
        gate.prepare()
    assert len(feed_forward.judges) == 1
    feed_forward.take(on_device(chain_weights()))
    target = letter_motion("c", dt=DT)
    feed_forward.prepare(target.q[0])
    assert np.abs(np.asarray(feed_forward.ready(wait=True))).max() > 0.1
    feed_forward.forget()
    assert feed_forward.weights is None
    assert (np.asarray(feed_forward.ready(wait=True)) == 0).all()
