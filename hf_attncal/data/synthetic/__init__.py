"""Generate data whose true links, errors or dependencies are known."""
