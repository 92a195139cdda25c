"""Accuracy of row queries: drawn joins, set operations and subqueries, judged by Spark.

`row_question` draws each question as two texts, one in CQL and one in Spark's SQL. `row_truth`
counts the rows in which an answer and Spark differ.
"""
