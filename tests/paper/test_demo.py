"""The demo in small: its figures against the truth, and a page that stands alone."""

import re

import jax
import pytest

from delan.paper.demo import DemoSettings, run_demo
from delan.report.demo_page import write_demo_page


@pytest.fixture(scope="module")
def result():
    return run_demo(DemoSettings(letters="abceo", test="e", epochs=40), key=jax.random.key(0))


def test_the_network_separates_the_parts_it_never_saw(result):
    scores = result.models["DeLaN"].scores
    assert scores.torque.nmse_mean < 1e-3
    assert all(
        scores.components[name].nmse_mean < 1e-2 for name in ("inertial", "coriolis", "gravity")
    )
    assert scores.torque.nmse_mean < 0.3 * result.models["feed-forward"].scores.torque.nmse_mean


def test_the_page_stands_alone(result, tmp_path):
    write_demo_page(result, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert len(re.findall(r'<figure id="show-[abceo]">', page)) == 5
    assert page.count("data:image/svg+xml;base64,") == 5 + 3
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    score = f"{result.models['DeLaN'].scores.torque.nmse_mean:.1e}"
    assert score in page
    assert "Letter e, never seen in training" in page
    assert "Letter a, a training letter" in page
