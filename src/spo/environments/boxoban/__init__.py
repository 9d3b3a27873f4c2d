"""The public Boxoban levels, and Sokoban on them.

The data set (github.com/google-deepmind/boxoban-levels) is a tree of text files of up to 1000 levels. `download`
fetches splits of it, `load_split` returns one as `uint8[num_levels, 10, 10]` in the cell codes of `sokoban`, and
`boxoban` makes the paper's task: training on unfiltered-train, evaluation on hard.

Three sizes of the hard split are in print: 4000 on the data set's page, 50 000 in the paper's table, and 3332 in the
files. This package uses the files.

    levels      the text format
    manifest    names, sizes and hashes of the public files
    splits      a split as one array, with a cache
    downloads   fetching and checking files
    task        `boxoban`
"""

from spo.environments.boxoban.downloads import BASE_URL, DownloadReport, download
from spo.environments.boxoban.levels import parse_levels
from spo.environments.boxoban.manifest import PublicFile, public_files, split_names
from spo.environments.boxoban.splits import data_folder, load_split, read_split
from spo.environments.boxoban.task import boxoban

__all__ = [
    "BASE_URL",
    "DownloadReport",
    "PublicFile",
    "boxoban",
    "data_folder",
    "download",
    "load_split",
    "parse_levels",
    "public_files",
    "read_split",
    "split_names",
]
