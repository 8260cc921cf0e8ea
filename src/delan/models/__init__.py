"""Models of a robot's dynamics: equinox modules that keep the promises of `dynamics`.

The pieces that a network of one's own is built of are listed in `__init__.pyi`, the paper's
Lagrangian layer among them; each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
