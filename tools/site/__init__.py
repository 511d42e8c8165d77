"""The documentation as a site: `make site` builds it into build/site."""
