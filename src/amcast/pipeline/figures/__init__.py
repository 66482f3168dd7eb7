"""The figures of the papers, one small file each: `amcast.pipeline.figure` says what is in it."""
