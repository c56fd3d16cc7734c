"""The Spark session and what runs on it. pyspark is imported here and nowhere else."""
