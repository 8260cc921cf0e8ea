/* See solver.hpp. All numbers and all mechanics are in {{ name }}.c; here Eigen's vectors become plain arrays and back. */
#include "{{ package }}/solver.hpp"

#include <algorithm>
#include <stdexcept>

#include <pluginlib/class_list_macros.hpp>

#include "{{ name }}.h"

namespace {{ package }}
{

namespace
{

using Row = std::array<{{ real }}, {{ upper }}_DOF>;

Row row_of(const Eigen::VectorXd & values, const char * what)
{
  if (values.size() != {{ upper }}_DOF) {
    throw std::invalid_argument(
      std::string(what) + " has " + std::to_string(values.size()) + " entries; expected one for each of the " +
      std::to_string({{ upper }}_DOF) + " joints of {{ name }}");
  }
  Row row;
  std::transform(values.data(), values.data() + {{ upper }}_DOF, row.begin(),
                 [](double value) { return static_cast<{{ real }}>(value); });
  return row;
}

Eigen::VectorXd vector_of(const Row & row)
{
  Eigen::VectorXd values({{ upper }}_DOF);
  std::copy(row.begin(), row.end(), values.data());
  return values;
}

}  // namespace

const std::array<const char *, {{ dof }}> Solver::joint_names = {{ "{{" }}
{{ names | join(",\n") }}
}};

void Solver::initialize(rclcpp::node_interfaces::NodeParametersInterface::ConstSharedPtr, const std::string &,
                        const std::string &)
{
}

Eigen::MatrixXd Solver::getInertiaMatrix(const Eigen::VectorXd & q) const
{
  const Row at = row_of(q, "the position");
  {{ real }} inertia[{{ upper }}_DOF][{{ upper }}_DOF];
  {{ name }}_mass_matrix(at.data(), inertia);
  Eigen::MatrixXd result({{ upper }}_DOF, {{ upper }}_DOF);
  for (int i = 0; i < {{ upper }}_DOF; i++) {
    for (int j = 0; j < {{ upper }}_DOF; j++) {
      result(i, j) = inertia[i][j];
    }
  }
  return result;
}

Eigen::VectorXd Solver::getCoriolisVector(const Eigen::VectorXd & q, const Eigen::VectorXd & qd) const
{
  const Row at = row_of(q, "the position"), speed = row_of(qd, "the velocity");
  Row torque;
  {{ name }}_coriolis(at.data(), speed.data(), torque.data());
  return vector_of(torque);
}

Eigen::VectorXd Solver::getGravityVector(const Eigen::VectorXd & q) const
{
  const Row at = row_of(q, "the position");
  Row torque;
  {{ name }}_gravity(at.data(), torque.data());
  return vector_of(torque);
}

Eigen::VectorXd Solver::getFrictionVector(const Eigen::VectorXd & qd) const
{
  const Row speed = row_of(qd, "the velocity");
  Row torque;
{% if loaded %}
  {{ name }}_unloaded_friction(nullptr, speed.data(), torque.data());
{% else %}
  const Row any{};  // neither position nor acceleration matters to it
  {{ name }}_friction(nullptr, any.data(), speed.data(), any.data(), torque.data());
{% endif %}
  return vector_of(torque);
}

Eigen::VectorXd Solver::getTorques(const Eigen::VectorXd & q, const Eigen::VectorXd & qd,
                                   const Eigen::VectorXd & qdd) const
{
  const Row at = row_of(q, "the position"), speed = row_of(qd, "the velocity"), push = row_of(qdd, "the acceleration");
  Row torque;
  {{ name }}_inverse_dynamics(nullptr, at.data(), speed.data(), push.data(), torque.data());
  return vector_of(torque);
}

}  // namespace {{ package }}

PLUGINLIB_EXPORT_CLASS({{ package }}::Solver, inverse_dynamics_solver::InverseDynamicsSolver)
