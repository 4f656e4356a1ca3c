"""HTML, JSON and SARIF pages from saved results; nothing here asks a target or imports a learner."""
