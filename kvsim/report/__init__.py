"""The comparison report: one HTML page, its table as CSV and Markdown, its figures as PNG."""
