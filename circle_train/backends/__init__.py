"""Engines that execute bound programs."""
