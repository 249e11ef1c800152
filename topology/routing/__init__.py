"""Routes on graphs: how traffic splits over links, and the cuts that no route escapes."""
