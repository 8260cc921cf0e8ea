"""A chain as plain arrays whose joints may depend on further coordinates.

A dependence begins with a ratio of zero, which leaves the torques as they are: a search goes on
from the arm that it has, and learns the ratio.
"""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from ..joints import Joints
from ..mechanics.kinematic_tree import Tree
from .chain import LagrangianChain, LagrangianChainSettings, Slack

# Size of the links of a plate and a crank before they are learned, relative to those beside them.
LIGHT = 0.3


@dataclass(frozen=True, eq=False)
class ChainDraft:
    """A chain with q_tree = A q, and which entries of A are learned.

    Attributes:
        tree: parents of the joints, and whether each of them slides.
        rows, free: A, and the mask of its entries that are learned.
        turn, shift, factor, log_armature, gravity: as in `LagrangianChain`.
    """

    joints: Joints
    tree: Tree
    rows: Float[np.ndarray, "joints dof"]
    free: Bool[np.ndarray, "joints dof"]
    turn: Float[np.ndarray, "others 3 3"]
    shift: Float[np.ndarray, "others 3"]
    factor: Float[np.ndarray, "joints 4 4"]
    log_armature: Float[np.ndarray, " dof"]
    gravity: Float[np.ndarray, "3"]

    @classmethod
    def of(cls, chain: LagrangianChain) -> "ChainDraft":
        """The draft of a chain; entries of A that were learned stay so."""
        rows = np.eye(chain.joints.dof)
        if chain.coupling is not None:
            rows = np.array(chain.coupling, dtype=float)
        free = np.zeros(rows.shape, dtype=bool)
        if chain.slack is not None:
            free = np.array(chain.slack.free)
        numbers = (chain.turn, chain.shift, chain.factor, chain.log_armature, chain.gravity)
        turn, shift, factor, log_armature, gravity = (
            np.array(array, dtype=float) for array in numbers
        )
        return cls(
            joints=chain.joints,
            tree=chain.tree,
            rows=rows,
            free=free,
            turn=turn,
            shift=shift,
            factor=factor,
            log_armature=log_armature,
            gravity=gravity,
        )

    def relaxed(self) -> LagrangianChain:
        """The chain whose free entries of A are weights.

        All drafts of one tree share one compiled program.
        """
        usual = np.eye(*self.rows.shape)
        chain = self._chain(usual)
        slack = Slack(jnp.asarray(self.rows - usual), jnp.asarray(self.free))
        return eqx.tree_at(lambda chain: chain.slack, chain, slack, is_leaf=lambda x: x is None)

    def settled(self) -> LagrangianChain:
        """The chain with A as it is, no entry of which is a weight."""
        return self._chain(self.rows)

    def _chain(self, rows: np.ndarray) -> LagrangianChain:
        coupling = tuple(map(tuple, rows.tolist()))
        settings = LagrangianChainSettings(self.tree.parents, coupling, self.tree.sliding)
        blank = eqx.filter_eval_shape(
            lambda: LagrangianChain(self.joints, settings, key=jax.random.key(0))
        )
        return eqx.tree_at(
            lambda chain: (
                chain.turn,
                chain.shift,
                chain.factor,
                chain.log_armature,
                chain.gravity,
            ),
            blank,
            tuple(
                map(
                    jnp.asarray,
                    (self.turn, self.shift, self.factor, self.log_armature, self.gravity),
                )
            ),
        )

    def coupled(self, joint: int, coordinate: int, ratio: float = 0.0) -> "ChainDraft":
        """The draft in which a joint of the tree also moves with another coordinate."""
        rows = self.rows.copy()
        free = self.free.copy()
        rows[joint, coordinate] = ratio
        free[joint, coordinate] = True
        return replace(self, rows=rows, free=free)

    def against_base(self, carrier: int, arm: int) -> "ChainDraft":
        """The draft whose arm turns against what carries its carrier, as by a parallelogram.

        The frames stay as they are where all coordinates are zero.
        """
        rows = self.rows.copy()
        rows[arm] -= rows[carrier]
        return replace(self, rows=rows)

    def with_plate(self, arm: int) -> "ChainDraft":
        """The draft with a plate at the end of an arm: it carries the next joint and stays level.

        It turns back by the angle of the arm against the base. The arm must be the carrier's next
        joint, in a chain without branches up to there.
        """
        carrier = self.tree.parents[arm]
        back = -(self.rows[arm] + self.rows[carrier])
        after = arm + 1
        parents = []
        for joint, parent in enumerate(self.tree.parents):
            # Joints after the plate move up by one; the plate carries what the arm carried.
            moved = parent if parent < arm else parent + 1
            parents.append(moved)
            if joint == arm:
                parents.append(arm)
        sliding = list(self.tree.sliding)
        sliding.insert(after, False)
        # The places of joints leave out that of the first one.
        shift = np.insert(self.shift, after - 1, self.shift[after - 1], axis=0)
        shift[after] = 0.0
        return replace(
            self,
            tree=Tree(tuple(parents), tuple(sliding)),
            rows=np.insert(self.rows, after, back, axis=0),
            free=np.insert(self.free, after, False, axis=0),
            turn=np.insert(self.turn, after - 1, np.eye(3), axis=0),
            shift=shift,
            factor=np.insert(self.factor, after, LIGHT * self.factor[arm], axis=0),
        )

    def with_crank(self, carrier: int, arm: int) -> "ChainDraft":
        """The draft with a crank beside the carrier, turning as the arm does against the base."""
        turn = np.eye(3)
        shift = np.zeros(3)
        if carrier > 0:
            turn = self.turn[carrier - 1]
            shift = self.shift[carrier - 1]
        row = self.rows[arm] + self.rows[carrier]
        return replace(
            self,
            tree=Tree(
                (*self.tree.parents, self.tree.parents[carrier]), (*self.tree.sliding, False)
            ),
            rows=np.vstack([self.rows, row]),
            free=np.vstack([self.free, np.zeros_like(self.free[:1])]),
            turn=np.concatenate([self.turn, turn[None]]),
            shift=np.concatenate([self.shift, shift[None]]),
            factor=np.concatenate([self.factor, LIGHT * self.factor[carrier][None]]),
        )

    def rounded(self, most: float) -> "ChainDraft":
        """The draft whose learned ratios near a whole number are that number, and fixed."""
        near = np.round(self.rows)
        whole = self.free & (np.abs(self.rows - near) < most)
        return replace(
            self, rows=np.where(whole, near, self.rows), free=self.free & ~(whole & (near != 0))
        )
