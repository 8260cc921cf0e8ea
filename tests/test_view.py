"""The page without a browser: who may come in, what curves show, what a recording tells, clips."""

import re
import socket
import subprocess
import sys
import threading
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.client import connect

from delan.errors import DelanError, SettingsError
from delan.experiments.live_run import LiveSettings, begin
from delan.interfaces.cli import app
from delan.interfaces.view import ROBOTS
from delan.joints import Joints
from delan.models.rigid_body import RigidBody
from delan.realtime.addresses import WatchError
from delan.realtime.live import MODES, Audience, Counts
from delan.realtime.log import row_layout
from delan.realtime.plan import plan
from delan.report.clip import ClipSettings, Take, encoder, pictures, write_clip
from delan.robots.arms import ARMS, arm_named
from delan.robots.two_link import TWO_LINK, letter_motion
from delan.view import runs, sources
from delan.view.curves import grid, known, most, rate, shown, standstill, swaps, tracking_error
from delan.view.door import Door, address_of, is_loopback, open_server, require_token
from delan.view.live import ended_text, learner_text
from delan.view.parts import learned_dissector, rigid_dissector
from delan.view.runs import find
from delan.view.sources import LiveSource, ReplaySource, Source, arm_of

from .stand_ins import CHAIN, chain_weights, recorded_letter

DT = 2e-3


def asked(path: str = "/", **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(path, Headers({"Host": "127.0.0.1:8080", **named}))


def test_this_machine_may_come_in_and_no_other_site():
    door = Door("127.0.0.1", None)
    assert door.refusal(asked()) is None
    assert door.refusal(asked(Origin="http://127.0.0.1:8080")) is None
    assert "another site" in str(door.refusal(asked(Origin="http://evil.example")))
    assert "another site" in str(door.refusal(asked(Origin="http://127.0.0.1:9999")))
    assert "its own machine" in str(door.refusal(asked(Host="evil.example:8080")))
    assert "its own machine" in str(door.refusal(asked(Host="")))


def test_others_need_the_token():
    door = Door("0.0.0.0", "a-long-enough-token")
    assert "a token is needed" in str(door.refusal(asked(Host="robot:8080")))
    assert "a token is needed" in str(door.refusal(asked("/?token=wrong", Host="robot:8080")))
    assert "a token is needed" in str(door.refusal(asked("/?token=w%C3%B6rong", Host="robot:8080")))
    assert "a token is needed" in str(door.refusal(asked(Host="robot:8080", Cookie="delan_token=; ;;=")))
    assert door.refusal(asked("/?token=a-long-enough-token", Host="robot:8080")) is None
    assert door.refusal(asked(Host="robot:8080", Cookie="x=y; delan_token=a-long-enough-token")) is None
    assert door.refusal(asked(Host="robot:8080", Cookie="a@b=c; delan_token=a-long-enough-token")) is None
    for strange in ("ä-long-enough-token", "%C3%A4", "\udce4"):
        assert "a token is needed" in str(door.refusal(asked(f"/?token={strange}", Host="robot:8080")))


def test_who_is_refused_reads_why_and_who_comes_in_gets_a_cookie():
    def serve(connection: Any, request: Request) -> Response | None:
        return Response(200, "OK", Headers()) if request.path.startswith("/?") else None

    process = Door("0.0.0.0", "a-long-enough-token").asked(serve)
    refused = process(None, asked("/?token=wrong"))
    assert (refused.status_code, refused.headers["Content-Length"]) == (403, str(len(refused.body)))
    assert b"a token is needed" in refused.body
    served = process(None, asked("/?token=a-long-enough-token"))
    assert served.status_code == 200
    cookie, *how = served.headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict"} < set(how)
    assert process(None, asked("/socket", Cookie=cookie)) is None  # viser goes on with it
    assert "Set-Cookie" not in Door("127.0.0.1", None).asked(serve)(None, asked("/?")).headers


def test_a_place_that_cannot_be_had_is_said():
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            SettingsError, match=f"port {port} of 127.0.0.1 is taken; leave --port out to get a free one"
        ):
            open_server("127.0.0.1", port, None)
    with pytest.raises(SettingsError, match=r"this machine has no address 203\.0\.113\.7; give one of its own"):
        open_server("203.0.113.7", None, "a-long-enough-token")


