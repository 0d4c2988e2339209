"""Everything that lets the app run on one machine. Never deployed."""
