"""Overload in virtual time: the real engine on a machine whose clock and threads are turns."""
