"""What a fit found about elastic joints, in sentences and as plain values."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ..joints import Joints
from ..learning.elastic_fit import ElasticOutcome
from ..learning.fit import Fit
from ..learning.resonance import Resonance


def elastic_notes(fit: Fit) -> Iterator[str]:
    """What was found about springs in the joints; nothing for a rigid robot."""
    if fit.elastic is not None:
        yield from _both_sides(fit.elastic, fit.dataset.joints.links)
    for resonance in fit.resonances:
        yield _one_side(resonance, fit.dataset.joints)


def _both_sides(outcome: ElasticOutcome, joints: Joints) -> Iterator[str]:
    compared = "the motors' torque on motion left out, from the motion alone"
    if outcome.chosen == "rigid":
        reason = "the deflection between links and motors explains no torque"
        if math.isfinite(outcome.elastic):
            reason = (
                f"a rigid chain has an nMSE of {outcome.rigid:.2g} for {compared}, one with "
                f"springs in its joints {outcome.elastic:.2g}"
            )
        yield f"The joints are taken as rigid, although both sides were measured: {reason}."
        return
    against = f", a rigid chain {outcome.rigid:.2g}" if math.isfinite(outcome.rigid) else ""
    yield (
        "The joints are elastic: the model has a coordinate for each link and one for its motor. "
        f"For {compared}, its nMSE is {outcome.elastic:.2g}{against}."
    )
    drives = outcome.drives
    resonances = drives.resonance(outcome.inertia)
    for number, (name, units) in enumerate(zip(joints.names, joints.units, strict=True)):
        yield (
            f"{name}: stiffness {drives.stiffness[number]:.4g} {units.tau}/{units.q}, damping "
            f"{drives.damping[number]:.2g}, rotor {drives.rotor[number]:.3g}; link and motor "
            f"swing against each other at about {resonances[number]:.1f} Hz."
        )


def _one_side(resonance: Resonance, joints: Joints) -> str:
    fixed = ""
    if resonance.fixed is not None:
        fixed = f", and the link alone at about {resonance.fixed:.1f} Hz while its motor stands"
    return (
        f"{joints.names[resonance.joint]} is elastic: link and motor swing against each other at "
        f"{resonance.frequency:.1f} ± {resonance.error:.1f} Hz{fixed}. The model is rigid and "
        "wrong near these frequencies. A second encoder would be needed to model the spring: log "
        "the positions of links and of motors (q and q_motor)."
    )


def as_fields(fit: Fit) -> dict[str, Any]:
    """Return the same for a script."""
    elastic = None
    if fit.elastic is not None:
        outcome = fit.elastic
        elastic = {
            "chosen": outcome.chosen,
            "nmse": _number(outcome.elastic),
            "nmse_of_rigid_chain": _number(outcome.rigid),
            "resonance": [_number(value) for value in outcome.drives.resonance(outcome.inertia)],
        }
        for name, values in asdict(outcome.drives).items():
            elastic[name] = values.tolist()
    seen = []
    for resonance in fit.resonances:
        fields = asdict(resonance)
        fields["joint"] = fit.dataset.joints.names[resonance.joint]
        seen.append(fields)
    return {"elastic": elastic, "resonances": seen}


def _number(value: float) -> float | None:
    """Return a number as JSON has it: none for what was not computed."""
    return float(value) if math.isfinite(value) else None
