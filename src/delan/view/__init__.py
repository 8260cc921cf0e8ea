"""See the robot learn: a page in the browser, of a run that goes on or of one that was recorded."""
