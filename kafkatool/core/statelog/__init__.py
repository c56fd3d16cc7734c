"""State-change logs on Spark: grammar, merge. The only package that imports pyspark, and only when it runs."""
