"""The commands, a file each kind: arguments and a client in, answers out. The table in `app` names them."""
