"""A command."""


def hello(name: str = "you", *, times: int = 1) -> str:
    """Greet someone.

    Args:
        name: whom
        times: how often
    """
    return " ".join([f"hello {name}"] * times)
