"""Addresses, credentials and TLS files of a client: given, from the environment, or from a profile.

A profile is a file NAME.toml in `~/.config/ortoo` with any keys of PROFILE_KEYS. The file `current` beside it holds the
name of the current profile. A profile is used completely or, if an address or ORTOO_ADDRESS is given, not at all.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.common.errors import Invalid, NotFound
from ortoo.common.grpc.tls import TlsClient
from ortoo.common.grpc.transport import SocketTransport, current_transport

ADDRESS_VARIABLE, PROFILE_VARIABLE = "ORTOO_ADDRESS", "ORTOO_PROFILE"
ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE = "ORTOO_ACCESS_KEY", "ORTOO_SECRET_KEY"
CERTIFICATE_VARIABLE = "ORTOO_TLS_CERTIFICATE_FILE"
TLS_VARIABLES = ("ORTOO_TLS_CA_FILE", CERTIFICATE_VARIABLE, "ORTOO_TLS_KEY_FILE")
IDENTITY_VARIABLES = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, *TLS_VARIABLES)
VARIABLES = (ADDRESS_VARIABLE, *IDENTITY_VARIABLES)
PROFILE_KEYS = tuple(variable.removeprefix("ORTOO_").lower() for variable in VARIABLES)
"""The keys of a profile, all strings: the environment variables without ORTOO_ and in small letters."""
DEFAULT_ADDRESS = "localhost:8081"


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and its secret, which sign calls."""

    access_key: str
    secret_key: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise Invalid("expected both the access key and its secret, or neither", field="access_key")


def credentials_from(access_key: str, secret_key: str, environ: Mapping[str, str] = os.environ) -> Credentials | None:
    """The given credentials, else the credentials in the environment, else None.

    Errors: Invalid when key or secret is missing.
    """
    if not access_key and not secret_key:
        access_key, secret_key = environ.get(ACCESS_KEY_VARIABLE, ""), environ.get(SECRET_KEY_VARIABLE, "")
    return Credentials(access_key, secret_key) if access_key or secret_key else None


def tls_from(
    ca_file: str, certificate_file: str, key_file: str, environ: Mapping[str, str] = os.environ
) -> TlsClient | None:
    """TLS with the given files, else with the files that the environment names, else None.

    Errors: Invalid when a file is missing.
    """
    files = [ca_file, certificate_file, key_file]
    if not any(files):
        files = [environ.get(name, "") for name in TLS_VARIABLES]
    return TlsClient(*files) if any(files) else None


def addresses_from(addresses: str, environ: Mapping[str, str]) -> list[str]:
    """The given addresses, separated by commas; else those in the environment, else the address of `ortoo dev`."""
    text = addresses or environ.get(ADDRESS_VARIABLE, "") or DEFAULT_ADDRESS
    return [part.strip() for part in text.split(",") if part.strip()]


def effective_environment(profile: str = "", environ: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """The environment variables. If a profile applies, it replaces all variables in VARIABLES.

    The profile is `profile`, else the profile in ORTOO_PROFILE, else the current profile if ORTOO_ADDRESS is not set.
    On a simulated network only `profile` is used, and ORTOO_ADDRESS is ignored. Errors: NotFound if the profile does
    not exist, Invalid if it cannot be read.
    """
    if not profile and not isinstance(current_transport(), SocketTransport):
        return {name: value for name, value in environ.items() if name != ADDRESS_VARIABLE}
    name = profile or environ.get(PROFILE_VARIABLE, "")
    if not name and not environ.get(ADDRESS_VARIABLE):
        name = current_profile(environ)
    if not name:
        return environ
    profile_values = {f"ORTOO_{key.upper()}": value for key, value in read_profile(name, environ).items()}
    return {key: value for key, value in environ.items() if key not in VARIABLES} | profile_values


def profiles_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the profiles; it need not exist."""
    home = environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if home else Path(environ.get("HOME", "") or Path.home()) / ".config") / "ortoo"


def current_profile(environ: Mapping[str, str] = os.environ) -> str:
    """The name of the current profile; empty = none."""
    with suppress(OSError):
        return (profiles_folder(environ) / "current").read_text().strip()
    return ""


def read_profile(name: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The contents of a profile. Errors: NotFound, Invalid for an unreadable file or an unknown key."""
    import tomllib

    file = profile_file(name, environ)
    try:
        values = tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise NotFound(f"there is no profile {name}: {file} does not exist", field="profile") from None
    except (OSError, ValueError) as error:
        raise Invalid(f"{file} cannot be read: {error}", field="profile") from None
    for key, value in values.items():
        if key not in PROFILE_KEYS or not isinstance(value, str):
            raise Invalid(
                # Without the value: it may be a secret under a misspelled key, and the console logs this text.
                f"{file} has an unknown key or no text at {key!r}; expected text values for the keys "
                f"{', '.join(PROFILE_KEYS)}",
                field="profile",
            )
    return values


def profile_file(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of a profile. Errors: Invalid for a name that cannot be a file name."""
    if not name or not all(character.isalnum() or character in "-_" for character in name):
        raise Invalid(f"{name!r} is not a valid name of a profile; expected letters, digits, - and _", field="profile")
    return profiles_folder(environ) / f"{name}.toml"
