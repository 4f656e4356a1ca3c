"""SOLVE, pure: arrays in, arrays out; one solver per file."""
