"""The console: pages for people on call, served by the API's process. See docs/console.md."""
