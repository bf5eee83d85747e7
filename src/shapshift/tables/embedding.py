"""Vectors for images, texts and other items without columns: from a function, or from a model in a folder."""

import hashlib
import importlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from shapshift._arrays import take_rows
from shapshift._progress import progress_bar
from shapshift.checks.inputs import (
    ROW_TYPES,
    check_count,
    check_features,
    check_progress,
    quoted,
    tensor_to_numpy,
    wrong,
)
from shapshift.exceptions import InputError, MissingLibraryError
from shapshift.io.files import cache_folder
from shapshift.tables.images import Images
from shapshift.tables.vector_cache import LOOKED_UP, VectorCache

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

EMBEDDING_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
EMBEDDING_TOKENS = 256
# Every folder of such a model has one of these files.
_MODEL_FILES = ("modules.json", "config.json")
_WEIGHTS = "model.safetensors"
# Endings of pickled weights.
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
# Files that name classes to load, and classes that run no code of others. An initial capital excludes modules.
_CLASS_FILES = ("modules.json", "config.json", "router_config.json")
_CLASS = re.compile(r"(sentence_transformers|torch\.nn)(\.\w+)*\.[A-Z]\w*", re.ASCII)
# Default preparation of images, for networks that were trained on ImageNet.
_IMAGE_SETTINGS: dict[str, Any] = {
    "resize": 256, "image_size": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "num_classes": 1000
}  # fmt: skip


