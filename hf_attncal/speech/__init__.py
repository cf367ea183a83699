"""Word times and unspoken words of a speech recogniser, read from an observer."""
