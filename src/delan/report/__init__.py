"""Pages, figures and clips; a page stands alone in one HTML file."""
