"""Speed and queries as ratios measured side by side in one run: against limits, peers, and the closed forms."""
