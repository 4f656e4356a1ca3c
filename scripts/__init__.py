"""Tools for those who work on the project; a package, so that no installed `scripts` stands in its place."""