@pytest.mark.parametrize(
    ("host", "token", "address"),
    [
        ("0.0.0.0", "a-long-enough-token", "http://127.0.0.1:8080/?token=a-long-enough-token"),
        ("::1", None, "http://[::1]:8080/"),
        ("192.168.1.5", None, "http://192.168.1.5:8080/"),
    ],
)
def test_the_address_is_what_a_browser_understands(host, token, address):
    assert address_of(SimpleNamespace(get_host=lambda: host, get_port=lambda: 8080), token) == address


@pytest.mark.parametrize(("host", "token"), [("0.0.0.0", None), ("192.168.1.5", ""), ("::", None), ("robot", None)])
def test_no_other_machine_without_a_token(host, token):
    assert not is_loopback(host)
    with pytest.raises(SettingsError, match="lets other machines steer the robot"):
        require_token(host, token)
    with pytest.raises(SettingsError, match="can be guessed"):
        require_token(host, "short")
    for wrong in ("a token with blanks", "twelve-letterß", "semi;colon;token", "question?&token"):
        with pytest.raises(SettingsError, match="give letters a to z, digits and"):
            require_token(host, wrong)
    require_token(host, "a-long-enough-token")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_this_machine_needs_none(host):
    require_token(host, None)


def test_the_library_below_says_nothing(capfd):
    server = open_server("127.0.0.1", 0, None)
    url = f"ws://127.0.0.1:{server.get_port()}/"
    with connect(url, subprotocols=["viser-v0.0.0"]) as visitor, suppress(ConnectionClosed):  # pyright: ignore[reportArgumentType]
        visitor.recv(timeout=10)
    server.stop()
    assert tuple(capfd.readouterr()) == ("", "")


def columns_of(t, **more):
    t = np.asarray(t, dtype=float)
    zero = np.zeros((len(t), 2))
    return {"t": t[:, None], "q": zero, "q_des": zero, "model": zero[:, :1], **more}


def test_curves_show_the_last_seconds():
    t = np.arange(0, 5, DT)
    columns = columns_of(t)
    at = grid(columns, seconds=12.0, points=240)
    assert at.t[-1] == pytest.approx(t[-1])
    assert np.diff(at.t) == pytest.approx(0.05)
    value = shown(t, at)
    assert np.isnan(value[: 240 - 100]).all()
    np.testing.assert_allclose(value[-99:], at.t[-99:], atol=DT)
    nothing = grid(columns_of([]))
    assert not nothing.there.any()
    assert np.isnan(shown(np.zeros(0), nothing)).all()


def test_an_axis_gets_no_moment_without_a_value():
    t, nan = np.arange(4.0), np.nan
    moments, first, second = known(t, np.array([nan, 1.0, 2.0, 3.0]), np.array([nan, nan, 5.0, 6.0]))
    assert (moments.tolist(), first.tolist(), second.tolist()) == ([2, 3], [2, 3], [5, 6])
    nothing = known(t, np.full(4, nan))
    assert len(nothing[0]) == 4


def test_a_rare_late_period_is_seen():
    t = np.arange(0, 5, DT)
    late = np.zeros(len(t))
    late[1234] = 7.0
    assert np.nanmax(most(late, grid(columns_of(t)))) == 7.0


def test_error_rate_and_swaps_are_what_they_say():
    t = np.arange(0, 5, DT)
    rng = np.random.default_rng(0)
    q_des = rng.standard_normal((len(t), 2))
    model = np.floor(t)[:, None]
    columns = columns_of(t, q_des=q_des, model=model)
    error = tracking_error(columns, DT)
    np.testing.assert_allclose(error[2000], np.sqrt(np.mean(q_des[2000 - 124 : 2001] ** 2, axis=0)))
    np.testing.assert_allclose(error[0], np.abs(q_des[0]))
    np.testing.assert_allclose(swaps(columns), [1, 2, 3, 4], atol=1e-9)
    grown = rate(300 * t, t, grid(columns))
    np.testing.assert_allclose(grown[-1], 300, rtol=1e-3)


