"""Everything the check can find, with the sentence and the remedy of each case.

Sentences follow the name of the channel: "qd1: is 57.3 times the value computed from positions".
Names in braces are fields of the finding, or values that the check measured.
"""

from .finding import Case

# Time stamps

NO_TIME = Case("non_finite", "{count:n row} without a time", "drop these rows")
CLOCK_RESET = Case(
    "clock_reset",
    "time decreases {count:n time}, first from {before:.6g} to {after:.6g}",
    "save the parts as separate files, number them in a column `trajectory`, or sort the rows by "
    "time",
)
SAME_TIME = Case(
    "duplicate",
    "{count:n row} with the time of the row before",
    "drop the repeated rows, or log the time with more digits",
)
_GAP_TEXT = (
    "{count:n gap}, about {lost:n sample} lost; the largest is {longest:.4g} s before row {row}, "
    "the usual step is {step:.4g} s"
)
_GAP_NEXT_TIME = "; next time, give the logger a buffer, so that no sample is lost"
GAP = Case(
    "gap",
    _GAP_TEXT,
    "nothing: `delan fit` bridges gaps of up to {bridged:.3g} ms and cuts the motion at longer ones"
    + _GAP_NEXT_TIME,
)
GAP_WITH_ACCELERATIONS = Case(
    "gap",
    _GAP_TEXT,
    "nothing: `delan fit` uses the logged accelerations and differentiates nothing across a gap"
    + _GAP_NEXT_TIME,
)
MIXED_RATES = Case(
    "mixed_rates",
    "trajectories are sampled at {slowest:g} to {fastest:g} Hz, {count} of {total} rows at another "
    "rate than the usual {usual:.3g} Hz",
    "nothing: `delan fit` resamples these trajectories to {usual:.3g} Hz",
)
MIXED_STEPS = Case(
    "mixed_rates",
    "mixed sampling rates: steps of different lengths inside trajectories; {count} of {total} rows "
    "differ",
    "cut the log where the rate changes, or resample it to one rate",
)
JITTER = Case(
    "jitter",
    "time steps vary by {jitter:.0%} of the usual {step:.4g} s (standard deviation)",
    "stamp samples where they are taken; if the robot samples evenly, replace t by even steps",
)
TIME_UNIT = Case(
    "units",
    "the usual step is {step:.4g}: time looks like {unit}, not seconds",
    "divide t by {scale:g} (--time-scale {inverse:g})",
)
TOO_FAST = Case(
    "units",
    "the usual step is {step:.4g} s: no robot is logged that fast",
    "give --time-scale, the seconds in one unit of the log's time",
)
INTERLEAVED = Case(
    "interleaved",
    "trajectory {trajectory} begins again at row {row} after another trajectory",
    "keep the rows of a trajectory together, or give the parts different labels",
)
SHORT = Case(
    "short",
    "{count} of {total} trajectories have fewer than {fewest} rows",
    "nothing, if qd and qdd are measured; otherwise record longer motions",
)

# Single values

_NON_FINITE_TEXT = "{count} of {total} values are not finite (first: {value:g} at row {row})"
NON_FINITE = Case("non_finite", _NON_FINITE_TEXT, "remove these rows, or leave out the column")
ALL_NON_FINITE = Case("non_finite", _NON_FINITE_TEXT, "leave the joint out{others}")
WRAPPED = Case(
    "wrapped",
    "the position jumps by a full turn ({turn}) in one step {count:n time}, first at row {row}",
    "unwrap the angle (numpy.unwrap along each trajectory) before it is logged or differentiated",
)
OUTLIER = Case(
    "outlier",
    "{count:n isolated spike}, the largest {size:.3g} at row {row}",
    "interpolate these values between their neighbours, or drop the rows; look for loose cables",
)
_REPEATED_TEXT = (
    "{count:n row} in motion repeat every value of the row before ({share:.1%} of the rows in "
    "motion)"
)
_REPEATED_NEXT_TIME = "; next time, log when the robot sends a new state, not more often"
REPEATED_ROWS = Case(
    "duplicate",
    _REPEATED_TEXT,
    "nothing: `delan fit` leaves repeated rows out" + _REPEATED_NEXT_TIME,
)
REPEATED_ROWS_WITH_ACCELERATIONS = Case(
    "duplicate",
    _REPEATED_TEXT,
    "drop the repeated rows: with logged accelerations, `delan fit` uses every row as it is"
    + _REPEATED_NEXT_TIME,
)

