"""The forms in which logs lie on disk: each file here turns one family of them into sheets."""