def test_a_learner_that_stands_still_is_told_of():
    t = np.arange(0, 10, DT)
    learner = np.zeros((len(t), 4))
    learner[:, 2] = np.minimum(np.floor(10 * t), 40)
    assert standstill(columns_of(t, learner=learner)) == pytest.approx(6, abs=2 * DT)
    assert "no samples for more than 6 s" in learner_text(6.4)
    learner[:, 2] = np.floor(t)
    assert standstill(columns_of(t, learner=learner)) == pytest.approx(1, abs=2 * DT)
    assert learner_text(1.0) == ""
    learner[t < 9, 2] = np.nan  # it leads for a second
    learner[t >= 9, 2] = 7
    assert standstill(columns_of(t, learner=learner)) == pytest.approx(1, abs=2 * DT)
    learner[:, 2] = np.nan
    assert "still compiles" in learner_text(standstill(columns_of(t, learner=learner)))


def test_the_page_says_that_a_run_is_over_and_how_to_go_on():
    broadcast, address = begin(LiveSettings())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with (
        closing(broadcast),
        closing(Audience(address)) as here,
        closing(Audience(replace(address, pid=gone.pid))) as over,
    ):
        assert here.phase == "preparing"
        here.order(mode=MODES.index("stop"))
        assert here.phase == "stopping"
        assert over.phase == "stopped"
        assert "has ended by itself" in ended_text(over)
        over.order(mode=MODES.index("stop"))
        assert "was stopped" in ended_text(over)
        assert "begin a new run with `delan view two-link`" in ended_text(over)


def test_a_recording_tells_now_and_what_comes(tmp_path):
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


def test_parts_are_those_of_the_model(tmp_path):
    source = ReplaySource(recorded_letter(tmp_path))
    q, qd, qdd = (source.columns[name][::20] for name in ("q_des", "qd_des", "qdd_des"))
    truth = RigidBody.from_urdf(TWO_LINK.urdf())
    parts, least = rigid_dissector(truth)(None, q, qd, qdd)
    np.testing.assert_allclose(parts.sum(axis=1), source.columns["tau_ff"][::20], atol=2.0)  # of 200 Hz, held
    dissector = learned_dissector(CHAIN)
    assert dissector is not None
    learned, eigenvalues = dissector(chain_weights(), q, qd, qdd)
    np.testing.assert_allclose(learned, parts, atol=1e-8)
    np.testing.assert_allclose(eigenvalues, least, atol=1e-8)


@pytest.fixture
def take(tmp_path):
    source = ReplaySource(recorded_letter(tmp_path))
    t = source.columns["t"][:, 0]
    return Take("true model", t, source.columns["q"], source.columns["q_des"], np.array([0.3]))


def test_a_clip_moves_as_fast_as_the_run(take, tmp_path):
    frames = list(pictures(TWO_LINK, [take, take], ClipSettings(period=250)))
    write_clip(tmp_path / "clip.gif", iter(frames), 250)
    with Image.open(tmp_path / "clip.gif") as clip:
        seen, shown = [], 0
        for number in range(getattr(clip, "n_frames", 1)):
            clip.seek(number)
            seen.append(np.asarray(clip.convert("RGB"), dtype=float))
            shown += clip.info["duration"]
    assert np.abs(seen[2] - seen[0]).max() > 50
    assert shown == 250 * len(frames)
    assert shown == pytest.approx(1000 * (take.t[-1] - take.t[0]), abs=250)


def test_times_that_a_gif_cannot_keep_are_refused():
    with pytest.raises(SettingsError, match="got 67; a GIF knows no other times"):
        ClipSettings(period=67)
    with pytest.raises(SettingsError, match="got 10"):
        ClipSettings(period=10)