# Channels that carry too little information

STANDS_STILL = Case(
    "dead",
    "the joint does not move: {range:.2g} {unit} over the whole log",
    "record motions of this joint; if another column has them, map that one (--map); or leave the "
    "joint out and treat it as locked{others}",
)
CONSTANT = Case(
    "dead",
    "is {value:g} in every row",
    "check the column and its cable; leave the column out (--map {column}=) or the joint{others}",
)
# Joints with such findings are left out, or recorded again.
USELESS = (ALL_NON_FINITE, STANDS_STILL, CONSTANT)
UNACTUATED = Case(
    "unactuated",
    "is 0 in every row, and the joint moves as one without a motor does",
    "nothing to do if it has no motor: its equation of motion is learned from; otherwise its "
    "torque is missing: check the column and its cable, or leave the joint out",
)
SATURATED = Case(
    "saturated",
    "flat at {limits:.4g} in {places:n place}, {count:n row}: the {device} is at its limit",
    "move more gently so that the limit is not reached, or leave these rows out",
)
STUCK = Case(
    "stuck",
    "stays at {value:.4g} for {count:n row} while the robot moves",
    "leave these rows out; check the sensor, its cable and the logger",
)
_COARSE_TEXT = "changes in steps of {step:.3g} {unit}, {levels:.0f} over its range: an error of "
COARSE = {
    "q": Case(
        "quantised",
        _COARSE_TEXT + "{error:.0%} of the acceleration computed from it",
        "log the encoder with more digits, or filter more; log qd if the drive measures it",
    ),
    "qd": Case(
        "quantised",
        _COARSE_TEXT + "{error:.0%} of its standard deviation",
        "leave qd out (--map qd=), so that it is computed from q, or log more digits",
    ),
    "tau": Case(
        "quantised",
        _COARSE_TEXT + "{error:.0%} of its standard deviation",
        "log the torque with more digits or a finer range",
    ),
}

# Units, signs and order of positions, velocities and accelerations

_LEAVE_OUT = "leave it out (--map {column}=), so that it is computed"
RATE_UNIT = Case(
    "units",
    "is {ratio:.4g} times the value computed from positions and time (likely cause: {cause})",
    "divide {column} by {factor:.4g}, or " + _LEAVE_OUT,
)
RATE_UNIT_OR_CLOCK = Case(
    "units", RATE_UNIT.text, RATE_UNIT.remedy + "; if the clock is wrong, correct it (--time-scale)"
)
_DEGREES_TEXT = (
    "looks like degrees beside {rates} in radians, which are {ratio:.4g} times the values computed "
    "from positions and time"
)
DEGREES_BESIDE_RADIANS = Case(
    "units",
    _DEGREES_TEXT,
    "convert {channel} to rad, or read the log with --degrees {left_out} so that {rates} are "
    "computed; --degrees alone scales {rates} too",
)
DEGREES_BESIDE_RADIANS_IN_ONE_JOINT = Case("units", _DEGREES_TEXT, "convert {channel} to rad")
RATE_SIGN = Case(
    "sign",
    "has the opposite sign of the motion: {ratio:.3g} times the value computed from positions",
    "change the sign of {channel}, or " + _LEAVE_OUT,
)
_UNRELATED_TEXT = "the positions explain only {explained:.0%} of it"
UNRELATED = Case("mismatch", _UNRELATED_TEXT, _LEAVE_OUT)
FOLLOWS_OTHER_JOINT = Case(
    "mismatch",
    _UNRELATED_TEXT + "; it follows joint {other} instead",
    "check the order of the columns (--map)",
)
_RATE_LAG_TEXT = " the positions by {milliseconds:.3g} ms, an error of {error:.0%} of its size"
_RATE_LAG_REMEDY = _LEAVE_OUT + ", or shift it by {milliseconds:.3g} ms"
RATE_LAG = Case("delay", "lags" + _RATE_LAG_TEXT, _RATE_LAG_REMEDY)
RATE_LEAD = Case("delay", "leads" + _RATE_LAG_TEXT, _RATE_LAG_REMEDY)
_MOTION_TEXT = "goes from {lowest:.4g} to {highest:.4g} {unit} at up to {fastest:.3g} {unit}/s"
_GEARS_REMEDY = "angles of motors in front of gears, give the gear ratios (--transmission N,…)"
_DEGREES_REMEDY = f"if these are degrees, read the log with --degrees; if {_GEARS_REMEDY}"
_MILLIMETRES_REMEDY = "read the log with --scale q:{scale}"
# The other joints do not look so: --degrees would make them wrong.
IMPLAUSIBLE_ANGLE = Case(
    "units",
    _MOTION_TEXT + ", unlike the other joints: it turns freely, or is in degrees, or the motor's",
    "nothing if the joint can turn so far; if only it is in degrees, read the log with --scale "
    "q:{scale}; if it is of a motor in front of gears, give --transmission with the gear ratios",
)
IMPLAUSIBLE_LENGTH = Case(
    "units", _MOTION_TEXT + ": that looks like millimetres", _MILLIMETRES_REMEDY
)
IMPLAUSIBLE_ANGLES = Case(
    "units",
    "joint {example} " + _MOTION_TEXT + ", as no joint of an arm does, and so do the other joints: "
    "degrees, or motors in front of gears",
    _DEGREES_REMEDY,
)
IMPLAUSIBLE_LENGTHS = Case(
    "units",
    "joint {example} " + _MOTION_TEXT + ": that looks like millimetres, in the other joints too",
    _MILLIMETRES_REMEDY,
)
EXCHANGED = Case(
    "exchanged",
    "{names} look exchanged: {velocity} is the derivative of {position} in {agreeing} of "
    "{dof:n joint}, and qd is the derivative of q in none; all other findings are for the log with "
    "these columns in order",
    "read the log with {arrays}, or, if each joint has its own column, {columns}; with the names "
    "of your log",
)

