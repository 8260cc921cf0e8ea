"""The page of a log: its verdict, its tables and figures, and intervals that hold what they
promise.
"""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest

from delan.learning.fit import Fit
from delan.learning.scores import TorqueSize, evaluate, nmse_interval, time_blocks
from delan.learning.study import Entry
from delan.learning.uncertainty import TrustSettings, coverage, trust
from delan.learning.verdict import Verdict
from delan.log_rows import Excerpt, RowRange
from delan.logs.doctor.finding import Case, Finding
from delan.logs.preparation import prepare
from delan.report.fit_figures import (
    draw_friction,
    draw_residuals,
    draw_traces,
    draw_workspace,
    friction_curve,
    predicted,
    window,
)
from delan.report.fit_page import page_of, write_page
from delan.report.fit_report import FitReport, verdict_text
from delan.robots.arms import TWO_LINK
from tests.support.members import pendulum
from tests.support.simulated_logs import CUTOFF, known_fit, recorded, rubbing

FOUND = Finding(
    Case("units", "q1 <looks> like degrees", "give --degrees"), severity="error", joint=1
)


@pytest.fixture(scope="module")
def two_link() -> Fit:
    return known_fit(TWO_LINK)


def told_by(fit: Fit, **more) -> FitReport:
    return FitReport(
        log="arm.csv", fit=fit, versions={"delan": "1.2"}, command="delan fit arm.csv", **more
    )


def with_test(fit: Fit) -> FitReport:
    dataset = prepare(recorded(TWO_LINK, (7,)), CUTOFF)
    scores = {entry.name: evaluate(entry.model, dataset, rollouts=False) for entry in fit.entries}
    return told_by(fit, test="other.csv", test_set=dataset, test_scores=scores)


def but(fit: Fit, *names: str) -> Fit:
    """The fit with none but these models, in this order."""
    entries = {entry.name: entry for entry in fit.entries}
    return replace(fit, entries=tuple(entries[name] for name in names))


