"""20 Newsgroups as text."""

from pathlib import Path

TEXT_FILE = "news20_text.parquet"
TEXT_SHA256 = "e74dd8374af89d9f357f78e02b5fff910825d677fff3707e3b8c17c4129b38ce"


def fetch_newsgroups(cache: Path) -> tuple[list[str], list[int], list[str]]:
    """Fetch the messages of comp.* (1) and rec.* (0): texts, labels and newsgroups; empty messages are dropped."""
    from sklearn.datasets import fetch_20newsgroups

    texts, labels, groups = [], [], []
    for subset in ("train", "test"):
        try:
            bunch = fetch_20newsgroups(
                subset=subset, shuffle=False, remove=("headers", "footers", "quotes"), data_home=str(cache)
            )
        except OSError as error:
            raise ConnectionError(
                f"Could not fetch 20 Newsgroups ({error}). Without a network, put news20.parquet or {TEXT_FILE} into "
                "a folder and name it with data_dir or SHAPSHIFT_DATA."
            ) from error
        for text, target in zip(bunch.data, bunch.target, strict=True):
            group = str(bunch.target_names[target])
            if group.startswith(("comp.", "rec.")) and text.strip():
                texts.append(text)
                labels.append(int(group.startswith("comp.")))
                groups.append(group)
    return texts, labels, groups
