"""The routes: the directory as watchers get it."""
