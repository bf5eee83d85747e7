"""
Text and images
===============

Nearest neighbours need vectors. Pass a function that turns a batch of items into vectors: your neural network, or
anything simpler. This tutorial values images and short texts, and finds wrong labels among them. It downloads
nothing.

You need: ``pip install ".[pandas,plot]"`` in the folder of the source.
"""

# %%
# Images
# ------
#
# The handwritten digits have 1,797 images of 8 by 8 pixels. We make 30 labels wrong.

import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
images = digits.images[:, :, :, None]  # (1797, 8, 8, 1): height, width, channels
labels = digits.target.copy()
rng = np.random.default_rng(0)
wrong = rng.choice(len(labels), size=30, replace=False)
labels[wrong] = (labels[wrong] + rng.integers(1, 10, size=30)) % 10

# %%
# :class:`~shapshift.Embedder` calls a function batch by batch, and checks what it returns.
# The function here averages the ink in small windows; it stands in for your network.


def windows(batch):
    """Means of overlapping windows of 3 by 3 pixels: (b, 8, 8, 1) to (b, 36)."""
    views = np.lib.stride_tricks.sliding_window_view(batch[..., 0], (3, 3), axis=(1, 2))
    return views.mean(axis=(3, 4)).reshape(len(batch), -1)


from shapshift import Embedder, KNNShapley, cross_value

vectors = Embedder(windows, batch_size=500).transform(images)
print(images.shape, "->", vectors.shape)

# %%
# With torch, the function is ``lambda batch: network(preprocess(batch))`` under ``torch.no_grad()``. It may return
# tensors.
#
# From here on, the images are rows of a table. Each row is valued on all others.

result = cross_value(KNNShapley(n_neighbors=5), vectors, labels)
print(result)

# %%
# The images with the lowest values. A red title marks a label that we made wrong.

import matplotlib.pyplot as plt

lowest = result.values.argsort()[:24]
fig, axes = plt.subplots(3, 8, figsize=(8, 3.8), layout="constrained")
for ax, row in zip(axes.flat, lowest):
    ax.imshow(digits.images[row], cmap="gray_r")
    ax.set_title(f"label {labels[row]}", color="tab:red" if row in wrong else "black", fontsize=9)
    ax.axis("off")

# %%
# Which of them to relabel, and to what?

from shapshift import find_suspects

suspects = find_suspects(vectors, labels, model="neighbors", error=0.1)
flagged = suspects.flagged_frame()
right = (flagged["suggested"] == digits.target[flagged["id"]]).sum()
print(
    f"{len(flagged)} labels flagged; {np.isin(flagged['id'], wrong).sum()} of the 30 wrong ones are among them; ",
    end="",
)
print(f"{right} suggestions are the true digit")

# %%
# Text
# ----
#
# Complaints and praise of a shop, made from a few words, so that nothing has to be downloaded.

bad = ["late", "broken", "rude", "refund", "missing", "slow", "wrong", "damaged"]
good = ["great", "fast", "friendly", "perfect", "quality", "recommend", "easy", "love"]
filler = ["the", "delivery", "item", "was", "and", "service", "shop", "order", "with", "my"]


def sentence(kind):
    words = list(rng.choice(bad if kind == "complaint" else good, 3)) + list(rng.choice(filler, 6))
    return " ".join(rng.permutation(words))


kinds = rng.choice(["complaint", "praise"], size=400)
texts = [sentence(kind) for kind in kinds]
noisy = kinds.copy()
swapped = rng.choice(300, size=15, replace=False)
noisy[swapped] = np.where(kinds[swapped] == "praise", "complaint", "praise")
print(texts[0], "|", noisy[0])

# %%
# In a table, :class:`~shapshift.tables.TableSpec` names the column of texts and the function that embeds it. Here the
# function weighs counts of words and reduces them to 20 dimensions. It is fitted once, on the training texts: the
# first 300. The other 100 are validation points.

import pyarrow as pa
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from shapshift.tables import TableSpec, prepare

words = make_pipeline(TfidfVectorizer(), TruncatedSVD(20, random_state=0)).fit(texts[:300])
table = pa.table({"body": texts, "kind": noisy})
tables = prepare(table[:300], table[300:], TableSpec("kind", text="body", embed=words.transform))
model = KNNShapley(n_neighbors=5, metric="cosine").fit(tables.X_train, tables.y_train)
values = model.value(tables.X_val, tables.y_val).values
low = values.argsort()[:15]
print(f"{np.isin(low, swapped).sum()} of the 15 texts with the lowest values have a wrong label; there are 15")

# %%
# For real texts and photos, use a model that was saved to a folder; :doc:`/inputs` shows how to save one. Nothing is
# downloaded. Vectors are cached, so the second run does not load the model:
#
# .. code-block:: console
#
#    $ shapshift value reviews.parquet --label y --text body --embed ./minilm
#    $ shapshift value photos.csv --label kind --image file --embed ./resnet18
#
# Next
# ----
#
# * :doc:`/inputs` describes embedders, models in folders, graphs of neighbours, and frames with text and gaps.
# * :doc:`find_bad_rows` corrects the suspects and measures the effect.
