"""Recipes: model families that differ in little, each as one value."""
