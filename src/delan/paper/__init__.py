"""The experiments of the paper, as cells of a grid.

Their data sets and their statistics over seeds are listed in `__init__.pyi`, for experiments of
one's own; each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
