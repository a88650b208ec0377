"""What the arguments of the bounds must be."""


def check_counts(**counts):
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def check_positive(**numbers):
    for name, value in numbers.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")


def check_share(name, value):
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {value}")
