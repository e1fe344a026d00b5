"""The console: what people on call look at, as pages of the API's process. See docs/console.md."""
