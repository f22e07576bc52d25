"""Read text without a model: dates and normalised words."""
