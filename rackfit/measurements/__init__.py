"""Result files of benchmark tools as measured rows, one reader per tool."""