def test_the_page_stands_alone_and_tells_everything(two_link, tmp_path):
    write_page(told_by(two_link, findings=(FOUND,)), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 7
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert len(page) < 600_000
    for result in (
        "Deploy the chain",
        "Simulate with it: driven by the recorded torques",
        "error after 0.5 s",
        "2 validation"
        if len(two_link.validation.samples.trajectories) == 2
        else "the validation motion",
        "q1 &lt;looks&gt; like degrees",
        "give --degrees",
        "10 Hz over positions",
        "at the ends",
        "stribeck",
        "not worth it",
        "it was kept with them",
        "No band of uncertainty was computed",
        "delan 1.2",
        "delan fit arm.csv",
        "&#34;seconds&#34;: null",
        "The time was over before all terms",
    ):
        assert result in page, result


def test_the_page_of_a_part_of_a_log_says_so(two_link):
    done = two_link.dataset.preparation
    part = Excerpt(
        rows=10 * done.rows, trajectories=2, segments=(RowRange(0, done.rows, 0),), seconds=60.0
    )
    page = page_of(
        told_by(
            replace(
                two_link,
                study=replace(
                    two_link.study,
                    dataset=replace(two_link.dataset, preparation=replace(done, excerpt=part)),
                ),
            )
        )
    )
    assert part.summary in page
    assert "of the log:" not in page_of(told_by(two_link))


def test_what_a_model_does_not_know_is_not_drawn(two_link):
    page = page_of(told_by(replace(but(two_link, "feedforward", "constant"), replay=None)))
    assert page.count("data:image/svg+xml;base64,") == 3
    assert "Not simulated: only a model with mechanics can be" in page
    assert "feed-forward network predicts the torque alone" in page
    assert "feed-forward network has no friction terms" in page


def test_the_page_of_a_test_log_with_a_band(two_link):
    report = with_test(two_link)
    assert report.test_set is not None
    settings = TrustSettings(members=2, iterations=1, rows=50, states=20)
    trusted = trust(
        report.chosen.model, two_link.training, two_link.validation, settings, key=jax.random.key(0)
    )
    fit = replace(two_link, trusted=trusted)
    page = page_of(
        replace(
            report, fit=fit, coverage=coverage(trusted, report.test_set), motion_file="next.npz"
        )
    )
    assert "the shares are those of the test motion" in page
    assert "twice the data would remove about 20 % of the error" in page
    assert "elbow, between 0.20 and 1.20 rad at up to 2.00 rad/s" in page
    assert "It is in next.npz" in page
    assert "On the test motion, other.csv" in page
    assert page.index("On the test motion, other.csv") < page.index("On the validation motion")


def test_a_model_that_learned_from_validation_is_not_shown_on_it(two_link):
    first, *others = two_link.entries
    fit = replace(two_link, entries=(replace(first, relearned=two_link.entries[2].model), *others))
    alone, tested = told_by(fit), with_test(fit)
    assert tested.test_set is not None
    assert alone.shown(alone.chosen, alone.unseen) is first.model
    assert tested.shown(tested.chosen, tested.test_set) is fit.entries[2].model
    assert tested.shown(tested.chosen, fit.validation) is first.model
    assert "The model that was saved has learned from the whole log" in page_of(alone)
    assert "trained once more" not in page_of(told_by(two_link))


def test_the_verdict_says_which_model_and_why(two_link):
    report = with_test(two_link)
    errors = {name: scores.torque.nmse_mean for name, scores in report.test_scores.items()}
    verdict = report.verdict
    assert (verdict.decision, verdict.model, verdict.judged_on) == ("deploy", "chain", "test")
    assert verdict.error == errors["chain"]
    assert verdict.constant == errors["constant"]
    assert verdict.rival == ("identified", errors["identified"])
    assert verdict.doubts == ()
    text = verdict_text(report)
    assert text.startswith("Deploy the chain: on the test motion (other.csv) its nMSE is ")
    assert f"{errors['identified']:.2g} for the identified URDF" in text


def scored(entry: Entry, nmse: float) -> Entry:
    torque = replace(entry.validation.torque, nmse_mean=nmse)
    return replace(entry, validation=replace(entry.validation, torque=torque))


def kinds(verdict: Verdict) -> list[str]:
    return [doubt.kind for doubt in verdict.doubts]


def test_the_verdict_doubts_what_is_doubtful(two_link):
    chain, _, network, constant = two_link.entries

    def judged(*entries: Entry, **more) -> FitReport:
        return told_by(replace(two_link, entries=entries, **more))

    poor = judged(scored(chain, 0.23), constant)
    assert poor.verdict.decision == "doubtful"
    assert kinds(poor.verdict) == ["poor"]
    assert "23 % of the torque's variance is not explained" in verdict_text(poor)
    assert kinds(judged(scored(network, 0.01), constant).verdict) == ["no_mechanics"]
    assert kinds(judged(chain, constant, interrupted=True).verdict) == ["interrupted"]
    refused = judged(constant, scored(chain, 1.2))
    assert refused.verdict.decision == "refuse"
    assert "`delan check`" in verdict_text(refused)
    assert judged(constant, scored(chain, float("nan"))).verdict.decision == "refuse"


def test_the_verdict_on_a_test_motion_says_what_to_do(two_link):
    chain, _, _, constant = two_link.entries
    report = with_test(two_link)
    lost = {
        **report.test_scores,
        "chain": scored(chain, 25.0).validation,
        "constant": scored(constant, 1.6).validation,
    }
    failed = replace(report, test_scores=lost)
    assert failed.verdict.decision == "refuse"
    assert not failed.verdict.beats_constant
    assert "too little motion to go beyond it" in verdict_text(failed)
    hurried = replace(report.fit, options=replace(report.fit.options, seconds=150.0))
    assert "It had 150 s: give it more" in verdict_text(replace(failed, fit=hurried))
    scores = {**report.test_scores, "chain": scored(chain, 0.09).validation}
    doubtful = replace(report, test_scores=scores).verdict
    assert kinds(doubtful) == ["rival"]
    assert doubtful.doubts[0].model == "identified"


def test_the_friction_curve_is_the_friction(two_link):
    truth, friction = rubbing(TWO_LINK), two_link.best.model.friction
    assert friction is not None
    assert truth.friction is not None
    speeds = np.linspace(-2, 2, 9)
    wanted = [truth.friction.torque(np.array([0.0, speed]), np.zeros(2))[1] for speed in speeds]
    np.testing.assert_allclose(friction_curve(friction, 1, speeds, np.zeros(2)), wanted, atol=1e-9)


def test_figures_show_units_and_all_joints(two_link):
    result = predicted(two_link.best.model, two_link.validation, parts=True)
    assert result.parts is not None
    np.testing.assert_allclose(result.parts.total, result.torque, atol=1e-9)
    near = result.rows(window(result.samples))
    assert np.ptp(near.samples.t) <= 8
    for figure in (
        draw_traces(near),
        draw_residuals(result),
        draw_workspace(two_link.best.model, result.samples),
    ):
        words = " ".join(
            text.get_text()
            for axes in figure.axes
            for text in (axes.title, axes.xaxis.label, axes.yaxis.label)
        )
        left = " ".join(axes.get_title(loc="left") for axes in figure.axes)
        assert "[N m]" in words
        assert all(name in words + left for name in TWO_LINK.joints.names)


def test_dots_of_friction_are_in_the_legend_and_joints_look_different(two_link):
    model = two_link.best.model
    result = predicted(model, two_link.validation, parts=True)
    friction = draw_friction(model, result)
    assert friction is not None
    assert [text.get_text() for text in friction.legends[0].get_texts()] == [
        "measured torque without that of the links",
        "model",
    ]
    lines = draw_workspace(model, result.samples).axes[0].get_lines()
    assert len({line.get_color() for line in lines}) == 2


def torque_size(*variance):
    nobody = np.zeros(len(variance), dtype=bool)
    return TorqueSize(np.array(variance), np.sqrt(variance), nobody)


def test_an_interval_holds_the_error_as_often_as_it_says():
    """Errors that remember: rows are alike for 20 steps, blocks are of 50."""
    rng = np.random.default_rng(0)
    held, runs, rows = 0, 100, 2000
    for run in range(runs):
        errors = np.repeat(rng.standard_normal((rows // 20, 1)), 20, axis=0)
        size = torque_size(4.0)
        found = nmse_interval(errors, size, np.arange(rows) // 50, jax.random.key(run))
        held += found.low[0] <= 0.25 <= found.high[0]
        assert found.low[0] == found.mean_low
    assert 0.8 <= held / runs <= 0.98


def test_a_joint_without_torque_has_no_interval_and_few_blocks_have_none():
    errors, size = np.ones((40, 2)), torque_size(0.5, 0.0)
    found = nmse_interval(errors, size, np.arange(40) // 5, jax.random.key(0))
    assert np.isnan(found.low[1])
    assert found.mean_low == found.low[0] > 0
    assert np.isnan(nmse_interval(errors, size, np.arange(40) // 20, jax.random.key(0)).mean_low)


def test_blocks_are_about_a_second_and_keep_to_one_motion():
    data = pendulum(trajectories=6, samples=150)
    blocks = time_blocks(data)
    assert len(blocks) == len(data)
    assert all(
        len(set(data.trajectory[blocks == block].tolist())) == 1 for block in set(blocks.tolist())
    )
    lengths = [np.ptp(data.t[blocks == block]) for block in set(blocks.tolist())]
    assert 0.7 < np.median(lengths) < 1.1
    assert len(lengths) == 18
    assert len(set(time_blocks(data.select([0])).tolist())) == 12
