"""Laws of mechanics as pure functions of arrays: no parameters, no files, no batches."""
