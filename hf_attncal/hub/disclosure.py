"""What a text gives away: secrets, places of a machine and foreign code, which are refused, and what else it says.

The patterns are our own: detect-secrets 1.5 (2024) knows no tokens of the Hub, Google or fine-grained ones of GitHub
without its measure of entropy, which also takes every licence header and vocabulary for a secret, and it reads no
format but lines.
"""

import re
import socket
from collections.abc import Collection, Iterable
from functools import cache
from typing import NamedTuple

from .contents import Text


class Leak(NamedTuple):
    """Something that must not go up: what it is, for an error, and what to do about it."""

    what: str
    remedy: str


# ---- secrets: of a form that nothing else has ----

_SECRETS = {
    "a token of Hugging Face": r"(?:hf_|api_org_)[A-Za-z0-9]{20,}",
    "an access key of AWS": r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    "a key of OpenAI, Anthropic or the like": r"sk-(?:(?:proj|ant|svcacct|admin|or|live|test)-(?=[\w-]*\d)[\w-]{12,}"
    r"|(?=\w*\d)[A-Za-z0-9_]{20,})",
    "a token of GitHub": r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{20,}",
    "a token of GitLab": r"gl(?:pat|dt|rt|ptt|cbt|soat)-[\w-]{20,}",
    "a token of Slack": r"xox[a-z]-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{10,}"
    r"|hooks\.slack\.com/services/T\w+/B\w+/\w+",
    "a key of Google": r"AIza[\w-]{30,}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}",
    "a private key": r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File-\d|AGE-SECRET-KEY-1[A-Z0-9]{10,}",
    "a JSON web token": r"eyJ[\w-]{8,}\.eyJ[\w-]{4,}(?:\.[\w-]*)?",
    "a token of npm or PyPI": r"npm_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}",
    "a key of Stripe": r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{20,}",
    "a key of SendGrid": r"SG\.[\w-]{16,}\.[\w-]{16,}",
    "a key of Twilio": r"(?:AC|SK)[0-9a-f]{32}(?![0-9A-Za-z])",
    "a token of Telegram": r"\d{8,10}:AA[\w-]{30,}",
    "a token of Discord": r"[MNO][A-Za-z0-9]{22,27}\.[\w-]{6}\.[\w-]{27,}"
    r"|discord(?:app)?\.com/api/webhooks/\d+/[\w-]+",
    "a key of Azure": r"AccountKey=[A-Za-z0-9+/]{40,}|[?&]sig=[A-Za-z0-9%+/]{30,}",
    "a token of a service": r"dop_v1_[0-9a-f]{40,}|dapi[0-9a-f]{32}|r8_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{30,}"
    r"|hvs\.[\w-]{20,}"
    r"|dckr_pat_[\w-]{20,}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}|lin_api_\w{30,}|ntn_[A-Za-z0-9]{30,}|pplx-\w{30,}"
    r"|xai-\w{30,}|nvapi-[\w-]{30,}|glsa_\w{30,}|sq0[a-z]{3}-[\w-]{20,}|EAAA[\w-]{50,}",
}
_SECRET = re.compile(
    "(?<![A-Za-z0-9])(?:" + "|".join(f"(?P<s{number}>{form})" for number, form in enumerate(_SECRETS.values())) + ")"
)
_NAMES = list(_SECRETS)

# ---- secrets: by the name that they have ----

_SECRET_NAME = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret(?:_?(?:access_?)?key|_?token)?|(?:api|access|private|encryption|signing|"
    r"account|master|service)_?key(?:_?id)?|(?:auth|access|refresh|bearer|api|session|bot|id|hub|hf|github|security|"
    r"personal_?access)_?token|client_?secret|credentials?)"
)
_KEY_NAME = re.compile(rf"(?:.*[_\-. ])?{_SECRET_NAME}(?:_?\d+)?", re.IGNORECASE)
_NO_VALUE = r"(?!(?i:your|my[-_]|x{3}|\*{3}|\.{3}|none\b|null\b|true\b|false\b|os\.|self\.)|[\d.]+(?:\W|$))"
_VALUE = rf"{_NO_VALUE}[^\s\"'`<>{{}}()\[\],;$]{{6,}}"
_ASSIGNED = re.compile(
    # as the shell and .env files have it, or in quotes as programs do
    rf"(?<![A-Za-z0-9_.-])(?:[A-Z0-9]+_)*(?:TOKEN|PAT|DSN|{_SECRET_NAME.upper()})(?:_\d+)?=[\"']?{_VALUE}"
    rf"|(?<![a-z0-9])(?i:(?:[a-z0-9]+[_-])*{_SECRET_NAME})[\"']?\s*(?:=|:|=>|:=)\s*[\"']{_VALUE}[\"']"
    rf"|(?i:authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token)\s+){_VALUE}"
    r"|\bmachine\s+\S+\s+login\s+\S+"
    r"|\b[a-z][a-z0-9+.-]*://[^\s/:@\"'<>]+:[^\s/:@\"'<>{}$]{3,}@[\w.-]",
)
_SETTING = re.compile(r"\s*(?:(?:export\s+|set\s+)?[A-Za-z_][A-Za-z0-9_]*=(?:\"[^\"]*\"|'[^']*'|\S+)|)\s*(?:#.*)?")

