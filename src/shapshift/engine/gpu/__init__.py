"""Valuation on a GPU, with torch and Triton, which are loaded only when needed."""

from shapshift.exceptions import InputError, MissingLibraryError


def torch_device(caller: str, device: str) -> str | None:
    """Return torch's name of the device for "cuda" or "auto"; None for the CPU and its own kernels.

    Parameters
    ----------
    caller : str
        Class or function whose parameter this is.
    device : {"cpu", "cuda", "auto"}

    Raises
    ------
    ImportError
        If "cuda" was requested and torch is not installed.
    ValueError
        If "cuda" was requested and torch sees no GPU.
    """
    if device == "cpu":
        return None
    try:
        import torch
    except ImportError:
        if device == "auto":
            return None
        raise MissingLibraryError(
            f"The 'device' parameter of {caller} is 'cuda', which needs torch. Install it with pip install "
            "'shapshift[torch]', or use 'cpu'."
        ) from None
    if torch.cuda.is_available():
        return "cuda"
    if device == "auto":
        return None
    raise InputError(
        f"The 'device' parameter of {caller} must be 'cpu' or 'auto' where torch sees no CUDA GPU "
        "(torch.cuda.is_available() is False). Got 'cuda' instead."
    )


def is_on_gpu(data: object) -> bool:
    """Tell whether data is a torch tensor in the memory of a GPU."""
    return type(data).__module__.split(".")[0] == "torch" and bool(getattr(data, "is_cuda", False))
