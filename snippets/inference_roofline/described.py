"""A pasted config.json as what a pass asks for: matrices, and windows if there are."""

from __future__ import annotations

from snippets.model_configs import model_configs
from snippets.model_flops.model_flops import MODELS, Decoder


def described(name: str, config: str) -> tuple[Decoder, int, int, tuple[str, ...]]:
    """Matrices, keys of a window, layers that have it, and notes; of `config` if any.

    Raises ValueError for a text that is no configuration, and for a model with windows
    of several widths or layers that differ by more.
    """
    if not config.strip():
        return MODELS[name], 0, 0, ()
    model = model_configs.read(config)
    windows = [one.attention.window for one in model.layers if one.attention.window]
    if len(set(windows)) > 1:
        raise ValueError(
            f"inference_roofline: windows of {sorted(set(windows))} keys; one is known"
        )
    notes = [*model.notes]
    if model.unknown:
        notes.append(f"Not understood, and left out: {', '.join(model.unknown)}.")
    width = windows[0] if windows else 0
    return model_configs.decoder(model), width, len(windows), tuple(notes)