# ---- places of a machine ----

_PLACES = (
    "home|Users|root|tmp|var|mnt|media|opt|srv|data|scratch\\w*|work|workspaces?|gpfs\\w*|lustre\\w*|Volumes|private|usr|etc"
    "|fsx|efs|nfs\\w*|beegfs|ceph\\w*|cluster|dbfs|kaggle|cygdrive|raid\\w*|proc|nix|Applications|Library|System"
)
_PART = r"[\w.@%+~$#-]"
_BEFORE = r"(?<![\w.\-/<>)\]}~\\])"
# A place that every machine has, with something in it.
_KNOWN = re.compile(rf"(?:(?<![\w.\-/<)\]}}~\\])|(?<=\W-[IL])|(?<=^-[IL]))/{{1,2}}(?:{_PLACES})/[^\s\"'`)<]+")
# Any other place: two parts, the first of which begins with a letter, and no word in quotes before it ("a"/b/c).
_ANY = re.compile(rf"{_BEFORE}(?<!\w[\"'`*])(?<!\]\()/(?!path/to|your/)[A-Za-z_.]{_PART}*(?:/{_PART}+)+")
_WHOLE = re.compile(rf"/{{1,2}}(?:(?:{_PLACES})/?|[A-Za-z_.][^/\n]*(?:/[^/\n]+)+/?)")
_HOME = re.compile(r"(?<![\w/.~\])}])~(?!/\.cache/huggingface)(?:[a-z_][\w-]*)?/[\w.]")
_FILE = re.compile(r"\b(?i:file|smb|nfs|sftp|ssh|afp|cifs|hdfs|dbfs|vscode-remote):/{1,3}[^\s\"'<>]+")
_DRIVE = re.compile(
    r"(?<![A-Za-z0-9?])(?![QAHUS]:\\{1,2}[nrt])[A-Za-z]:"
    r"(?:\\{1,2}(?![sSwWdDbBnrtafv0]\W)(?=[\w.$~ ])|/(?=\w{2}))[^\s\"'`<>|*?]+"
)
_SHARE = re.compile(r"(?<![\\\w])\\{2}(?:[?.]\\|(?:\\{2})?[A-Za-z][\w.-]+\\{1,2}[\w.$-])[^\s\"'`<>|*]*")
_ADDRESS = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>?#`]*")

# ---- foreign code ----

_FOREIGN = re.compile(r"[\w.-]+/[\w.-]+--[\w./-]+")
_CLASS = re.compile(r"(\w+)(?:\.\w+)+")
_LIBRARIES = {"transformers", "peft", "hf_attncal", "transformers_modules"}


def leak_in(text: Text, user: str | None, files: Collection[str]) -> Leak | None:
    """Return what in a text must not go up; None if there is nothing.

    Args:
        text: as `contents.texts_of` yields it.
        user: login name of this machine; None for a common one.
        files: names of the files that go up: code is taken from one of them.
    """
    return _secret_in(text) or _code_in(text, files) or (None if text.kind == "words" else _place_in(text, user))


def is_environment(lines: Iterable[str]) -> bool:
    """Return whether lines set variables and do nothing else."""
    some = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return bool(some) and all(_SETTING.fullmatch(line) for line in some)


