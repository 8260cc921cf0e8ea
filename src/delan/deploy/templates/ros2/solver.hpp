/* The learned dynamics of a robot with {{ dof }} joints behind the interface of `inverse_dynamics_solver`.
 *
 * Joints are in the order of `{{ name }}.h`, which also tells their units; `joint_names` lists them.
 *
 * - getTorques holds everything, friction too, as do the solvers of other physical robots: a model learns from what its
 *   motors did. Without friction the torque is H(q) qdd + C(q, qd) + g(q).
 * - getFrictionVector knows the speed alone. {{ friction | join("\n *   ") }}
 * - initialize needs no parameters and no robot description: all numbers are in the code.
 *
 * No method keeps a state: one object may serve several threads.
 */
#pragma once

#include <array>
#include <string>

#include <inverse_dynamics_solver/inverse_dynamics_solver.hpp>

namespace {{ package }}
{

class Solver : public inverse_dynamics_solver::InverseDynamicsSolver
{
public:
  void initialize(rclcpp::node_interfaces::NodeParametersInterface::ConstSharedPtr parameters = nullptr,
                  const std::string & param_namespace = "", const std::string & robot_description = "") override;

  Eigen::MatrixXd getInertiaMatrix(const Eigen::VectorXd & q) const override;
  Eigen::VectorXd getCoriolisVector(const Eigen::VectorXd & q, const Eigen::VectorXd & qd) const override;
  Eigen::VectorXd getGravityVector(const Eigen::VectorXd & q) const override;
  Eigen::VectorXd getFrictionVector(const Eigen::VectorXd & qd) const override;
  Eigen::VectorXd getTorques(const Eigen::VectorXd & q, const Eigen::VectorXd & qd,
                             const Eigen::VectorXd & qdd) const override;

  static const std::array<const char *, {{ dof }}> joint_names;
};

}  // namespace {{ package }}
