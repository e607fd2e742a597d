"""How alike two models represent the same items."""
