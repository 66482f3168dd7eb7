"""The figures of the papers, one small file each: `amcast.report.figure` says what is in it."""
