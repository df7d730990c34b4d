"""Where the cluster is, who a client is there, and how it speaks TLS: given, said by the environment, or by a profile.

A profile is a file of `~/.config/ortoo`, NAME.toml, with any of the keys of PROFILE_KEYS; `current` beside them has the
name of the one that counts. It counts as a whole: where an address is given, or ORTOO_ADDRESS, it does not.
"""

import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.common.errors import Invalid, NotFound
from ortoo.common.grpc.tls import TlsClient
from ortoo.common.grpc.transport import SocketTransport, current_transport

ADDRESS_VARIABLE, PROFILE_VARIABLE = "ORTOO_ADDRESS", "ORTOO_PROFILE"
ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE = "ORTOO_ACCESS_KEY", "ORTOO_SECRET_KEY"
TLS_VARIABLES = ("ORTOO_TLS_CA_FILE", "ORTOO_TLS_CERTIFICATE_FILE", "ORTOO_TLS_KEY_FILE")
WHO_VARIABLES = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, *TLS_VARIABLES)
VARIABLES = (ADDRESS_VARIABLE, *WHO_VARIABLES)
PROFILE_KEYS = tuple(variable.removeprefix("ORTOO_").lower() for variable in VARIABLES)
"""What a profile may say, each a text: the same as the variable of the environment with ORTOO_ before it."""
DEFAULT_ADDRESS = "localhost:8081"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who calls."""

    access_key: str
    secret_key: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise Invalid("give both the access key and its secret, or neither", field="access_key")


def credentials_from(access_key: str, secret_key: str, environ: Mapping[str, str] = os.environ) -> Credentials | None:
    """Those that are given, else those of the environment, else none. Errors: Invalid for one half only."""
    if not access_key and not secret_key:
        access_key, secret_key = environ.get(ACCESS_KEY_VARIABLE, ""), environ.get(SECRET_KEY_VARIABLE, "")
    return Credentials(access_key, secret_key) if access_key or secret_key else None


def tls_from(
    ca_file: str, certificate_file: str, key_file: str, environ: Mapping[str, str] = os.environ
) -> TlsClient | None:
    """By the files that are given, else those of the environment, else none. Errors: Invalid for a part only."""
    files = [ca_file, certificate_file, key_file]
    if not any(files):
        files = [environ.get(name, "") for name in TLS_VARIABLES]
    return TlsClient(*files) if any(files) else None


def addresses_from(given: str, environ: Mapping[str, str]) -> list[str]:
    """The addresses that are given, else those of the environment, else where `ortoo dev` listens; with commas."""
    text = given or environ.get(ADDRESS_VARIABLE, "") or DEFAULT_ADDRESS
    return [part.strip() for part in text.split(",") if part.strip()]


def surroundings(profile: str = "", environ: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """The environment, in which a profile has the place of what it could say.

    That is `profile`, or the one named by ORTOO_PROFILE; or the current one, unless there is ORTOO_ADDRESS. On a
    simulated network only a profile that is given counts, and no address of the real one does.
    Errors: NotFound without such a profile; Invalid for one that cannot be read.
    """
    if not profile and not isinstance(current_transport(), SocketTransport):
        return {name: value for name, value in environ.items() if name != ADDRESS_VARIABLE}
    name = profile or environ.get(PROFILE_VARIABLE, "")
    if not name and not environ.get(ADDRESS_VARIABLE):
        name = current_profile(environ)
    if not name:
        return environ
    said = {f"ORTOO_{key.upper()}": value for key, value in read_profile(name, environ).items()}
    return {key: value for key, value in environ.items() if key not in VARIABLES} | said


def profiles_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where profiles are kept; it need not exist."""
    home = environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if home else Path(environ.get("HOME", "") or Path.home()) / ".config") / "ortoo"


def current_profile(environ: Mapping[str, str] = os.environ) -> str:
    """The name of the profile that counts when none is named; empty = none."""
    with suppress(OSError):
        return (profiles_folder(environ) / "current").read_text().strip()
    return ""


def read_profile(name: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a profile says. Errors: NotFound; Invalid for what cannot be read, or a key that means nothing."""
    file = profile_file(name, environ)
    try:
        said = tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise NotFound(f"there is no profile {name}: {file} does not exist", field="profile") from None
    except (OSError, ValueError) as error:
        raise Invalid(f"{file} cannot be read: {error}", field="profile") from None
    for key, value in said.items():
        if key not in PROFILE_KEYS or not isinstance(value, str):
            raise Invalid(f"{file}: {key} = {value!r}; expected texts under {', '.join(PROFILE_KEYS)}", field="profile")
    return said


def profile_file(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where a profile is kept. Errors: Invalid for a name that is none of a file there."""
    if not name or not all(character.isalnum() or character in "-_" for character in name):
        raise Invalid(f"{name!r} is no name of a profile: letters, digits, - and _", field="profile")
    return profiles_folder(environ) / f"{name}.toml"
