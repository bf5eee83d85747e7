"""Display in notebooks."""


class Shown:
    """Base of everything that a notebook shows as HTML, with one template."""

    def _repr_html_(self) -> str:
        from shapshift._notebook import show

        return show(self)
