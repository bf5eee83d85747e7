"""What notebooks show."""


class Shown:
    """Base of whatever a notebook shows as HTML, by one template."""

    def _repr_html_(self) -> str:
        from shapshift._notebook import show

        return show(self)
