"""How a model is trained: the ranks, the micro-batches, and what the software keeps."""

from __future__ import annotations

from dataclasses import dataclass

from snippets.model_configs.layers import Layer, Model

STACKS = ("megatron", "fsdp")
RECOMPUTE = ("none", "selective", "products", "full")
SCHEDULES = (
    "1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v",
    "zb-1p", "zb-2p",
)  # fmt: skip
V_SHAPED = ("zb-v", "dualpipe-v")  # two slices of the model a rank


# --8<-- [start:plan]
@dataclass(frozen=True)
class Plan:
    """A training run. `data` ranks have batches of their own, `context` share one.

    `expert` of the data * context ranks hold different experts. `gradient` is the bytes
    of an element of the gradients that are summed over micro-batches.
    """

    sequence: int
    micro_batch: int = 1
    micro_batches: int = 1
    data: int = 1
    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    expert: int = 1
    schedule: str = "1f1b"
    chunks: int = 1  # slices of the model a rank, of an interleaved schedule
    trimmed: bool = False  # the first and the last slice have a layer less
    zero: int = (
        1  # 1 is Megatron's distributed optimizer, 3 FSDP; 2 leaves weights whole
    )
    gradient: int = 4
    sequence_parallel: bool = True
    flash: bool = True  # else the scores are in memory
    dropout: bool = False
    recompute: str = "none"
    fused_loss: bool = True  # Megatron: logits in 16 bits, their gradient in place
    compiled: bool = False  # FSDP: keeps no product that nothing needs again
    stack: str = "megatron"

    def __post_init__(self) -> None:
        for name in (
            "sequence", "micro_batch", "micro_batches", "data", "tensor", "context",
            "pipeline", "expert", "chunks",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                _refuse(f"{name} = {getattr(self, name)} is below 1; give 1 or more")
        for name, known in (
            ("stack", STACKS), ("recompute", RECOMPUTE), ("schedule", SCHEDULES),
        ):  # fmt: skip
            if getattr(self, name) not in known:
                words = ", ".join(known)
                _refuse(f"{name} = {getattr(self, name)!r} is unknown; use {words}")
        if self.zero not in (0, 1, 2, 3):
            _refuse(f"zero = {self.zero} is no stage; use 0, 1, 2 or 3")
        if self.stack == "fsdp" and self.zero < 2:
            _refuse(f"zero = {self.zero} of fsdp, which splits all; use 2 or 3")
        if self.gradient not in (2, 4):
            _refuse(f"gradient = {self.gradient} bytes; use 2 or 4")
        if self.sequence % self.context:
            _refuse(
                f"context = {self.context} does not divide the sequence of "
                f"{self.sequence}; use a divisor"
            )
        if (self.data * self.context) % self.expert:
            _refuse(
                f"expert = {self.expert} does not divide data * context = "
                f"{self.data * self.context}; use a divisor"
            )
        if self.chunks > 1 and self.schedule != "interleaved":
            _refuse(f"chunks = {self.chunks} of {self.schedule}; use interleaved")
        if self.schedule == "interleaved" and self.micro_batches % self.pipeline:
            _refuse(
                f"interleaved: micro_batches = {self.micro_batches} is no multiple of "
                f"pipeline = {self.pipeline}; use one"
            )

    @property
    def gpus(self) -> int:
        """GPUs of the run."""
        return self.data * self.tensor * self.context * self.pipeline

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on a rank."""
        return self.micro_batch * self.sequence // self.context

    @property
    def slices(self) -> int:
        """Slices of the model that a rank holds."""
        return 2 if self.schedule in V_SHAPED else self.chunks

    def fits(self, model: Model) -> None:
        """Raise ValueError where the model cannot be split so."""
        slices = self.pipeline * self.slices
        if len(model.layers) + 2 * self.trimmed < slices:
            _refuse(f"{len(model.layers)} layers are too few for {slices} stages")
        for layer in set(model.layers):
            one = layer.attention
            groups = max(one.kv_heads, self.tensor)  # each rank has one at least
            if one.heads % self.tensor or groups % self.tensor:
                what = f"{one.heads} heads in {one.kv_heads} groups"
                _refuse(f"tensor = {self.tensor} does not divide {what}; use a divisor")
            routed = layer.feed_forward.routed
            if routed and routed % self.expert:
                _refuse(f"expert = {self.expert} does not divide {routed} experts")

    def layers(self, model: Model, rank: int) -> list[list[Layer]]:
        """The layers of each slice on `rank`, as even as they go."""
        count = len(model.layers) + 2 * self.trimmed
        slices = self.pipeline * self.slices
        places = [chunk * self.pipeline + rank for chunk in range(self.slices)]
        if self.schedule in V_SHAPED:
            places = [rank, slices - 1 - rank]
        padded = [None, *model.layers, None] if self.trimmed else [*model.layers]
        made = [
            padded[place * count // slices : (place + 1) * count // slices]
            for place in places
        ]
        if self.schedule == "dualpipe":  # the other half of the pipeline, too
            other = self.pipeline - 1 - rank
            made.append(padded[other * count // slices : (other + 1) * count // slices])
        return [[one for one in slice_ if one is not None] for slice_ in made]

    def ends(self, rank: int) -> tuple[bool, bool]:
        """Whether `rank` holds the embedding, and the output matrix with the loss."""
        last = self.pipeline - 1
        if self.schedule in V_SHAPED:
            return rank == 0, rank == 0
        if self.schedule == "dualpipe":
            return rank in (0, last), rank in (0, last)
        return rank == 0, rank == last


# --8<-- [end:plan]


def _refuse(what: str) -> None:
    raise ValueError(f"memory_model: {what}")
