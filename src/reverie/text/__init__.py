"""Read text without a model: stems, sentences, dates and normalised words."""