# Torque

_TORQUE_SIGN_REMEDY = (
    "change the sign of tau{joint} (--flip tau:{joint}), or of q{joint} and its derivatives "
    "(--flip q:{joint})"
)
NEGATIVE_INERTIA = Case(
    "sign",
    "has the opposite sign of the motion: it falls where the joint's acceleration rises, a "
    "negative inertia",
    _TORQUE_SIGN_REMEDY,
)
NEGATIVE_FRICTION = Case(
    "sign",
    "has the opposite sign of the motion: it acts along the motion where friction opposes it",
    _TORQUE_SIGN_REMEDY,
)
ALL_REVERSED = Case(
    "sign",
    "has the opposite sign of the motion in all joints: a negative inertia, or friction that acts "
    "along the motion (joints that show it: {shown}; none shows the right sign)",
    "change the sign of all torques (--flip tau)",
)
_DRY = "dry friction ({dry:.0%})"
_VISCOUS = "viscous friction ({viscous:.0%})"
_FRICTION_TEXT = " visible, in shares of the torque's standard deviation"
_FRICTION_REMEDY = "fit with friction (--friction auto, the default of `delan fit`)"
DRY_FRICTION = Case("friction", _DRY + _FRICTION_TEXT, _FRICTION_REMEDY)
VISCOUS_FRICTION = Case("friction", _VISCOUS + _FRICTION_TEXT, _FRICTION_REMEDY)
FRICTION = Case("friction", f"{_DRY} and {_VISCOUS}{_FRICTION_TEXT}", _FRICTION_REMEDY)
NO_FRICTION = Case("friction", "no friction visible", "nothing")
UNCERTAIN_FRICTION = Case(
    "friction",
    "this check cannot separate friction from gravity and inertia; `delan fit` can tell more",
    "fit with friction; if `delan fit` is uncertain too, record more reversals, some of them slow",
)
_TORQUE_LAG_TEXT = (
    " the motion by {milliseconds:.3g} ms, an error of {error:.0%} of its size; shifting it "
    "removes {gain:.0%} of the residual"
)
_SHIFT = "shift the torque by {milliseconds:.3g} ms to "
_ONE_CLOCK = " times; log torque and motion with one clock"
TORQUE_LAG = Case("delay", "lags" + _TORQUE_LAG_TEXT, _SHIFT + "earlier" + _ONE_CLOCK)
TORQUE_LEAD = Case("delay", "leads" + _TORQUE_LAG_TEXT, _SHIFT + "later" + _ONE_CLOCK)
SCATTERED_LAGS = Case(
    "delay",
    "the torque of each joint lags the motion by a different delay ({milliseconds:+.3g} [ms])",
    "nothing, if joints stick or drives are elastic; otherwise compare the clocks of torque and "
    "motion",
)

