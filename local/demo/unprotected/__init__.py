"""The app without the module, for comparison."""
