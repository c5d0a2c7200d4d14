"""What becomes of a saved model: exported, asked, measured on a site's data."""
