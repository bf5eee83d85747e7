"""Value training rows, measure how much the values depend on the validation set, correct them, and price them.

``__init__.pyi`` lists the public names; each is loaded on first use, so ``import shapshift`` is fast.
"""

from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("shapshift")
