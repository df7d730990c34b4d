"""Makes the search work on pages that are opened from a folder, without a web server and without a network.

A hook of MkDocs. Browsers start no worker for such pages. `make site` downloads a replacement into .tools; without it,
only the search needs a web server.
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

REPLACEMENT = Path(__file__).resolve().parents[2] / ".tools/site/package/shim/index.js"
COPY = "assets/iframe-worker.js"


@event_priority(100)  # before Material's plugin, which would add a script from another site
def on_config(config: MkDocsConfig) -> None:
    """Load the replacement on each page."""
    if REPLACEMENT.exists():
        config.extra["polyfills"] = [COPY]
    else:
        config.plugins["material/offline"].config["enabled"] = False


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the replacement to the site."""
    if REPLACEMENT.exists():
        files.append(File.generated(config, COPY, abs_src_path=str(REPLACEMENT)))
    return files
