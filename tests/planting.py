"""Errors in named parts of the package, which tests must see."""


def plant(monkeypatch, owner, name, wrong):
    """Let a function that is given the right one first stand in its place."""
    right = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args: wrong(right, *args))