class Embedder(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Vectors of items that are not rows of numbers, such as images and texts, for distance-based models.

    Equal items are embedded once and have equal vectors. Batches are made by content, so that the order of the items
    does not change a vector.

    Parameters
    ----------
    embed : callable, str or path-like, default="sentence-transformers/all-MiniLM-L6-v2"
        A function from a batch of items in their given form (an array of shape (b, height, width, channels), a list of
        b images or texts), to b vectors, as an array or tensor of shape (b, d). Or the folder of a model, which needs
        no network: a sentence-transformers model for texts (extra ``embed``), or a torchvision network for images
        (extra ``image``; ``config.json`` names its architecture, ``model.safetensors`` has its weights). Or the name of
        a sentence-transformers model, which is downloaded at first use. Texts are cut at 256 tokens and their vectors
        have length 1.
    batch_size : int, default=256
        Number of items per batch.
    device : str, optional
        Device of a model, such as "cpu" or "cuda"; by default sentence-transformers chooses, and a network for images
        uses the CPU.
    cache : path-like, optional
        Folder that stores vectors under the hash of their item, so that none is computed twice and a killed run
        resumes. A model is identified by the content of its folder, or by its name and weights. Several processes may
        use the folder at a time.
    name : str, optional
        Name of a function in the cache. Changes of a function are not detected: give it another name whenever it
        changes.
    progress : bool, default=None
        Show a progress bar; None shows it in terminals and notebooks only.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import Embedder, KNNShapley
    >>> images = np.random.default_rng(0).random((20, 8, 8, 3))
    >>> colours = Embedder(lambda batch: batch.mean(axis=(1, 2)))
    >>> vectors = colours.transform(images)
    >>> vectors.shape
    (20, 3)
    >>> model = KNNShapley().fit(vectors[:15], [0, 1, 2] * 5)
    >>> model.value(vectors[15:], [0, 1, 2, 0, 1]).n_train
    15
    """

    def __init__(
        self,
        embed: Callable[[Any], Any] | str | os.PathLike[str] = EMBEDDING_MODEL,
        *,
        batch_size: int = 256,
        device: str | None = None,
        cache: str | os.PathLike[str] | None = None,
        name: str | None = None,
        progress: bool | None = None,
    ) -> None:
        self.embed = embed
        self.batch_size = batch_size
        self.device = device
        self.cache = cache
        self.name = name
        self.progress = progress

    def fit(self, X: Any, y: Any = None) -> Self:
        """Return the transformer: there is nothing to learn.

        Parameters
        ----------
        X, y
            Ignored.

        Returns
        -------
        self
        """
        return self

    def transform(self, X: Any) -> Array:
        """Embed items.

        Parameters
        ----------
        X : array of shape (n, ...), list, column of a frame, or shapshift.tables.Images
            The items. A network for images takes paths of files and encoded images too.

        Returns
        -------
        ndarray of shape (n, d)
            In the type of the vectors, if that is one of float32, float16, int8 and uint8; else float64.
        """
        owner = type(self).__name__
        check_count(owner, "batch_size", self.batch_size)
        check_progress(owner, self.progress)
        scalar = isinstance(X, str | bytes | dict) or not hasattr(X, "__len__")
        if scalar or getattr(X, "ndim", 1) == 0:
            raise InputError(f"'X' must be a list or array of items to embed. Got {type(X).__name__} instead.")
        if len(X) == 0:
            raise InputError("'X' is empty: there is nothing to embed. Pass at least one item.")
        model = self._model()
        if model.of_images and not isinstance(X, Images):
            X = Images(X)
        keys, lengths = _content(X, self.progress)
        if keys is None:
            if self.cache is not None:
                raise InputError(
                    f"The 'cache' parameter of {owner} needs items whose content can be hashed: texts, bytes, arrays "
                    f"or shapshift.tables.Images. Got {type(X).__name__} of other items. Leave 'cache' out."
                )
            first = places = np.arange(len(X))
        else:
            keys, first, places = np.unique(keys, return_index=True, return_inverse=True)
        found, wanted = _Vectors(owner, len(X)), np.arange(first.size)
        with ExitStack() as stack:
            cache = None
            if self.cache is not None and model.identity is not None and keys is not None:
                cache = stack.enter_context(VectorCache(self.cache, model.identity))
            advance = stack.enter_context(progress_bar("Embedding", first.size, self.progress))
            if cache is not None and keys is not None:
                wanted = np.concatenate([*_look_up(cache, keys, first, found, advance), np.empty(0, dtype=np.int64)])
            # The longest first, because a model is faster on texts of one length.
            wanted = wanted[np.argsort(-lengths[first[wanted]], kind="stable")] if lengths is not None else wanted
            function = model.load(X) if wanted.size else None
            for lo in range(0, wanted.size, int(self.batch_size)):
                batch = wanted[lo : lo + int(self.batch_size)]
                items = X.take(first[batch]) if isinstance(X, Images) else take_rows(X, first[batch])
                assert function is not None
                vectors = found.checked(function(items), first[batch])
                found.put(first[batch], vectors)
                if cache is not None and keys is not None:
                    cache.put(keys[batch], vectors)
                advance(batch.size)
        return found.spread(first[places])

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _model(self) -> "_Model":
        """Return the embedding function and its identity; a model in a folder is not loaded yet."""
        owner = type(self).__name__
        if callable(self.embed):
            function = self.embed
            if self.cache is not None and not (isinstance(self.name, str) and self.name):
                raise InputError(
                    f"The 'name' parameter of {owner} must identify the function in the cache, because changes "
                    f"of a function are not detected. Got {self.name!r}. Give a name with a "
                    "version, such as name='halves-1', and another one whenever the function changes."
                )
            return _Model(f"function {self.name}", False, lambda items: function)
        if not isinstance(self.embed, str | os.PathLike):
            raise wrong(owner, "embed", "a function, or the name or the folder of a model", self.embed)
        folder = _model_folder(owner, self.embed)
        if folder is None:
            loaded = _text_model(owner, self.embed, self.device)
            weights = _weights_digest(loaded) if self.cache is not None else None
            identity = None if weights is None else f"{os.fspath(self.embed)} {weights} {EMBEDDING_TOKENS}"
            return _Model(identity, False, lambda items: _encoder(owner, loaded, items))
        images = is_image_model(folder)
        library, load = ("torchvision", _image_function) if images else ("sentence-transformers", _text_function)
        identity = None
        if self.cache is not None:
            identity = f"{library} {_version(library)} {_folder_digest(folder)} {EMBEDDING_TOKENS}"
        return _Model(identity, images, lambda items: load(owner, folder, self.device, items))


class _Model(NamedTuple):
    """Source of embeddings.

    Attributes
    ----------
    identity : str or None
        Key of its vectors in the cache; None if it cannot be identified.
    of_images : bool
        Whether it takes images only.
    load : callable
        Returns the function for batches of some items.
    """

    identity: str | None
    of_images: bool
    load: Callable[[Any], Callable[[Any], Any]]


def embedder_of(embed: Any, progress: bool | None, *, images: bool) -> Embedder:
    """Return the embedder for columns of texts or images; vectors of models are kept in the default cache folder."""
    if isinstance(embed, Embedder):
        return embed
    if embed is None:
        if images:
            raise InputError(
                "Images need a model: --embed FOLDER, with the config.json and model.safetensors of a torchvision "
                "network, or in Python a function."
            )
        embed = EMBEDDING_MODEL
    if not callable(embed):
        folder = _model_folder("TableSpec", embed)
        of_images = folder is not None and is_image_model(folder)
        if of_images != images:
            held, other = ("images", "--image") if of_images else ("texts", "--text")
            raise InputError(f"The model {os.fspath(embed)!r} is one for {held}. Name columns of {held} with {other}.")
    cache = None if callable(embed) else cache_folder(None) / "vectors"
    return Embedder(embed, cache=cache, progress=progress)


def described(embed: Any) -> str:
    """Return the name of an embedder."""
    embed = embed.embed if isinstance(embed, Embedder) else embed
    if isinstance(embed, str | os.PathLike):
        return os.fspath(embed)
    return f"the function {getattr(embed, '__qualname__', type(embed).__name__)}"


class _Vectors:
    """Vectors of items, of one length, in the shortest type that holds all of them."""

    def __init__(self, owner: str, size: int) -> None:
        self._owner, self._size, self._rows = owner, size, np.empty((0, 0))

    @property
    def width(self) -> int:
        """Length of the vectors, 0 while there are none."""
        return int(self._rows.shape[1])

    def put(self, places: Indices, vectors: Array) -> None:
        if not self.width:
            self._rows = np.empty((self._size, vectors.shape[1]), dtype=vectors.dtype)
        if self._rows.dtype != vectors.dtype:
            kind = np.result_type(self._rows, vectors)
            self._rows = self._rows.astype(ROW_TYPES.get(kind.name, "float64"), copy=False)
        self._rows[places] = vectors

    def spread(self, source: Indices) -> Array:
        """Return all vectors; ``source`` is the item that has the content of each."""
        copies = np.flatnonzero(source != np.arange(source.size))
        for lo in range(0, copies.size, LOOKED_UP):
            here = copies[lo : lo + LOOKED_UP]
            self._rows[here] = self._rows[source[here]]
        return self._rows

    def checked(self, made: Any, items: Indices) -> Array:
        """Return the vectors of a batch; refuse a wrong number or length of them, or entries that are not numbers."""
        size, returned = items.size, f"The 'embed' function of {self._owner} must return one vector for each item"
        made = tensor_to_numpy(made)
        try:
            shape = None if sparse.issparse(made) or hasattr(made, "columns") else np.shape(made)
        except ValueError:  # vectors of several lengths
            shape = None
        if shape is not None and len(shape) != 2:
            got = f"shape {shape}" if shape else type(made).__name__
            raise InputError(f"{returned}, as an array of shape ({size}, d). Got {got} for {size} items.")
        numbers = np.zeros((size, 1))
        with suppress(TypeError, ValueError):
            numbers = np.asarray(made, dtype=np.float64) if shape and shape[0] == size else numbers
        odd = np.flatnonzero(~np.isfinite(numbers).all(axis=1))
        if odd.size:
            entry = numbers[odd[0]][~np.isfinite(numbers[odd[0]])][0]
            raise InputError(
                f"{returned}, of finite numbers. Got {entry} for item {items[odd[0]]} (from 0), and such numbers for "
                f"{odd.size} of {size} items. Correct the function or the model, or leave these items out."
            )
        called = f"what 'embed' returned for {size} items"
        vectors = check_features(made, called, sparse_ok="which is not supported", narrow=True).rows
        width = self.width or vectors.shape[1]
        if vectors.shape != (size, width):
            after = f" after vectors of length {width}" if self.width else ""
            raise InputError(f"{returned}, all of one length. Got shape {vectors.shape} for {size} items{after}.")
        return np.asarray(vectors)


def _look_up(
    cache: VectorCache, keys: Array, first: Indices, found: _Vectors, advance: Callable[[int], None]
) -> Iterator[Indices]:
    """Take stored vectors, and yield the places of keys without a stored, finite vector of the right length."""
    for lo in range(0, keys.size, LOOKED_UP):
        kept = cache.get(keys[lo : lo + LOOKED_UP])
        width = found.width or max((vector.size for vector in kept.values()), default=0)
        known = [at for at, vector in kept.items() if vector.size == width and np.isfinite(vector).all()]
        if known:
            kinds = {kept[at].dtype.name for at in known}
            kind = ROW_TYPES.get(np.result_type(*kinds).name, "float64")
            found.put(first[lo + np.array(known)], np.stack([kept[at] for at in known]).astype(kind))
            advance(len(known))
        here = np.arange(lo, min(lo + LOOKED_UP, keys.size))
        yield np.delete(here, known)


def _content(X: Any, progress: bool | None) -> tuple[Array | None, Indices | None]:
    """Return the hash of each item, None for items that cannot be hashed, and lengths of texts."""
    if isinstance(X, Images):
        return X.keys(progress), None
    if hasattr(X, "columns"):
        return None, None
    items, digests, lengths = tensor_to_numpy(X), [], []
    for item in items:
        if isinstance(item, str):
            kind, content = "text", item.encode("utf-8", "surrogatepass")
            lengths.append(len(item))
        elif isinstance(item, bytes):
            kind, content = "bytes", item
        elif isinstance(item, np.ndarray) and item.dtype.kind in "biuf":
            kind, content = f"{item.dtype.str} {item.shape}", item.tobytes()
        else:
            return None, None
        digests.append(hashlib.sha256(kind.encode() + b"\0" + content).digest()[:16])
    texts = np.array(lengths) if len(lengths) == len(digests) else None
    return np.array(digests, dtype="S16"), texts


def _model_folder(owner: str, embed: str | os.PathLike[str]) -> Path | None:
    """Return the folder of the model, None for the name of a model; refuse a folder without a model."""
    name = os.fspath(embed)
    folder = Path(name).expanduser()
    local = folder.is_dir() or isinstance(embed, os.PathLike) or folder.is_absolute() or name.startswith((".", "~"))
    if not local:
        return None
    if not any((folder / file).is_file() for file in _MODEL_FILES):
        missing = f"has neither {' nor '.join(_MODEL_FILES)}" if folder.is_dir() else "is not there"
        what = f"{name!r}, which is a file" if folder.is_file() else f"the folder {name!r}, which {missing}"
        raise InputError(f"The 'embed' parameter of {owner} names {what}. {_HOW}")
    return folder


_HOW = (
    "On a machine with a network, save the model with sentence_transformers.SentenceTransformer"
    f"('{EMBEDDING_MODEL}').save('folder'), copy the folder here, and name it."
)


def is_image_model(folder: Path) -> bool:
    """Whether the folder of a model has a network for images."""
    return not (folder / "modules.json").is_file() and "architecture" in _config(folder)


def _config(folder: Path) -> dict[str, Any]:
    config = _json(folder / "config.json")
    return config if isinstance(config, dict) else {}


def _json(path: Path) -> Any:
    with suppress(OSError, ValueError, RecursionError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None


def _check_classes(owner: str, folder: Path) -> None:
    """Refuse a folder that names classes of other libraries or of its own, whose code would run while it is loaded."""
    for name, path in sorted(_files(folder)):
        if path.name not in _CLASS_FILES:
            continue
        config, named = _json(path), []
        if isinstance(config, list):
            named = [part.get("type") for part in config if isinstance(part, dict)]
        elif isinstance(config, dict):
            kinds, function = config.get("types"), config.get("activation_function")
            named = list(kinds.values()) if isinstance(kinds, dict) else []
            # Without a dot it is a name that the model knows, such as "gelu".
            named += [function] if isinstance(function, str) and "." in function else []
        odd = [one for one in named if not (isinstance(one, str) and _CLASS.fullmatch(one))]
        if odd:
            raise InputError(
                f"The 'embed' parameter of {owner} names the folder {os.fspath(folder)!r}, whose {name} names the "
                f"class {quoted(odd[0])}, which is not one of sentence-transformers. Its code would run. If you trust "
                "it, load the model yourself and pass a function: Embedder(lambda texts: model.encode(list(texts)))."
            )


def _check_weights(owner: str, folder: Path) -> None:
    """Refuse a folder with pickled weights that no safetensors file stands in for."""
    paths = dict(sorted(_files(folder)))
    safe = {path.parent for path in paths.values() if path.suffix == ".safetensors"}
    pickled = [name for name, path in paths.items() if path.suffix in _PICKLED and path.parent not in safe]
    if pickled:
        raise InputError(
            f"The 'embed' parameter of {owner} names the folder {os.fspath(folder)!r}, whose {pickled[0]} holds "
            "pickled weights: loading a pickle can run code. Convert it where you trust it, and name the new folder: "
            "SentenceTransformer(folder).save(new_folder)."
        )


def _folder_digest(folder: Path) -> str:
    """Hash the names and contents of all files of a folder."""
    whole = hashlib.sha256()
    for name, path in sorted(_files(folder)):
        content = "folder"
        if path.is_file():
            with open(path, "rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{len(name)}:{name}:{content}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a folder and of folders that it links to, with names; a folder met again is not searched."""
    met: dict[str, str] = {}
    for place, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        here, real = Path(place).relative_to(folder).as_posix(), os.path.realpath(place)
        if real in met:
            folders.clear()
            yield f"{here} is {met[real]}", Path(place)
            continue
        met[real] = here
        yield from ((f"{here}/{name}".removeprefix("./"), Path(place, name)) for name in names)


def _weights_digest(model: Any) -> str | None:
    """Hash the weights of a model that was loaded by its name; None if unknown."""
    if not hasattr(model, "state_dict"):
        return None
    whole = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        weights = np.ascontiguousarray(tensor_to_numpy(tensor))
        whole.update(f"{name} {weights.dtype.str} {weights.shape}\n".encode())
        whole.update(weights.data)
    return whole.hexdigest()


def _version(library: str) -> str:
    with suppress(PackageNotFoundError):
        return version(library)
    return "0"


def _text_model(owner: str, name: str | os.PathLike[str], device: str | None) -> Any:
    """Load a sentence-transformers model."""
    try:
        library = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise MissingLibraryError(
            f"Embedding texts needs the sentence-transformers package ({error}). Install it with: "
            'pip install "shapshift[embed]".'
        ) from error
    folder = Path(name).expanduser()
    local = _model_folder(owner, name) is not None
    if local:
        _check_classes(owner, folder)
        _check_weights(owner, folder)
    try:
        # Other weights are pickles, and whether a pickle's code runs depends on the version of torch.
        safe = {"use_safetensors": True}
        model = library.SentenceTransformer(str(folder) if local else os.fspath(name), device=device, model_kwargs=safe)
    except Exception as error:  # errors of the library, of its loaders, or of the network
        shown = os.fspath(name)
        what = f"the folder {shown!r}, which is incomplete" if local else f"{shown!r}, which is not on this machine"
        raise InputError(
            f"The 'embed' parameter of {owner} names {what} or cannot be loaded ({type(error).__name__}: {error}). "
            f"{_HOW}"
        ) from error
    model.max_seq_length = EMBEDDING_TOKENS
    return model


def _text_function(owner: str, folder: Path, device: str | None, texts: Any) -> Callable[[Any], Any]:
    _check_texts(owner, texts)
    return _encoder(owner, _text_model(owner, folder, device), texts)


def _encoder(owner: str, model: Any, texts: Any) -> Callable[[Any], Any]:
    """Return the function that embeds a batch of texts."""
    _check_texts(owner, texts)

    def encode(batch: Any) -> Any:
        return model.encode(list(batch), batch_size=64, normalize_embeddings=True, show_progress_bar=False)

    return encode


def _check_texts(owner: str, texts: Any) -> None:
    if isinstance(texts, Images):
        raise InputError(
            f"'X' must be a sequence of strings for a text model. {owner} got images: name a model of those."
        )
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"'X' must be a sequence of strings for a text model. Item {at} is {type(text).__name__}. {owner} "
                "takes a function for other items; fill in missing texts, or leave them out."
            )


