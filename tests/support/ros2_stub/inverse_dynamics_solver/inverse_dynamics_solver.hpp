// What the interface of that name asks of a solver, for tests without ROS.
#pragma once

#include <string>
#include <tuple>

#include <eigen3/Eigen/Core>
#include <rclcpp/node_interfaces/node_parameters_interface.hpp>

namespace inverse_dynamics_solver
{

class InverseDynamicsSolver
{
public:
  using Vector = Eigen::VectorXd;
  using Matrix = Eigen::MatrixXd;
  using Parameters = rclcpp::node_interfaces::NodeParametersInterface::ConstSharedPtr;

  virtual ~InverseDynamicsSolver() = default;
  virtual void initialize(Parameters = nullptr, const std::string & = "", const std::string & = "") = 0;
  virtual Matrix getInertiaMatrix(const Vector &) const = 0;
  virtual Vector getCoriolisVector(const Vector &, const Vector &) const = 0;
  virtual Vector getGravityVector(const Vector &) const = 0;
  virtual Vector getFrictionVector(const Vector &) const = 0;

  virtual std::tuple<Matrix, Vector, Vector> getDynamicParameters(const Vector & q, const Vector & qd) const
  {
    return {getInertiaMatrix(q), getCoriolisVector(q, qd), getGravityVector(q)};
  }

  virtual Vector getTorques(const Vector & q, const Vector & qd, const Vector & qdd) const
  {
    const auto [inertia, coriolis, gravity] = getDynamicParameters(q, qd);
    return inertia * qdd + coriolis + gravity;
  }

protected:
  InverseDynamicsSolver() = default;
};

}  // namespace inverse_dynamics_solver
