"""Options, plan, launch, results, tracking, statistics, tables and figures of a sweep."""
