"""The commands, one file for each kind. They get arguments and a client and return answers; `app` lists them."""