def _secret_in(text: Text) -> Leak | None:
    remedy = "Take it out, make it invalid where it was issued"
    if found := _SECRET.search(text.text):
        return Leak(f"what looks like {_NAMES[int(str(found.lastgroup)[1:])]} ({found[0][:7]}...)", remedy)
    if found := _ASSIGNED.search(text.text):
        return Leak(f"what looks like a secret ({found[0].lstrip()[:12]}...)", remedy)
    names = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key) for key in text.keys if isinstance(key, str)]
    if text.kind != "words" and names:
        if _KEY_NAME.fullmatch(names[-1]) and re.fullmatch(_VALUE, text.text):
            return Leak(f"what looks like a secret, by its name {names[-1][:40]!r},", remedy)
        if names[-1].lower() == "token" and re.fullmatch(r"(?=.*\d)[\w.-]{20,}", text.text):
            return Leak("what looks like a token", remedy)
    return None


def _code_in(text: Text, files: Collection[str]) -> Leak | None:
    """Foreign code: a class of another repository, or of a file that does not go up."""
    if not text.keys:
        return None
    name = next((key for key in reversed(text.keys) if isinstance(key, str)), "")
    remedy = "Load the model with this package and save it again"
    if _FOREIGN.fullmatch(text.text):
        return Leak(f"code of another repository ({text.text[:100]}), which could change,", remedy)
    if "auto_map" in text.keys:
        within = text.keys[text.keys.index("auto_map") + 1 :]
        if not within or isinstance(within[0], int):
            return Leak("an `auto_map` that is not an object", remedy)
        found = _CLASS.fullmatch(text.text)
        if found is None or f"{found[1]}.py" not in files:
            return Leak(f"code that is not in the folder ({text.text[:100]!r})", remedy)
    if name.endswith("_implementation") and "/" in text.text:
        return Leak(f"code of another repository ({text.text[:100]}), which could change,", remedy)
    if name == "parent_library" and text.text.partition(".")[0] not in _LIBRARIES:
        return Leak(f"the name of a library that loading would import ({text.text[:100]!r})", remedy)
    return None


def _place_in(text: Text, user: str | None) -> Leak | None:
    found = _FILE.search(text.text)
    rest = _ADDRESS.sub(" ", text.text)
    if found is None and text.kind == "text":
        unescaped = re.sub(r"(?<!\\)\\[nrt]", "\n", rest)
        whole = _WHOLE.fullmatch(text.text.strip()) if text.keys else None
        found = whole or _HOME.search(rest) or _ANY.search(unescaped) or _KNOWN.search(unescaped)
    found = found or _KNOWN.search(rest) or _DRIVE.search(rest) or _SHARE.search(rest)
    if found is not None:
        return Leak(f"the path {found[0].strip()[:200]!r} of a machine", "Take it out")
    if user is not None and _name(user).search(text.text):
        return Leak(f"the user name {user!r}", "Take it out")
    return None


@cache
def _name(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")


# ---- what else a text says ----

_SAYS = {
    "e-mail": re.compile(r"(?<![\w.+-])[\w.+-]+@(?:[\w-]+\.)+[A-Za-z]{2,}(?![\w/])"),
    "bucket": re.compile(r"\b(?:s3a?|gs|abfss?|wasbs?|oss)://[^\s\"'<>]+"),
    "address within a network": re.compile(
        r"https?://(?:localhost|127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|[\w.-]+\.(?:local|internal|lan|corp)\b)"
        r"[^\s\"'<>]*"
    ),
    "date": re.compile(r"\b20\d\d-[01]\d-[0-3]\d\b"),
    "hash": re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b"),
    "software": re.compile(
        r"(?i)\b(?:python|torch|pytorch|transformers|tokenizers|datasets|peft|onnx\w*|openvino|matplotlib|numpy)\b"
        r"[^\w\n]{1,4}(?:version)?\d+(?:\.\d+)+[^\s,;|\"]*"
    ),
}
_KEYS = {
    "software": "software",
    "transformers_version": "software",
    "hardware": "hardware",
    "data_sha256": "hash of a text",
    "data": "name of a text",
    "command": "command",
}


def said_by(text: Text) -> dict[str, str]:
    """Return what a text says of its author and the machine, though it may go up: label -> words of it."""
    if text.kind == "words":
        return {}
    said = {label: found[0] for label, form in _SAYS.items() if (found := form.search(text.text))}
    if (host := _host()) is not None and _name(host).search(text.text):
        said["host"] = host
    for key in text.keys:
        if label := _KEYS.get(str(key)):
            name = str(text.keys[-1])
            words = {"software": f"{name.removesuffix('_version')} {text.text}", "hash of a text": name}
            return {label: words.get(label, text.text)}
    return said


@cache
def _host() -> str | None:
    name = socket.gethostname().partition(".")[0]
    return name if len(name) > 3 and name != "localhost" else None
