"""The experiments of the paper, as cells of a grid."""
