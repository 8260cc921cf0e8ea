"""Repairs of a log: which findings make learning pointless, and how to read the log without them.

A repair is a change of the options by which a log is read, so that a test log and later commands
can be read in the same way.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ..joints import Joints
from .doctor import cases
from .doctor.finding import Finding
from .options import LogOptions

# Joints by their index in the recording.
Flipped = tuple[int, ...] | Literal["all"]
# Findings of the sign that a description of the robot shows.
WITH_DESCRIPTION = (cases.URDF_JOINT_SIGN, cases.URDF_TORQUE_SIGN)


@dataclass(frozen=True)
class Repair:
    """What makes learning from a log pointless, and how to read the log without it.

    Attributes:
        findings: errors with which no model can be learned.
        beyond: those of them that no option repairs.
        flip: joints whose sign is to be changed, by quantity.
        exchanged: quantities that stand under each other's names.
        left_out: quantities that are better computed than read.
    """

    findings: tuple[Finding, ...]
    beyond: tuple[Finding, ...] = ()
    flip: Mapping[str, Flipped] = field(default_factory=dict)
    exchanged: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def options(self, options: LogOptions, joints: Joints) -> LogOptions:
        """Return the options with which the log is read without these faults.

        Args:
            options: the options with which the faults were found.
            joints: joints of the recording, with the names that they have in the log.
        """
        flip = dict(options.flip)
        for quantity, flipped in self.flip.items():
            changed = _flipped_too(options, quantity, flipped, joints)
            flip.pop(quantity, None)
            if changed:
                flip[quantity] = changed
        columns = {**options.map, **dict.fromkeys(self.left_out, "")}
        exchanged = self.exchanged or options.exchanged
        return replace(options, flip=flip, map=columns, exchanged=exchanged)

    def ways(self, options: LogOptions, joints: Joints) -> tuple[str, ...]:
        """Return the options to give instead, in words, such as `with --flip tau:2,5`.

        Those for exchanged columns are in the remedy of the finding: they depend on the names in
        the log.
        """
        changed = self.options(options, joints)
        texts = []
        for quantity in self.flip:
            if quantity in changed.flip:
                texts.append(f"with {flip_text(quantity, changed.flip[quantity])}")
            else:
                texts.append(f"without {flip_text(quantity, options.flip[quantity])}")
        texts += [f"with --map {quantity}=" for quantity in self.left_out]
        return tuple(texts)


def flip_text(quantity: str, joints: tuple[int | str, ...] | Literal["all"]) -> str:
    """Return the option that changes signs, such as `--flip tau:2,5`."""
    if joints == "all":
        return f"--flip {quantity}"
    return f"--flip {quantity}:{','.join(map(str, joints))}"


def find_repair(findings: Iterable[Finding]) -> Repair | None:
    """Return how to repair the errors with which no model can be learned, None without any.

    These are reversed signs, exchanged columns and files whose signs contradict each other.
    Warnings are uncertain and need no repair.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    signs = _decisive_signs([finding for finding in errors if finding.kind == "sign"])
    exchanges = [finding for finding in errors if finding.case is cases.EXCHANGED]
    beyond = tuple(finding for finding in errors if finding.kind == "contradiction")
    reasons = (*exchanges, *signs, *beyond)
    if not reasons:
        return None
    exchanged = {}
    for finding in exchanges:
        for name, source in finding.measured["sources"].items():
            if name != source:
                exchanged[name] = source
    flip: dict[str, Flipped] = {}
    left_out = []
    for finding in signs:
        quantity = finding.column or "tau"
        if finding.case is cases.RATE_SIGN:
            left_out.append(quantity)
        elif finding.joint is None:
            flip[quantity] = "all"
        else:
            known = flip.get(quantity, ())
            if known != "all":
                flip[quantity] = (*known, finding.joint)
    return Repair(reasons, beyond, flip, exchanged, tuple(dict.fromkeys(left_out)))


def without_dead(findings: Iterable[Finding], options: LogOptions, joints: Joints) -> LogOptions:
    """Return the options without the joints of which a channel is dead, if any other is left.

    Joints that only stand still stay: a model can be learned with them.
    """
    dead = set()
    for finding in findings:
        if finding.severity == "error" and finding.case in cases.USELESS:
            dead.add(finding.joint)
    keys: tuple[int | str, ...] = tuple(range(joints.dof))
    if options.joints is not None:
        keys = options.joints
    alive = tuple(key for index, key in enumerate(keys) if index not in dead)
    if not dead or not alive:
        return options
    return replace(options, joints=alive)


def _decisive_signs(signs: list[Finding]) -> list[Finding]:
    """Return the findings of signs to act upon, one for each joint.

    The log alone shows that torque and motion of a joint contradict each other; a description
    shows which of the two is reversed. If both are, only the description differs, and a model can
    be learned.
    """
    described: dict[int | None, list[Finding]] = {}
    for finding in signs:
        if finding.case in WITH_DESCRIPTION:
            described.setdefault(finding.joint, []).append(finding)
    positions = any(items[0].column == "q" for items in described.values())
    decisive = []
    for finding in signs:
        if finding.case in WITH_DESCRIPTION:
            if len(described[finding.joint]) == 1:
                decisive.append(finding)
        elif finding.case is cases.ALL_REVERSED:
            # Where positions are reversed, the torques of all joints need not be.
            if not positions:
                decisive.append(finding)
        elif finding.joint not in described:
            decisive.append(finding)
    return decisive


def _flipped_too(
    options: LogOptions, quantity: str, flipped: Flipped, joints: Joints
) -> tuple[int | str, ...] | Literal["all"]:
    """Return the joints to flip, as in `LogOptions.flip`, if some more change their sign.

    A joint that is flipped already and changes its sign is not flipped any more.
    """
    keys: tuple[int | str, ...] = tuple(range(joints.dof))
    if options.joints is not None:
        keys = options.joints
    given = options.flip.get(quantity, ())
    chosen = []
    for index, (key, name) in enumerate(zip(keys, joints.names, strict=True)):
        before = given == "all" or key in given or name in given
        more = flipped == "all" or index in flipped
        if before != more:
            chosen.append(key)
    if len(chosen) == joints.dof:
        return "all"
    return tuple(chosen)
