"""Whom bench-crawl measures, a module each, as their users would write it; all read pages with the same parser."""
