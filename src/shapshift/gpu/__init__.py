"""Valuing on a graphics card, with torch and Triton. Nothing of it is loaded before it is asked for."""


def torch_device(device: str) -> str | None:
    """Return the device that "cuda" or "auto" stands for, as torch names it; None for the CPU and its own kernels.

    Raises
    ------
    ImportError
        If "cuda" was asked for and torch is not installed.
    RuntimeError
        If "cuda" was asked for and torch sees no card.
    """
    if device == "cpu":
        return None
    try:
        import torch
    except ImportError:
        if device == "auto":
            return None
        raise ImportError(
            "device='cuda' needs torch. Install it with pip install 'shapshift[torch]', or use device='cpu'."
        ) from None
    if torch.cuda.is_available():
        return "cuda"
    if device == "auto":
        return None
    raise RuntimeError(
        "device='cuda' needs a CUDA card that torch can use, and torch.cuda.is_available() is False. Use device='cpu', or "
        "device='auto' to take a card where there is one."
    )


def is_on_card(data: object) -> bool:
    """Tell whether data is a torch tensor in the memory of a card."""
    return type(data).__module__.split(".")[0] == "torch" and bool(getattr(data, "is_cuda", False))
