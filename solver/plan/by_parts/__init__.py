"""Plans of many clusters, models and hours, by parts."""