def _image_function(owner: str, folder: Path, device: str | None, images: Any) -> Callable[[Any], Any]:
    """Load a torchvision network without its last linear layer, and return the function that embeds images."""
    try:
        torch, models = importlib.import_module("torch"), importlib.import_module("torchvision.models")
        load_file = importlib.import_module("safetensors.torch").load_file
    except ImportError as error:
        raise MissingLibraryError(
            f"Embedding images with the model in {os.fspath(folder)!r} needs torch, torchvision and safetensors "
            f'({error}). Install them with: pip install "shapshift[image]". Or pass a function.'
        ) from error
    given: dict[str, Any] = _IMAGE_SETTINGS | _config(folder)
    try:
        network = models.get_model(given["architecture"], weights=None, num_classes=int(given["num_classes"]))
        network.load_state_dict(load_file(folder / _WEIGHTS))
        size, resize = int(given["image_size"]), int(given["resize"])
        mean, std = (np.array(given[name], dtype=np.float32).reshape(3) for name in ("mean", "std"))
    except Exception as error:  # of torchvision, safetensors or torch, for names, shapes and files
        raise InputError(
            f"The 'embed' parameter of {owner} names the folder {os.fspath(folder)!r}, whose network cannot be loaded "
            f"({type(error).__name__}: {str(error)[:300]}). config.json must name an architecture of torchvision, and "
            f"{_WEIGHTS} have the weights of all its layers: safetensors.torch.save_file(network.state_dict(), path)."
        ) from error
    layers = [name for name, layer in network.named_modules() if isinstance(layer, torch.nn.Linear)]
    if layers:
        network.set_submodule(layers[-1], torch.nn.Identity())
    network.eval().to(device or "cpu")

    def encode(batch: list[Any]) -> Any:
        pixels = np.stack([_cropped(image, resize, size) for image in batch])
        tensor = torch.from_numpy((pixels - mean) / std).permute(0, 3, 1, 2).to(device or "cpu")
        with torch.inference_mode():
            return network(tensor).flatten(1)

    return encode


