"""Read and write: lines, files and folders; errors and messages; the process itself."""
