"""Logs exactly as their owners publish them, by the command line alone, to C code or a refusal.

    python -m benchmarks.raw_logs [--data FOLDER] [panda kuka ur3 …]

Each case is three commands: `delan check FOLDER` without any option, the fit that it leads to, and
the export. Numbers that no log says (sampling rates, gains of drives) are those of its owner. The
layouts of the Panda (four text files, a number a line) and of the KUKA (a MATLAB struct of structs,
arrays of joints × samples in degrees) are made again from `../shared/data`. The result has the
commands, the command that the check proposes, exit codes, the verdict of the fit and the seconds of
each. Writes to `benchmarks/results`.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy.io

from delan.models.rigid_body import RigidBody
from delan.motions.cosines import cosines
from delan.robots.arms import WAM7

from .results import read_results, write_results

DATA = Path(__file__).parents[2] / "shared" / "data"
CHECK = "check {folder} --json"
FIT = "fit {log} -o {name}.delan --json"
EXPORT = "export {name}.delan -o {name}_c"


def write_panda(data: Path, folder: Path) -> None:
    """Write four text files with one number a line."""
    log = np.load(data / "panda_first75.npz")
    files = {"time": "t", "positions": "q", "velocities": "qd", "torques": "tau"}
    for name, quantity in files.items():
        np.savetxt(folder / f"{name}.txt", log[quantity].ravel(), fmt="%.9g")


def write_kuka(data: Path, folder: Path) -> None:
    """Write a struct of structs; positions are of the link for three joints only."""
    log = np.load(data / "kuka_kr300_A.npz")
    record = {
        "time": log["A_t"],
        "act_pos_se_deg": np.rad2deg(log["A_q"]).T,
        "act_pos_mot_deg": np.rad2deg(log["A_q_motor_side"]).T,
        "act_trq": log["A_tau_motor"].T,
    }
    scipy.io.savemat(folder / "kuka.mat", {"data": {"rec": record}})


# Motor radians per joint radian: gears, and a wrist whose last two joints share a motor.
TRANSMISSION = np.diag([80.0, -100.0, 90.0, 50.0, 45.0, 32.0])
TRANSMISSION[5, 4] = 32.0
TORQUE_PER_AMPERE = 0.1
TX40_RATE = 5000.0


def write_tx40(_: Path, folder: Path) -> None:
    """Write positions and currents of motors under the same names, without times, simulated.

    The arm is the WAM with its last joint at rest, with friction and noise.
    """
    motion = cosines(WAM7.limits, key=jax.random.key(5), share=0.5, duration=20.0)
    rows = motion.sample(1 / TX40_RATE)
    moving = (np.arange(rows.q.shape[1]) < len(TRANSMISSION)).astype(float)
    q, qd, qdd = rows.q * moving, rows.qd * moving, rows.qdd * moving
    tau = RigidBody.from_urdf(WAM7.urdf()).rows(q, qd, qdd).total
    tau = tau + 0.1 * tau.std(axis=0) * np.tanh(qd / 0.02)
    noise = np.random.default_rng(0).standard_normal(tau.shape)
    tau = (tau + 0.01 * tau.std(axis=0) * noise)[:, : len(TRANSMISSION)]
    motors = q[:, : len(TRANSMISSION)] @ TRANSMISSION.T
    # Power is the same on both sides of the gears.
    currents = np.linalg.solve(TRANSMISSION.T, tau.T).T / TORQUE_PER_AMPERE
    names = ",".join(f"motor{number}" for number in range(1, len(TRANSMISSION) + 1))
    for name, values in (("positions", motors), ("currents", currents)):
        np.savetxt(folder / f"{name}.csv", values, "%.6g", delimiter=",", header=names, comments="")


MADE: dict[str, Callable[[Path, Path], None]] = {
    "panda": write_panda,
    "kuka": write_kuka,
    "tx40": write_tx40,
}
# What is checked first, as it lies there.
FOLDERS = {"panda": ".", "kuka": ".", "tx40": ".", "wam": "{data}/wam7_real_neg_500Hz.npz"}
# The logs of each fit with their options; folders of robots are those of the data.
LOGS = {
    "panda": "time.txt --join positions.txt --join torques.txt --join velocities.txt --columns 7",
    "kuka": "kuka.mat --map 'q=act_pos_se_deg[0-2],act_pos_mot_deg[3-5]'",
    "tx40": "positions.csv --join currents.csv --map 'q=motor{{}}' --map "
    "'current=currents.motor{{}}' --rate 5000 --gain 0.1 --transmission "
    "'80,0,0,0,0,0;0,-100,0,0,0,0;0,0,90,0,0,0;0,0,0,50,0,0;0,0,0,0,45,0;0,0,0,0,32,32'",
    "wam": "{data}/wam7_real_neg_500Hz.npz --rate 500 --kp 200,300,100,100,10,10,2.5 "
    "--kd 7,15,5,2.5,.3,.3,.05 --offset q_des:0,.5876,0,1.36,0,-.321,-1.57",
    "ur3": "{data}/robots/ur3 --map t=mt --map q=mq --map qd=mdq --map tau=mtorque --flip tau",
    "ur10": "{data}/robots/ur10",
    "double_pendulum": "{data}/robots/double_pendulum",
    "med7": "{data}/robots/med7 --rate 100",
    "z1": "{data}/robots/z1 --joints 0,1,2,3,4,5",
    "go2": "{data}/robots/go2",
    "servo": "{data}/robots/servo",
}


def typed(name: str, data: Path) -> list[str]:
    """Return the commands of a case."""
    folder = FOLDERS.get(name, f"{{data}}/robots/{name}").format(data=data)
    log = LOGS[name].format(data=data)
    return [CHECK.format(folder=folder), FIT.format(log=log, name=name), EXPORT.format(name=name)]


def run_case(name: str, data: Path) -> dict[str, Any]:
    """Type the commands of a case in an empty folder until one refuses."""
    steps = []
    outcome: dict[str, Any] = {"commands": steps}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if name in MADE:
            MADE[name](data, folder)
        for command in typed(name, data):
            began = time.perf_counter()
            words = [sys.executable, "-m", "delan.cli.main", *shlex.split(command)]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            seconds_taken = round(time.perf_counter() - began, 1)
            steps.append(
                {
                    "command": f"delan {command.replace(str(data), 'DATA')}",
                    "exit": done.returncode,
                    "seconds": seconds_taken,
                }
            )
            if command.startswith("check"):
                # The check may refuse the log: it says how to read it, and the next command does.
                checked = json.loads(done.stdout)
                proposed = checked.get("command") or checked.get("next") or ""
                outcome["proposed"] = proposed.replace(str(data), "DATA")
            if command.startswith("fit") and not done.returncode:
                payload = json.loads(done.stdout)
                outcome["decision"] = payload.get("decision")
                outcome["verdict"] = payload.get("verdict")
            if "Traceback" in done.stderr:
                outcome["traceback"] = done.stderr[-2000:]
            if done.returncode and not command.startswith("check"):
                outcome["refusal"] = done.stderr.replace(str(data), "DATA").strip()[-400:]
                break
        outcome["c_code"] = any(folder.glob(f"{name}_c/*.c"))
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(LOGS)}")
    options = parser.parse_args()
    if not options.data.is_dir():
        print(f"{options.data} is not there; nothing is measured")
        return
    outcomes = read_results("raw_logs").get("cases", {})
    for name in options.cases or LOGS:
        outcomes[name] = run_case(name, options.data.resolve())
        print(name, json.dumps(outcomes[name], ensure_ascii=False), flush=True)
        write_results("raw_logs", {"cases": outcomes})


if __name__ == "__main__":
    main()
