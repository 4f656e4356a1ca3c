"""Steps of the attention-layer learner, one idea each."""
