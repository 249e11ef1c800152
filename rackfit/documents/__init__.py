"""Documents that Rackfit reads and writes: results, scenarios, schemas, frames."""
