"""Operators that few files hold."""
