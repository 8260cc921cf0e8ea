"""Learn a robot's dynamics from its sensors, in a form that cannot break the laws of mechanics.

The public names and their modules are listed once, in `__init__.pyi`. Each is imported when it is
first used, so that `import delan` costs next to nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
