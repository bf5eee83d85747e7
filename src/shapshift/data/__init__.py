"""Ready-made training and validation sets: generated, bundled with scikit-learn, from a local folder, or downloaded."""

from shapshift.data.dataset import PROTOCOLS, Dataset, list_datasets, load_dataset
from shapshift.tables.embedding import EMBEDDING_MODEL, EMBEDDING_TOKENS, embed_texts

__all__ = [
    "EMBEDDING_MODEL",
    "EMBEDDING_TOKENS",
    "PROTOCOLS",
    "Dataset",
    "embed_texts",
    "list_datasets",
    "load_dataset",
]
