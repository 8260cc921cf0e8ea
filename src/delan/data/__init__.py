"""From wishes and files to samples."""
