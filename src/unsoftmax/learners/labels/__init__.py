"""Single heads from labels: parts of `learners.membership`."""
