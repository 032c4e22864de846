"""Models that use the notebook's tools: tool declarations and calls for any provider, and questions to a model."""
