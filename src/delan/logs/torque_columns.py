"""Where the torques of a log come from: logged, from currents, or from what drives were told.

A drive with a position loop applies τ = kp (q_des − q) + kd (q̇_des − q̇) + τ_des.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from ..errors import DataError
from ..joints import TorqueSource
from .column_finder import Group
from .column_names import measures
from .column_refusals import listed, refuse_without
from .formats import Sheet
from .options import COMMANDS, LogOptions, Numbers


@dataclass(frozen=True)
class TorqueColumns:
    """Where the torques come from.

    Attributes:
        source: logged, currents or commands.
        kp, kd: gains of the drives; None if they are columns of the log, or not needed.
    """

    source: TorqueSource
    kp: Numbers | None = None
    kd: Numbers | None = None

    def needed(self, groups: Mapping[str, Group]) -> dict[str, Group]:
        """Return the groups to read: currents as torques, and commands only if they are used."""
        needed = dict(groups)
        current = needed.pop("current", None)
        if self.source == "currents" and current is not None:
            needed["tau"] = current
        unused = set(COMMANDS)
        if self.source == "commands":
            needed.pop("tau", None)
            unused = {name for name in ("kp", "kd") if getattr(self, name) is not None}
        for name in unused:
            needed.pop(name, None)
        return needed

    def require(self, sheet: Sheet, places: Mapping[str, object]) -> None:
        """Refuse commands whose damping needs velocities that the log has not."""
        damped = self.kd is None or any(self.kd)
        if self.source == "commands" and damped and "qd" not in places:
            problem = (
                "has no measured velocities, which kd (qd_des − qd) needs; map them by --map "
                "'qd=NAME{}', or give --kd 0 if the drives have no damping"
            )
            raise DataError(sheet.source, problem, column="qd")


def torque_source(sheet: Sheet, options: LogOptions, groups: Mapping[str, Group]) -> TorqueColumns:
    """Return where the torques come from; refuse a log that has none.

    A gain makes torques of currents unless a column is mapped to the torque; gains of the drives
    make torques of commands. Without these options, logged torques come first.
    """
    by_hand = bool(options.patterns("tau"))
    if options.kp is not None and "q_des" in groups:
        return _commands(sheet, options, groups)
    unmapped = not by_hand or bool(options.patterns("current"))
    if "current" in groups and options.gain is not None and unmapped:
        return TorqueColumns("currents")
    if "tau" in groups:
        return TorqueColumns("logged")
    if "current" in groups:
        currents = listed(groups["current"].columns.values())
        problem = (
            f"holds currents ({currents}) and no torques; "
            "give the torque per current in N m/A, such as --gain 0.11"
        )
        raise DataError(sheet.source, problem)
    if "q_des" not in groups:
        refuse_without(sheet, "tau")
    return _commands(sheet, options, groups)


def _commands(sheet: Sheet, options: LogOptions, groups: Mapping[str, Group]) -> TorqueColumns:
    """Return the gains of the drives: as given, else those that the log has."""
    gains: dict[str, Numbers | None] = {}
    for name in ("kp", "kd"):
        given = getattr(options, name)
        if given is None:
            given = _constant(sheet, name)
        if given is None and name not in groups:
            _refuse_without_gain(sheet, name, groups)
        gains[name] = given
    return TorqueColumns("commands", gains["kp"], gains["kd"])


def _constant(sheet: Sheet, name: str) -> Numbers | None:
    for key, numbers in sheet.constants.items():
        if key == name or measures(key.rpartition("/")[2]) == name:
            return numbers
    return None


def _refuse_without_gain(sheet: Sheet, name: str, groups: Mapping[str, Group]) -> NoReturn:
    wanted = listed(groups["q_des"].columns.values())
    has = f"holds commands ({wanted}) and no torques"
    if name == "kd":
        has += "; of the gains it has kp and no kd, as the firmware of a servo has one, which is "
        has += "no torque"
    problem = (
        f"{has}; the torque is kp (q_des − q) + kd (qd_des − qd) + tau_des: give --kp in N m/rad "
        "and --kd in N m s/rad if the drives have such gains, or record torques or currents"
    )
    raise DataError(sheet.source, problem, column="tau")
