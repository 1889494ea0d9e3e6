"""The pixel environments of rl-attack-vf, and frames as of universe-starter-agent."""
