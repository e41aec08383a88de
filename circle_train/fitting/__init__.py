"""Whole data sets: the course of a fit, who is told of it, and what is measured."""
