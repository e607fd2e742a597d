"""The Vendi scores under every kernel."""
