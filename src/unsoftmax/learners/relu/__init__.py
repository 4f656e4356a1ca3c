"""The parts of the ReLU network learner: kinks of a great circle, gradients of its cells, polish."""
