"""What a model is made of, as far as parameters, caches and activations ask.

Widths are in elements. `vectors` are biases, the weights of norms, and other parameters
that no token is multiplied with.
"""

from __future__ import annotations

from dataclasses import dataclass


# --8<-- [start:attention]
@dataclass(frozen=True)
class Attention:
    """Attention of one layer: grouped heads, or a latent that keys and values share."""

    heads: int
    kv_heads: int
    key: int  # width of a head's query and key, with the part that carries the position
    value: int  # width of a head's value
    window: int = 0  # tokens that a token sees; 0 is all
    latent: int = 0  # rank that keys and values pass; 0 where they pass none
    rotary: int = 0  # of the key of a latent: the part that all heads share
    query_rank: int = 0  # rank that queries pass; 0 where they pass none
    vectors: int = 0

    def weights(self, hidden: int) -> int:
        """Elements of the matrices."""
        queries = self.heads * self.key
        into = hidden * queries
        if self.query_rank:
            into = (hidden + queries) * self.query_rank
        out = self.heads * self.value * hidden
        if not self.latent:
            return into + self.kv_heads * (self.key + self.value) * hidden + out
        down = hidden * (self.latent + self.rotary)
        up = self.latent * self.heads * (self.key - self.rotary + self.value)
        return into + down + up + out

    def cached(self) -> int:
        """Elements kept for a token: keys and values of each group, or the latent."""
        if self.latent:
            return self.latent + self.rotary
        return self.kv_heads * (self.key + self.value)


# --8<-- [end:attention]


@dataclass(frozen=True)
class FeedForward:
    """Feed-forward of one layer: one network, or a router and experts."""

    size: int  # width; of one expert where there are `routed`
    gated: bool = True  # three matrices instead of two
    routed: int = 0  # experts to choose from; 0 without a router
    chosen: int = 0  # of them, that a token meets
    shared: int = 0  # width of what every token meets beside them
    vectors: int = 0  # outside the routed experts
    expert_vectors: int = 0  # of one routed expert

    def expert(self, hidden: int) -> int:
        """Elements of the matrices of one routed expert, or of the one network."""
        return (3 if self.gated else 2) * hidden * self.size

    def common(self, hidden: int) -> int:
        """Elements of the matrices of router and shared experts."""
        return (3 if self.gated else 2) * hidden * self.shared + hidden * self.routed

    def weights(self, hidden: int, active: bool = False) -> int:
        """Elements of the matrices: all, or those that a token is multiplied with."""
        if not self.routed:
            return self.expert(hidden)
        met = self.chosen if active else self.routed
        return self.common(hidden) + met * self.expert(hidden)

    def all_vectors(self, active: bool = False) -> int:
        """Biases: all, or those that a token meets."""
        return self.vectors + (self.chosen if active else self.routed) * (
            self.expert_vectors
        )


@dataclass(frozen=True)
class Layer:
    """Attention and feed-forward; `norms` are the weights of the norms around them."""

    attention: Attention
    feed_forward: FeedForward
    norms: int
    joint: int = 0  # matrix that joins a token to the state, in a layer that predicts

    def parameters(self, hidden: int, active: bool = False) -> int:
        """All parameters, or but those of experts that a token does not meet."""
        matrices = self.attention.weights(hidden)
        matrices += self.feed_forward.weights(hidden, active) + self.joint
        vectors = self.attention.vectors + self.feed_forward.all_vectors(active)
        return matrices + vectors + self.norms


@dataclass(frozen=True)
class Model:
    """A decoder, layer by layer, as a configuration describes it."""

    kind: str  # model_type of the configuration
    hidden: int
    vocabulary: int
    layers: tuple[Layer, ...]
    tied: bool  # the output matrix is the embedding table
    vectors: (
        int  # of the norms before the first and after the last layer; output biases
    )
    positions: int = 0  # rows of a learned table of positions
    predicting: tuple[Layer, ...] = ()  # beside the layers: each predicts a token more
    context: int = 0  # longest sequence it is made for; 0 where nothing says
    unknown: tuple[str, ...] = ()  # fields that were not understood
    notes: tuple[str, ...] = ()  # what is assumed or left out, a sentence each
