"""From samples to a model: the fit, its contenders, and how good and how sure the result is.

What research needs beyond `delan.fit` is listed in `__init__.pyi`: presets, the study that a fit is
about, and guests, models of one's own under the same contest. Each is imported when it is first
used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