# Torque of one trajectory against the others

_OF_OTHERS = "that other trajectories have for the same motion (joints concerned: {joints})"
_FOR_ONE_FILE = (
    "keep {option} for {file} alone: `delan check FILE {option} --save`, with all else that is "
    "typed for it; or leave the file out"
)
_OTHER_LOAD = "; nothing, if the robot carried another load"
CONTRADICTING_SIGN = Case(
    "contradiction",
    "in trajectory {trajectory} the torque has the opposite sign of the one " + _OF_OTHERS,
    _FOR_ONE_FILE,
)
CONTRADICTING_GAIN = Case(
    "contradiction",
    "in trajectory {trajectory} the torque is {ratio:.3g} times the one " + _OF_OTHERS,
    _FOR_ONE_FILE + _OTHER_LOAD,
)
CONTRADICTING_OFFSET = Case(
    "contradiction",
    "in trajectory {trajectory} the torque is {offset:+.3g} from the one " + _OF_OTHERS,
    _FOR_ONE_FILE + ", and calibrate the sensor before each recording" + _OTHER_LOAD,
)

# Torque against a URDF

URDF_DEGREES = Case(
    "units",
    "with positions read as degrees, the URDF leaves {as_degrees:.1%} of the torque unexplained; "
    "as radians, {as_radians:.1%}",
    _DEGREES_REMEDY,
)
URDF_JOINT_SIGN = Case(
    "sign",
    "the URDF explains the torques if this joint's positions have the opposite sign",
    "change the sign of q{joint} and its derivatives (--flip), or of the joint's axis in the URDF",
)
URDF_TORQUE_SIGN = Case(
    "sign",
    "the torque is {ratio:.3g} times that of the URDF",
    "change the sign of tau{joint} (--flip)",
)
URDF_TORQUE_UNIT = Case(
    "units",
    "the torque is {ratio:.3g} times that of the URDF: a current, a motor torque before the gears, "
    "or another unit?",
    "give the torque per unit of the column (--gain), {gain:.3g} according to the URDF",
)
URDF_MISMATCH = Case(
    "mismatch",
    "the URDF and friction explain only {explained:.0%} of the torque",
    "check the order of the joints, the orientation of the base, and the payload",
)

# What the motion visits

_EXCITATION_TEXT = (
    "{range:.3g} {unit}, up to {velocity:.3g} {unit}/s and {acceleration:.3g} {unit}/s², "
    "{reversals:n reversal}"
)
EXCITATION = Case("excitation", _EXCITATION_TEXT, "nothing")
TOO_LITTLE_EXCITATION = Case(
    "excitation",
    _EXCITATION_TEXT + ": too little, the joint should move {wanted}",
    "record motions made for this (`delan references excitation`)",
)
RANGE_COVERAGE = Case(
    "coverage",
    "uses {share:.0%} of its range, {lowest:.3g} to {highest:.3g}",
    "nothing, if the robot will work there; otherwise record where it will",
)
BEYOND_RANGE = Case(
    "coverage",
    "uses {share:.0%} of its range, {lowest:.3g} to {highest:.3g}: no joint leaves its range",
    "give the unit of the positions (--degrees, --scale q:K,…), or --transmission if they are of "
    "motors in front of gears; or give the right URDF",
)
PAIR_COVERAGE = Case(
    "coverage",
    "inside the ranges used, pairs of joints visit {median:.0%} of their cells (median), at least "
    "{least:.0%} (joints {first} and {second})",
    "nothing, if the robot will work there; otherwise vary how the joints move together",
)
EXCERPT = Case(
    "excerpt",
    "the log is larger than the memory limit; this check used {used}",
    "nothing, if this is informative enough; otherwise raise the limit (--memory)",
)
COMMANDED = Case(
    "commanded",
    "computed from the commands and gains of the drives, kp (q_des − q) + kd (qd_des − qd) + "
    "tau_des; what a drive limits, delays or loses is not in it",
    "record torques or currents if the robot has them",
)
