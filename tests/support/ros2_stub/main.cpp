// States from stdin, each q, qd and qdd; what the plugin says of each goes to stdout, in doubles.
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <inverse_dynamics_solver/inverse_dynamics_solver.hpp>

using inverse_dynamics_solver::InverseDynamicsSolver;
InverseDynamicsSolver * make_plugin();

static void tell(const Eigen::MatrixXd & values)
{
  std::fwrite(values.data(), sizeof(double), static_cast<std::size_t>(values.size()), stdout);
}

int main(int, char ** arguments)
{
  const Eigen::Index dof = std::atoi(arguments[1]);
  const std::unique_ptr<InverseDynamicsSolver> solver(make_plugin());
  solver->initialize();
  Eigen::VectorXd state[3] = {Eigen::VectorXd(dof), Eigen::VectorXd(dof), Eigen::VectorXd(dof)};
  const auto & [q, qd, qdd] = state;
  const std::size_t count = static_cast<std::size_t>(dof);
  while (true) {
    for (Eigen::VectorXd & row : state) {
      if (std::fread(row.data(), sizeof(double), count, stdin) != count) {
        try {
          solver->getGravityVector(Eigen::VectorXd(dof + 1));
        } catch (const std::invalid_argument & error) {
          std::fputs(error.what(), stderr);
        }
        return 0;
      }
    }
    tell(solver->getInertiaMatrix(q));
    tell(solver->getCoriolisVector(q, qd));
    tell(solver->getGravityVector(q));
    tell(solver->getFrictionVector(qd));
    tell(solver->getTorques(q, qd, qdd));
    tell(solver->InverseDynamicsSolver::getTorques(q, qd, qdd));  // the interface's own sum of the parts
  }
}
