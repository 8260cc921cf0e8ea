"""A model of your own under the same contest: the Lagrangian neural network of Cranmer et al. 2020,
which learns L(q, q̇) as a whole, beside a DeLaN network.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

import delan
from delan.learning import OwnNetwork, enter, standings
from delan.models import Affine, Normalisation, Perceptron, Promises
from delan.paper import letter_log


class BlackBoxLagrangian(eqx.Module):
    """τ = d/dt ∂L/∂q̇ − ∂L/∂q of a network L(q, q̇), in the units of the data."""

    trunk: Perceptron
    head: Affine
    units: Normalisation
    joints: delan.Joints = eqx.field(static=True)

    def __init__(self, dataset: delan.Dataset, key: jax.Array):
        self.joints = dataset.joints
        self.units = Normalisation.of(dataset)
        trunk_key, head_key = jax.random.split(key)
        self.trunk = Perceptron(3 * dataset.dof, 32, 2, "softplus", key=trunk_key)
        self.head = Affine(32, 1, key=head_key)

    @property
    def promises(self) -> Promises:
        return Promises()  # torques only: nothing makes its inertia positive

    def lagrangian(self, q: jax.Array, qd: jax.Array) -> jax.Array:
        x = jnp.concatenate([jnp.cos(q), jnp.sin(q), qd / self.units.qd_std])
        return self.head(self.trunk(x))[0]

    def inverse_dynamics(self, q: jax.Array, qd: jax.Array, qdd: jax.Array) -> jax.Array:
        momentum = jax.grad(self.lagrangian, argnums=1)
        _, rate = jax.jvp(momentum, (q, qd), (qd, qdd))
        return self.units.tau_std * (rate - jax.grad(self.lagrangian)(q, qd))


def main() -> None:
    """Fit ours, enter the guest, print one table."""
    letters = letter_log("adegl")
    training = delan.TrainingSettings(optimizer="adam", epochs=100)
    fit = delan.fit(letters, "delan", settings=delan.FitSettings(training=training))
    guest = enter(OwnNetwork("black-box Lagrangian", BlackBoxLagrangian, training), fit.study)
    for row in standings([*fit.entries, guest]):
        low, high = row.interval
        print(f"{row.name:22} nMSE {row.error:.2g} (90 %: {low:.2g} to {high:.2g})")


if __name__ == "__main__":
    main()
