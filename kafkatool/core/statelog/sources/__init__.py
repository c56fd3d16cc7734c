"""Where logs come from: files, archives and URIs, cut into slices and read as streams of blocks."""
