"""Learn how a robot's joints move from what its sensors recorded, in a form that cannot break the laws of mechanics."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data.doctor import examine as examine
    from .data.doctor.finding import Finding as Finding
    from .data.log_options import LogOptions as LogOptions
    from .data.logs import read_log as read_log
    from .data.logs import stream_log as stream_log
    from .data.preparation import PreparationSettings as PreparationSettings
    from .data.preparation import prepare as prepare
    from .data.splitting import hold_out as hold_out
    from .deploy.compiled import CompiledModel as CompiledModel
    from .deploy.compiled import compile as compile
    from .deploy.project import export as export
    from .deploy.shape import ExportSettings as ExportSettings
    from .errors import CompilerError as CompilerError
    from .errors import DataError as DataError
    from .errors import DelanError as DelanError
    from .errors import ModelError as ModelError
    from .errors import ModelFileError as ModelFileError
    from .errors import RobotError as RobotError
    from .errors import SettingsError as SettingsError
    from .experiments.online import OnlineOutcome as OnlineOutcome
    from .experiments.online import OnlineRun as OnlineRun
    from .experiments.online import run_online as run_online
    from .joints import Dataset as Dataset
    from .joints import JointLimits as JointLimits
    from .joints import Joints as Joints
    from .joints import JointState as JointState
    from .joints import Preparation as Preparation
    from .joints import Recording as Recording
    from .joints import TorqueComponents as TorqueComponents
    from .joints import Trajectory as Trajectory
    from .learning.choosing import fit as fit
    from .learning.descent import DescentSettings as DescentSettings
    from .learning.evaluate import Scores as Scores
    from .learning.evaluate import evaluate as evaluate
    from .learning.fit_result import FitResult as FitResult
    from .learning.identify import IdentifyResult as IdentifyResult
    from .learning.identify import IdentifySettings as IdentifySettings
    from .learning.identify import identify as identify
    from .learning.levenberg_marquardt import MarquardtSettings as MarquardtSettings
    from .learning.log_fit import LogFit as LogFit
    from .learning.log_fit import LogFitSettings as LogFitSettings
    from .learning.log_fit import fit_log as fit_log
    from .learning.objective import Objective as Objective
    from .learning.planning import FitSettings as FitSettings
    from .mechanics.integration import rollout as rollout
    from .models.actuated import ActuatedModel as ActuatedModel
    from .models.actuator import Actuator as Actuator
    from .models.actuator import ActuatorSettings as ActuatorSettings
    from .models.actuator import MotorPair as MotorPair
    from .models.chain import LagrangianChain as LagrangianChain
    from .models.chain import LagrangianChainSettings as LagrangianChainSettings
    from .models.dynamics import DynamicsModel as DynamicsModel
    from .models.dynamics import InverseDynamics as InverseDynamics
    from .models.feed_forward import FeedForwardNetwork as FeedForwardNetwork
    from .models.feed_forward import FeedForwardSettings as FeedForwardSettings
    from .models.geometry import LearnedArm as LearnedArm
    from .models.geometry import from_rigid_body as from_rigid_body
    from .models.geometry import learned_arm as learned_arm
    from .models.geometry import to_rigid_body as to_rigid_body
    from .models.network import LagrangianNetwork as LagrangianNetwork
    from .models.network import LagrangianNetworkSettings as LagrangianNetworkSettings
    from .models.residual import ResidualModel as ResidualModel
    from .models.rigid_body import RigidBody as RigidBody
    from .models.trust import TrustedModel as TrustedModel
    from .storage import load as load
    from .storage import read_header as read_header
    from .storage import save as save

_HOMES = {
    "data.log_options": ("LogOptions",),
    "data.logs": ("read_log", "stream_log"),
    "data.doctor": ("examine",),
    "data.doctor.finding": ("Finding",),
    "data.preparation": ("PreparationSettings", "prepare"),
    "data.splitting": ("hold_out",),
    "deploy.shape": ("ExportSettings",),
    "deploy.compiled": ("CompiledModel", "compile"),
    "deploy.project": ("export",),
    "errors": (
        "CompilerError",
        "DataError",
        "DelanError",
        "ModelError",
        "ModelFileError",
        "RobotError",
        "SettingsError",
    ),
    "experiments.online": ("OnlineOutcome", "OnlineRun", "run_online"),
    "joints": (
        "Dataset",
        "JointLimits",
        "JointState",
        "Joints",
        "Preparation",
        "Recording",
        "TorqueComponents",
        "Trajectory",
    ),
    "learning.choosing": ("fit",),
    "learning.descent": ("DescentSettings",),
    "learning.evaluate": ("Scores", "evaluate"),
    "learning.fit_result": ("FitResult",),
    "learning.identify": ("IdentifyResult", "IdentifySettings", "identify"),
    "learning.levenberg_marquardt": ("MarquardtSettings",),
    "learning.log_fit": ("LogFit", "LogFitSettings", "fit_log"),
    "learning.objective": ("Objective",),
    "learning.planning": ("FitSettings",),
    "mechanics.integration": ("rollout",),
    "models.actuated": ("ActuatedModel",),
    "models.actuator": ("Actuator", "ActuatorSettings", "MotorPair"),
    "models.chain": ("LagrangianChain", "LagrangianChainSettings"),
    "models.dynamics": ("DynamicsModel", "InverseDynamics"),
    "models.feed_forward": ("FeedForwardNetwork", "FeedForwardSettings"),
    "models.geometry": ("LearnedArm", "from_rigid_body", "learned_arm", "to_rigid_body"),
    "models.network": ("LagrangianNetwork", "LagrangianNetworkSettings"),
    "models.residual": ("ResidualModel",),
    "models.rigid_body": ("RigidBody",),
    "models.trust": ("TrustedModel",),
    "storage": ("load", "read_header", "save"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that `import delan` costs next to nothing."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'delan' has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
