"""SOLVE, pure: arrays in, arrays out; one problem per file."""
