from .deploy.compiled import CompiledModel, compile
from .deploy.layout import ExportSettings
from .deploy.project import export
from .errors import (
    CompilerError,
    DataError,
    DelanError,
    ModelError,
    ModelFileError,
    RobotError,
    SettingsError,
)
from .identification.identify import IdentifyResult, IdentifySettings, identify
from .joints import (
    Dataset,
    JointLimits,
    Joints,
    JointState,
    Preparation,
    Recording,
    TorqueComponents,
    Trajectory,
)
from .learning.cutoff import prepare
from .learning.fit import Fit, fit
from .learning.fit_settings import FitSettings
from .learning.model_fit import TrainingStart
from .learning.scores import Scores, evaluate
from .learning.verdict import Verdict
from .logs.doctor import examine
from .logs.doctor.finding import Finding
from .logs.options import LogOptions
from .logs.preparation import PreparationSettings
from .logs.reading import read_log
from .mechanics.integration import rollout
from .models.chain import LagrangianChain, LagrangianChainSettings
from .models.dynamics import InverseDynamics
from .models.friction import Friction, FrictionSettings, MotorPair
from .models.geometry import LearnedArm, from_rigid_body, learned_arm, to_rigid_body
from .models.model import Model
from .models.networks import (
    FeedForwardNetwork,
    FeedForwardSettings,
    LagrangianNetwork,
    LagrangianNetworkSettings,
)
from .models.rigid_body import RigidBody
from .models.trust import Trust
from .solvers.adam import DescentSettings
from .solvers.loss import Objective
from .solvers.marquardt import MarquardtSettings
from .solvers.training import TrainingSettings
from .storage import load, read_header, save

__all__ = [
    "CompiledModel",
    "CompilerError",
    "DataError",
    "Dataset",
    "DelanError",
    "DescentSettings",
    "ExportSettings",
    "FeedForwardNetwork",
    "FeedForwardSettings",
    "Finding",
    "Fit",
    "FitSettings",
    "Friction",
    "FrictionSettings",
    "IdentifyResult",
    "IdentifySettings",
    "InverseDynamics",
    "JointLimits",
    "JointState",
    "Joints",
    "LagrangianChain",
    "LagrangianChainSettings",
    "LagrangianNetwork",
    "LagrangianNetworkSettings",
    "LearnedArm",
    "LogOptions",
    "MarquardtSettings",
    "Model",
    "ModelError",
    "ModelFileError",
    "MotorPair",
    "Objective",
    "Preparation",
    "PreparationSettings",
    "Recording",
    "RigidBody",
    "RobotError",
    "Scores",
    "SettingsError",
    "TorqueComponents",
    "TrainingSettings",
    "TrainingStart",
    "Trajectory",
    "Trust",
    "Verdict",
    "compile",
    "evaluate",
    "examine",
    "export",
    "fit",
    "from_rigid_body",
    "identify",
    "learned_arm",
    "load",
    "prepare",
    "read_header",
    "read_log",
    "rollout",
    "save",
    "to_rigid_body",
]
