from .admission import AdmissionSettings
from .controller import Gains
from .guard import GuardSettings
from .learner import LearnerSettings
from .loop import LoopSettings
from .online_run import OnlineRun, cosines, run_online
from .rig import Observers
from .session import OnlineOutcome, Robot, SessionSettings, run
from .stats import LoopProgress, LoopResult, LoopStats, Tracking

__all__ = [
    "AdmissionSettings",
    "Gains",
    "GuardSettings",
    "LearnerSettings",
    "LoopProgress",
    "LoopResult",
    "LoopSettings",
    "LoopStats",
    "Observers",
    "OnlineOutcome",
    "OnlineRun",
    "Robot",
    "SessionSettings",
    "Tracking",
    "cosines",
    "run",
    "run_online",
]
