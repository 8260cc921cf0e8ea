from .comparison import SeedStatistics, seed_statistics
from .motion_logs import cosine_log, letter_log, shuffled_letters, with_noise
from .published_data import read_published

__all__ = [
    "SeedStatistics",
    "cosine_log",
    "letter_log",
    "read_published",
    "seed_statistics",
    "shuffled_letters",
    "with_noise",
]
