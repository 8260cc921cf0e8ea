"""Every test runs with shapes and types checked at run time, in float64, and with silent
broadcasting refused.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jaxtyping
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
# Compiled programs are kept between runs and shared by the workers and the processes that tests
# start; the numbers do not depend on it.
cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delan" / "xla-tests"
compiling = {
    "JAX_COMPILATION_CACHE_DIR": str(cache),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
}
if os.environ.get("HYPOTHESIS_PROFILE") != "thorough":
    # Most of the time of short tests goes into compilers: plain code is there in less than half of
    # it. The thorough run compiles as users do.
    compiling["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    compiling["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()
    )
    jax.config.update("jax_disable_most_optimizations", True)
os.environ.update(compiling)
jax.config.update("jax_compilation_cache_dir", str(cache))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

assert "delan" not in sys.modules, "the hook must be in place before the package is imported"
install_import_hook("delan", "beartype.beartype")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("short", deadline=None, max_examples=12, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=50, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))


@pytest.fixture
def as_shipped() -> Iterator[None]:
    """Without run-time type checks, as users run the package: its own errors must answer, not the
    checker's.
    """
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def published_letters() -> Path:
    """The two-joint character data published with the paper's reference implementation."""
    path = SHARED / "published_letters.npz"
    if not path.exists():
        pytest.skip(f"the published character data are not here ({path})")
    return path
