"""The report as one HTML page with plots. Door: ``page``. Nothing is fetched from elsewhere, no script runs."""

__all__ = ["page"]
