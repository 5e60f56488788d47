"""Training: advantages, losses and reward terms as pure functions, and what turns them into weight updates."""
