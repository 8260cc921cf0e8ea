"""Pages, figures and clips; a page stands alone in one HTML file."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def rendered(template: str, **words: Any) -> str:
    """Return a template of this room with its words filled in."""
    environment = Environment(
        loader=PackageLoader("delan.report"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template(template).render(words)
