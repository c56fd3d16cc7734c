"""The report as one HTML page with plots, without anything fetched from elsewhere."""
