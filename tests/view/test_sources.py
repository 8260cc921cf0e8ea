"""Runs and recordings as rows, the torque components of their models, and the processes of runs."""

import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from delan.errors import DelanError
from delan.joints import Joints
from delan.models.rigid_body import RigidBody
from delan.online.broadcast import MODES, Audience, ShownPeriod, WatchError
from delan.online.host_process import LiveSettings, begin
from delan.online.schedule import make_schedule
from delan.online.stats import row_layout
from delan.robots import ARMS, arm_named
from delan.robots.arms import TWO_LINK, letter_motion
from delan.view import run_process, sources
from delan.view.live_page import ended_text
from delan.view.run_process import wait_for_address
from delan.view.sources import (
    LiveSource,
    ReplaySource,
    Source,
    learned_decomposition,
    recorded_arm,
    rigid_body_decomposition,
)
from tests.support.stand_ins import CHAIN, chain_weights, recorded_letter

DT = 2e-3


def test_a_recording_gives_its_past_and_its_desired_motion(tmp_path):
    source = ReplaySource(recorded_letter(tmp_path))
    assert source.arm is TWO_LINK
    source.now = 0.5
    columns = source.recent(0.2)
    assert columns["t"][-1, 0] == pytest.approx(0.5, abs=DT)
    assert len(columns["t"]) == pytest.approx(100, abs=2)
    np.testing.assert_array_equal(source.ahead()[0], columns["q_des"][-1])
    assert source.model is None
    source.now = 1e9
    assert len(source.ahead()) == 1


def test_a_missing_recording_is_refused(tmp_path):
    with pytest.raises(DelanError):
        ReplaySource(tmp_path / "none.run")


def test_the_arm_of_a_recording_must_be_known():
    assert recorded_arm(Joints.revolute(7), "two-link") is arm_named("two-link")
    assert recorded_arm(ARMS["wam4"].joints) is ARMS["wam4"]
    with pytest.raises(WatchError, match="joints joint0, joint1; give a recording of one of"):
        recorded_arm(Joints.revolute(2))


def test_a_run_is_read_row_by_row_and_old_rows_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(sources, "HISTORY_SECONDS", 0.2)
    broadcast, address = begin(LiveSettings())
    with closing(broadcast), closing(LiveSource(address)) as source:
        assert isinstance(source, Source)
        assert (source.arm, source.dt, source.poll(), len(source.ahead())) == (TWO_LINK, DT, 0, 0)
        assert len(source.recent(1.0)["t"]) == 0
        wanted = make_schedule(letter_motion("c", dt=DT), TWO_LINK.limits, DT)
        layout = row_layout(2)
        for period in range(150):
            row = np.zeros(layout.width)
            row[layout.slices["t"]] = period * DT
            broadcast.see(ShownPeriod(period, row, wanted.rows[period:], 0.0, 0, 0, 0))
        assert (source.poll(), source.poll()) == (150, 0)
        np.testing.assert_allclose(source.recent(1.0)["t"][:, 0], np.arange(50, 150) * DT)
        np.testing.assert_allclose(
            source.recent(0.02)["t"][:, 0], np.arange(139, 150) * DT, atol=1e-9
        )
        assert source.ahead().shape[1] == 2
        np.testing.assert_array_equal(source.ahead()[-1], wanted.rows[-1, :2])


def test_an_ended_run_says_how_to_start_a_new_one():
    broadcast, address = begin(LiveSettings())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with (
        closing(broadcast),
        closing(Audience(address)) as present,
        closing(Audience(replace(address, pid=gone.pid))) as ended,
    ):
        assert present.phase == "preparing"
        present.order(mode=MODES.index("stop"))
        assert present.phase == "stopping"
        assert ended.phase == "stopped"
        assert "has ended" in ended_text(ended)
        ended.order(mode=MODES.index("stop"))
        assert "was stopped" in ended_text(ended)
        assert "`delan view two-link`" in ended_text(ended)


@pytest.mark.usefixtures("as_shipped")
def test_a_run_that_does_not_start_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    run: Any = SimpleNamespace(pid=1, returncode=None, poll=lambda: run.returncode)
    stop = threading.Event()
    stop.set()
    assert wait_for_address(run, stop) is None
    monkeypatch.setattr(run_process, "START_SECONDS", -1.0)
    with pytest.raises(WatchError, match="not started after -1 s"):
        wait_for_address(run, stop)
    run.returncode = 3
    with pytest.raises(WatchError, match="ended with exit code 3"):
        wait_for_address(run, stop)


def test_torque_components_are_those_of_the_model(tmp_path):
    source = ReplaySource(recorded_letter(tmp_path))
    q, qd, qdd = (source.columns[name][::20] for name in ("q_des", "qd_des", "qdd_des"))
    truth = RigidBody.from_urdf(TWO_LINK.urdf())
    parts, least = rigid_body_decomposition(truth)(None, q, qd, qdd)
    # The recorded torque is computed at 200 Hz and held in between.
    np.testing.assert_allclose(parts.sum(axis=1), source.columns["tau_ff"][::20], atol=2.0)
    decompose = learned_decomposition(CHAIN)
    assert decompose is not None
    learned, eigenvalues = decompose(chain_weights(), q, qd, qdd)
    np.testing.assert_allclose(learned, parts, atol=1e-8)
    np.testing.assert_allclose(eigenvalues, least, atol=1e-8)
