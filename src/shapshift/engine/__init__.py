"""The engine: values of training rows from distances, on threads or a cluster, within a memory budget."""
