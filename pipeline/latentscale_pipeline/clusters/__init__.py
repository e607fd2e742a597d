"""Where tasks run at once: the only package that knows the distributed scheduler."""
