"""Profiles: addresses and credentials of clusters, for this command and for programs with the client."""

import json
from typing import Annotated

import typer

from ortoo.cli.terminal.command import AsJson
from ortoo.cli.terminal.completion import complete_profiles
from ortoo.cli.terminal.output import CommandOutput, OutputTable, show

ProfileName = Annotated[str, typer.Argument(help="The profile's name.", autocompletion=complete_profiles)]


def show_all(as_json: AsJson = False) -> None:
    """List the profiles without their secrets."""
    from ortoo.client.core.credentials import current_profile, profiles_folder, read_profile

    current = current_profile()
    found = [
        {"name": file.stem, "current": file.stem == current}
        | {key: value for key, value in read_profile(file.stem).items() if key != "secret_key"}
        for file in sorted(profiles_folder().glob("*.toml"))
    ]
    columns = {
        "NAME": lambda one: one["name"],
        "CURRENT": lambda one: one["current"],
        "ADDRESS": lambda one: one.get("address", ""),
        "ACCESS KEY": lambda one: one.get("access_key", ""),
        "TLS": lambda one: "tls_ca_file" in one,
    }
    show(CommandOutput(found, OutputTable(columns, found)), as_json=as_json)


def use(name: ProfileName, as_json: AsJson = False) -> None:
    """Select the profile for commands that are called without an address."""
    from ortoo.client.core.credentials import profiles_folder, read_profile

    read_profile(name)
    (profiles_folder() / "current").write_text(name + "\n")
    text = f"{name} is used where no address is given and ORTOO_ADDRESS is not set"
    show(CommandOutput({"current": name}, text), as_json=as_json)


def save(
    name: ProfileName,
    address: Annotated[str, typer.Option(help="host:port of a snode; several with commas.")],
    access_key: Annotated[str, typer.Option(help="The access key; the command prompts for its secret.")] = "",
    tls_ca_file: Annotated[str, typer.Option(help="Roots of the server certificates, PEM, or `system`.")] = "",
    tls_certificate_file: Annotated[str, typer.Option(help="The client's certificate, PEM.")] = "",
    tls_key_file: Annotated[str, typer.Option(help="The private key of the certificate, PEM.")] = "",
    as_json: AsJson = False,
) -> None:
    """Save a profile, or replace the profile of this name. Only the current user can read its file."""
    from ortoo.client.core.credentials import profile_file

    file = profile_file(name)
    secret_key = typer.prompt("Secret key", hide_input=True, err=True) if access_key else ""
    values = {
        "address": address,
        "access_key": access_key,
        "secret_key": secret_key,
        "tls_ca_file": tls_ca_file,
        "tls_certificate_file": tls_certificate_file,
        "tls_key_file": tls_key_file,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.chmod(0o600)
    # TOML strings are JSON strings, except characters beyond U+FFFF as two escapes; those are written unescaped.
    file.write_text(
        "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items() if value)
    )
    text = f"saved {file}; `ortoo profile use {name}` makes it the current one"
    show(CommandOutput({"name": name, "file": str(file)}, text), as_json=as_json)
