"""The robot in time: clocks, the control loop, channels between processes, and what is kept on disk; no formulas."""