def _cropped(image: Any, resize: int, size: int) -> Array:
    """Return the centre of an image after resizing its shorter side, as numbers from 0 to 1."""
    scale = resize / min(image.size)
    image = image.resize([max(size, round(side * scale)) for side in image.size])
    left, top = ((side - size) // 2 for side in image.size)
    return np.asarray(image.crop((left, top, left + size, top + size)), dtype=np.float32) / 255


def embed_texts(
    texts: Sequence[str],
    *,
    model_name: str | os.PathLike[str] = EMBEDDING_MODEL,
    batch_size: int = 64,
    device: str | None = None,
) -> npt.NDArray[np.float32]:
    """Embed texts as vectors of unit length with a sentence-transformers model.

    Needs the optional extra: ``pip install "shapshift[embed]"``. A model given by name is downloaded at its first use.

    Parameters
    ----------
    texts : sequence of str
        Each is cut at 256 tokens.
    model_name : str or path-like, default="sentence-transformers/all-MiniLM-L6-v2"
        As `embed` of :class:`shapshift.Embedder`: any model that sentence-transformers can load, or its folder.
    batch_size : int, default=64
        Texts per batch.
    device : str, optional
        Such as "cpu" or "cuda"; by default sentence-transformers chooses.

    Returns
    -------
    ndarray of float32, shape (n_texts, n_dimensions)
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise InputError("'texts' must be a sequence of strings. Wrap a single text in a list.")
    embedder = Embedder(model_name, batch_size=batch_size, device=device)
    return embedder.transform(list(texts)).astype(np.float32, copy=False)
