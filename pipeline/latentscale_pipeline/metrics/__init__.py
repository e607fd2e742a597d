"""Export scores to monitoring systems: Prometheus, OpenMetrics, MLflow.

Only ``scores`` and the job's identity are read, so new measures need no code here.
"""