def test_an_mp4_shows_the_same(take, tmp_path):
    try:
        ffmpeg = encoder()
    except SettingsError as error:
        pytest.skip(str(error))
    frames = list(pictures(TWO_LINK, [take], ClipSettings(period=250)))
    write_clip(tmp_path / "clip.mp4", iter(frames), 250)
    decode = [ffmpeg, "-loglevel", "error", "-i", tmp_path / "clip.mp4", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(decode, capture_output=True, check=True).stdout
    seen = np.frombuffer(raw, np.uint8).reshape(-1, *frames[0].shape)
    assert np.abs(seen.astype(float) - frames).mean() < 3
    told = subprocess.run([ffmpeg, "-i", tmp_path / "clip.mp4"], capture_output=True, text=True, check=False).stderr
    minutes, seconds = re.findall(r"Duration: 00:(\d\d):([\d.]+)", told)[0]
    assert (int(minutes), float(seconds)) == (0, pytest.approx(0.25 * len(frames), abs=0.02))
    assert not list(tmp_path.glob(".*"))


def test_an_mp4_without_its_encoder_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    told = CliRunner().invoke(app, ["view", "two-link", "--record", str(tmp_path / "clip.mp4")])
    assert told.exit_code == 1
    assert "-m pip install 'delan[video]'" in " ".join(told.output.split())


def test_an_encoder_that_fails_leaves_nothing(take, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: "/bin/false")
    with pytest.raises(SettingsError, match="/bin/false ended with code 1"):
        write_clip(tmp_path / "clip.mp4", pictures(TWO_LINK, [take], ClipSettings(period=250)), 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recording.run"]


@pytest.mark.slow
def test_a_clip_of_a_run_is_as_long_as_was_asked_for(tmp_path):
    words = ["two-link", "--feedforward", "pd", "--seconds", "2", "--record", str(tmp_path / "clip.gif")]
    told = CliRunner().invoke(app, ["view", *words])
    assert told.exit_code == 0, told.output
    with Image.open(tmp_path / "clip.gif") as clip:
        shown = 0
        for number in range(getattr(clip, "n_frames", 1)):
            clip.seek(number)
            shown += clip.info["duration"]
    assert shown == pytest.approx(2000, abs=60)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing.run",), "nothing.run is neither a robot"),
        (("wam4", "--reference", "letters"), "letters are not for wam4"),
        (("two-link", "--host", "0.0.0.0"), "lets other machines steer the robot"),
        (("running",), "no run of yours goes on here"),
        (("two-link", "--record", "clip.avi"), "a clip is a .gif or an .mp4"),
        (("running", "--record", "clip.gif"), "a clip is made of a recording or of a new run"),
    ],
)
def test_impossible_wishes_are_refused(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    shown = CliRunner().invoke(app, ["view", *words, "--port", "0"])
    assert shown.exit_code == 1
    assert message in " ".join(shown.output.split())


def test_the_command_knows_every_arm():
    assert tuple(ARMS) == ROBOTS


def test_a_recording_of_something_else_is_refused(tmp_path):
    with pytest.raises(DelanError):
        ReplaySource(tmp_path / "none.run")


@pytest.mark.usefixtures("as_shipped")
def test_a_run_that_does_not_come_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    stop, run = threading.Event(), SimpleNamespace(pid=1, returncode=None, poll=lambda: run.returncode)
    found: Any = partial(find, run, stop)  # pyright: ignore[reportArgumentType]
    stop.set()
    assert found() is None
    monkeypatch.setattr(runs, "START_SECONDS", -1.0)
    with pytest.raises(WatchError, match="the run was not there after -1 s; the machine is too busy"):
        found()
    run.returncode = 3
    with pytest.raises(WatchError, match="the run ended with code 3 before it could be watched; see above for why"):
        found()


def test_a_run_is_followed_row_by_row_and_its_past_falls_away(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(sources, "KEPT_SECONDS", 0.2)
    broadcast, address = begin(LiveSettings())
    with closing(broadcast), closing(LiveSource(address)) as source:
        assert isinstance(source, Source)
        assert (source.arm, source.dt, source.poll(), len(source.ahead())) == (TWO_LINK, DT, 0, 0)
        assert len(source.recent(1.0)["t"]) == 0
        wanted, layout = plan(letter_motion("c", dt=DT), TWO_LINK.limits, DT), row_layout(2)
        for period in range(150):
            row = np.zeros(layout.width)
            row[layout.slices["t"]] = period * DT
            broadcast.see(row, wanted, period, Counts(0.0, 0, 0, 0))
        assert (source.poll(), source.poll()) == (150, 0)
        np.testing.assert_allclose(source.recent(1.0)["t"][:, 0], np.arange(50, 150) * DT)
        np.testing.assert_allclose(source.recent(0.02)["t"][:, 0], np.arange(139, 150) * DT, atol=1e-9)
        assert source.ahead().shape[1] == 2
        np.testing.assert_array_equal(source.ahead()[-1], wanted.rows[-1, :2])


def test_a_recording_is_of_an_arm_that_can_be_drawn():
    assert arm_of(Joints.revolute(7), "two-link") is arm_named("two-link")
    assert arm_of(ARMS["wam4"].joints) is ARMS["wam4"]
    with pytest.raises(WatchError, match="no arm of the package has the joints joint0, joint1; recordings of"):
        arm_of(Joints.revolute(2))
