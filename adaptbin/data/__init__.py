"""The tables: cards, where files come from, how they are read, split and turned into tensors."""

from adaptbin.data.encode import EncodedRows, EncodedTable, encode
from adaptbin.data.registry import CARDS, Card, Column, get_card
from adaptbin.data.sources import ENVIRONMENT, cache_folder, find_file, load_table
from adaptbin.data.splits import Split, split_rows
from adaptbin.data.table import Table, table_fingerprint

__all__ = [
    "CARDS",
    "ENVIRONMENT",
    "Card",
    "Column",
    "EncodedRows",
    "EncodedTable",
    "Split",
    "Table",
    "cache_folder",
    "encode",
    "find_file",
    "get_card",
    "load_table",
    "split_rows",
    "table_fingerprint",
]
