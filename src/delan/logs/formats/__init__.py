"""File formats of logs: each module turns the files of one format into sheets."""
