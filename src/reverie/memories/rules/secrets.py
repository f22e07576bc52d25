"""Detect secrets by the prefixes and shapes of known tokens; entropy counts only next to a keyword.

Nothing here ever returns, logs or raises the value itself: a finding states the kind and the position.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from ...errors import InputError
from ...values import record

__all__ = ["RULES", "SecretFinding", "SecretRule", "find_secrets", "refuse_secrets", "without_secrets"]


@record
class SecretRule:
    """A rule to find one kind of secret: needles, one of which each secret contains, and its pattern."""

    name: str
    needles: tuple[str, ...]
    shape: re.Pattern[str]
    back: tuple[int, ...] = (0,)
    """The numbers of characters before the needle at which a secret may start."""
    spaced: bool = False
    """Whether a secret of this kind may contain blanks."""


@record
class SecretFinding:
    """The kind and position of a secret, never its value."""

    rule: str
    line: int
    column: int
    length: int


def _rule(name: str, needles: str, shape: str, *, back: tuple[int, ...] = (0,), spaced: bool = False) -> SecretRule:
    return SecretRule(name, tuple(needles.split()), re.compile(shape), back, spaced)


_END: Final = r"(?![A-Za-z0-9])"
_BEGIN: Final = r"(?<![A-Za-z0-9])"


def _prefixed(name: str, prefixes: str, rest: str) -> SecretRule:
    """Return the rule for tokens that are one of these prefixes followed by the pattern ``rest``."""
    either = "|".join(re.escape(prefix) for prefix in prefixes.split())
    return _rule(name, prefixes, f"{_BEGIN}(?:{either}){rest}{_END}")


_PRIVATE_KEY: Final = "private key"
_KEY_REST: Final = re.compile(r"[A-Za-z0-9+/=:,\s\\]*(?:-+END [A-Z0-9 ]*-+)?")
"""The part of a private key behind the characters by which its rule recognises it."""

RULES: Final[tuple[SecretRule, ...]] = (
    # code and packages
    _prefixed("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", "[A-Za-z0-9]{30,255}"),
    _prefixed("GitHub fine-grained token", "github_pat_", "[A-Za-z0-9_]{50,255}"),
    _prefixed(
        "GitLab token",
        "glpat- gloas- gldt- glrt- glcbt- glptt- glft- glimt- glagent- glsoat- GR1348941",
        "[A-Za-z0-9_=.-]{18,300}",
    ),
    _prefixed("Bitbucket app password", "ATBB", "[A-Za-z0-9]{24,60}"),
    _prefixed("Atlassian token", "ATATT3 ATCTT3", "[A-Za-z0-9_=-]{50,300}"),
    _prefixed("npm token", "npm_", "[A-Za-z0-9]{30,60}"),
    _prefixed("PyPI token", "pypi-", "[A-Za-z0-9_-]{50,1000}"),
    _prefixed("RubyGems token", "rubygems_", "[a-f0-9]{40,64}"),
    _prefixed("crates.io token", "cio", "[A-Za-z0-9]{32}"),
    _prefixed("NuGet key", "oy2", "[a-z0-9]{43}"),
    _prefixed("Clojars token", "CLOJARS_", "[a-z0-9]{50,70}"),
    _prefixed("Docker Hub token", "dckr_pat_ dckr_oat_", "[A-Za-z0-9_-]{20,60}"),
    _prefixed("Artifactory key", "AKCp", "[A-Za-z0-9]{60,80}"),
    _prefixed("Sourcegraph token", "sgp_", "(?:[a-f0-9]{16}_|local_)?[a-f0-9]{40}"),
    _prefixed("CircleCI token", "CCIPAT_ CCIPRJ_", "[A-Za-z0-9]{10,40}_[a-f0-9]{32,64}"),
    _prefixed("Buildkite token", "bkua_ bkat_ bkct_", "[a-f0-9]{32,64}"),
    _prefixed("Travis or Codecov token", "codecov_", "[A-Za-z0-9]{32,}"),
    # clouds and infrastructure
    _prefixed("AWS access key id", "AKIA ASIA ABIA ACCA A3T", "[A-Z0-9]{16,17}"),
    _prefixed("AWS Bedrock key", "ABSK bedrock-api-key-", "[A-Za-z0-9+/=]{60,300}"),
    _prefixed("Google API key", "AIza", "[A-Za-z0-9_-]{35}"),
    _prefixed("Google OAuth token", "ya29. 1//0", "[A-Za-z0-9_-]{30,1000}"),
    _prefixed("Google OAuth secret", "GOCSPX-", "[A-Za-z0-9_-]{24,40}"),
    _rule(
        "Azure client secret", "Q~",
        r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~-])", back=(4,),
    ),
    _rule("Azure storage key", "AccountKey= SharedAccessKey=", r"\w+=[A-Za-z0-9+/]{40,90}={0,2}"),
    _rule("Azure shared access signature", "sig=", r"(?<=[?&])sig=[A-Za-z0-9%+/]{40,70}(?:%3D|=)"),
    _prefixed("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", "[a-f0-9]{40,64}"),
    _prefixed("Heroku key", "HRKU-", "[A-Za-z0-9_-]{36,70}"),
    _prefixed("Cloudflare origin key", "v1.0-", "[a-f0-9]{24}-[a-f0-9]{146}"),
    _prefixed("Fly.io token", "fm2_ fm1r_ fm1a_ fo1_", "[A-Za-z0-9_=,+/-]{40,500}"),
    _prefixed("Netlify token", "nfp_", "[A-Za-z0-9]{36,50}"),
    _prefixed("Vercel token", "vcp_ vca_ vci_ vcr_ vck_ vercel_", "[A-Za-z0-9]{24,80}"),
    _prefixed("Supabase token", "sbp_ sb_secret_", "[A-Za-z0-9_]{24,60}"),
    _prefixed("PlanetScale token", "pscale_tkn_ pscale_pw_ pscale_oauth_", "[A-Za-z0-9_=.-]{32,64}"),
    _prefixed("Neon key", "napi_", "[a-z0-9]{40,80}"),
    _prefixed("Databricks token", "dapi", "[a-f0-9]{32}(?:-\\d)?"),
    _prefixed("HashiCorp Vault token", "hvs. hvb. hvr.", "[A-Za-z0-9_-]{24,300}"),
    _rule("Terraform token", ".atlasv1.", _BEGIN + r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,80}", back=(14,)),
    _prefixed("Pulumi token", "pul-", "[a-f0-9]{40}"),
    _prefixed("Doppler token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", "[A-Za-z0-9_.-]{40,60}"),
    _prefixed("Tailscale key", "tskey-", "[a-z]+-[A-Za-z0-9]{8,30}-[A-Za-z0-9]{16,50}"),
    _prefixed("Alibaba key id", "LTAI", "[A-Za-z0-9]{16,24}"),
    _prefixed("Tencent key id", "AKID", "[A-Za-z0-9]{28,36}"),
    _prefixed("Yandex key", "AQVN", "[A-Za-z0-9_-]{35,38}"),
    _prefixed("1Password service token", "ops_eyJ", "[A-Za-z0-9_=-]{100,2000}"),
    _prefixed("age secret key", "AGE-SECRET-KEY-1", "[0-9A-Z]{58}"),
    _rule(
        _PRIVATE_KEY, "-----BEGIN",
        r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\n)*[A-Za-z0-9+/=:,\s\\-]{40}", spaced=True,
    ),
    # models
    _prefixed("Anthropic key", "sk-ant-", "[A-Za-z0-9_-]{32,200}"),
    _prefixed("OpenAI key", "sk-proj- sk-svcacct- sk-admin- sk-None-", "[A-Za-z0-9_-]{32,300}"),
    _prefixed("OpenAI key", "sk-", "(?:[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}|(?=[A-Za-z]*\\d)[A-Za-z0-9]{32,64})"),
    _prefixed("OpenRouter key", "sk-or-", "(?:v1-)?[a-f0-9]{48,64}"),
    _prefixed("Hugging Face token", "hf_ api_org_", "[A-Za-z0-9]{30,50}"),
    _prefixed("Groq key", "gsk_", "[A-Za-z0-9]{40,60}"),
    _prefixed("Perplexity key", "pplx-", "[A-Za-z0-9]{40,60}"),
    _prefixed("Replicate token", "r8_", "[A-Za-z0-9]{32,45}"),
    _prefixed("xAI key", "xai-", "[A-Za-z0-9]{60,90}"),
    _prefixed("Fireworks key", "fw_", "[A-Za-z0-9]{20,40}"),
    _prefixed("NVIDIA key", "nvapi-", "[A-Za-z0-9_-]{50,90}"),
    _prefixed("LangSmith key", "lsv2_pt_ lsv2_sk_", "[a-f0-9]{32}_[a-f0-9]{10}"),
    _prefixed("Tavily key", "tvly-", "[A-Za-z0-9-]{28,50}"),
    # talk and work
    _prefixed("Slack token", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxe- xoxe.xoxp- xoxe.xoxb-", "[A-Za-z0-9-]{20,250}"),
    _prefixed("Slack app token", "xapp-", "\\d-[A-Z0-9]+-\\d+-[a-z0-9]{30,100}"),
    _rule(
        "Slack webhook", "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9_/]{40,90}",
    ),
    _rule("Discord webhook", "/webhooks/", r"/webhooks/\d{17,20}/[A-Za-z0-9_-]{60,75}"),
    _rule("Telegram token", ":A", r"(?<![A-Za-z0-9:])\d{8,10}:A[A-Za-z0-9_-]{34}(?![A-Za-z0-9_-])", back=(8, 9, 10)),
    _rule("Microsoft Teams webhook", "webhook.office.com", r"webhook\.office\.com/webhookb2/[a-z0-9@/-]{70,250}"),
    _prefixed("Linear key", "lin_api_ lin_oauth_", "[A-Za-z0-9]{32,64}"),
    _prefixed("Notion token", "ntn_", "[A-Za-z0-9]{40,50}"),
    _prefixed("Notion token", "secret_", "(?=[A-Za-z]*\\d)[A-Za-z0-9]{43}"),
    _prefixed("Figma token", "figd_ figo_ figu_", "[A-Za-z0-9_-]{36,60}"),
    _prefixed("Airtable token", "pat", "[A-Za-z0-9]{14}\\.[a-f0-9]{64}"),
    _prefixed("Asana token", "1/ 2/", "\\d{10,16}(?:/\\d{10,16})?:[a-f0-9]{32}"),
    _prefixed("Postman key", "PMAK-", "[a-f0-9]{24}-[a-f0-9]{34}"),
    _prefixed("Dropbox token", "sl.", "[A-Za-z0-9_=-]{100,200}"),
    _prefixed("Contentful token", "CFPAT-", "[A-Za-z0-9_-]{40,50}"),
    _prefixed("ReadMe key", "rdme_", "[a-z0-9]{60,80}"),
    _prefixed("Typeform token", "tfp_", "[A-Za-z0-9_.=-]{50,70}"),
    _prefixed("Intercom or Zapier hook", "hooks.zapier.com/hooks/catch/", "\\d+/[a-z0-9]{6,}"),
    # money, mail, shops
    _prefixed("Stripe key", "sk_live_ sk_test_ rk_live_ rk_test_ sk_prod_ rk_prod_", "[A-Za-z0-9]{16,250}"),
    _prefixed("Stripe webhook secret", "whsec_", "[A-Za-z0-9+/=]{24,80}"),
    _prefixed("Square token", "sq0atp- sq0csp- sq0idp-", "[A-Za-z0-9_-]{22,60}"),
    _prefixed("Square access token", "EAAA", "[A-Za-z0-9_-]{56,64}"),
    _rule("PayPal token", "access_token$", r"access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}"),
    _prefixed("Shopify token", "shpat_ shpca_ shppa_ shpss_ shptka_ shpua_", "[a-fA-F0-9]{32}"),
    _prefixed("Flutterwave key", "FLWSECK FLWPUBK", "(?:_TEST)?-[a-zA-Z0-9]{12,40}(?:-X)?"),
    _prefixed("Adyen key", "AQE", "[A-Za-z0-9]{2}hmfx[A-Za-z0-9+/=-]{40,200}"),
    _prefixed("Plaid token", "access-sandbox- access-development- access-production-", "[0-9a-f-]{36}"),
    _prefixed("Shippo token", "shippo_live_ shippo_test_", "[a-f0-9]{40}"),
    _prefixed("EasyPost key", "EZAK EZTK", "[A-Za-z0-9]{54}"),
    _prefixed("SendGrid key", "SG.", "[A-Za-z0-9_-]{16,32}\\.[A-Za-z0-9_-]{30,50}"),
    _prefixed("Sendinblue key", "xkeysib- xsmtpsib-", "[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    _prefixed("Mailgun key", "key- pubkey-", "[a-f0-9]{32}"),
    _rule("Mailchimp key", "-us", _BEGIN + r"[a-f0-9]{32}-us\d{1,2}" + _END, back=(32,)),
    _prefixed("Resend key", "re_", "[A-Za-z0-9]{8}_[A-Za-z0-9]{20,30}"),
    _prefixed("Klaviyo key", "pk_", "[a-f0-9]{34}"),
    _prefixed("HubSpot token", "pat-na1- pat-eu1- pat-na2- pat-ap1-", "[0-9a-f-]{36}"),
    _prefixed("Twilio key or account", "SK AC", "[a-f0-9]{32}"),
    _rule("Firebase key", ":APA91b", _BEGIN + r"AAAA[A-Za-z0-9_-]{7}:APA91b[A-Za-z0-9_-]{130,140}", back=(11,)),
    _prefixed("Facebook token", "EAACEdEose0cBA EAAG EAAB EAAC EAAJ EAAM", "[A-Za-z0-9]{60,300}"),
    _prefixed("Twitter bearer token", "AAAAAAAAAAAAAAAAAAAA", "[A-Za-z0-9%]{60,200}"),
    _prefixed("Mapbox secret token", "sk.eyJ", "[A-Za-z0-9_-]{40,200}\\.[A-Za-z0-9_-]{16,40}"),
    # monitoring
    _prefixed("Grafana token", "glsa_ glc_", "[A-Za-z0-9_+/=]{32,400}"),
    _prefixed("New Relic key", "NRAK- NRII- NRIQ- NRRA- NRJS- NRSP-", "[A-Za-z0-9_-]{19,46}"),
    _prefixed("Sentry token", "sntrys_ sntryu_", "[A-Za-z0-9_=+/-]{40,400}"),
    _prefixed("Dynatrace token", "dt0c01. dt0s16. dt0s01. dt0s08.", "[A-Z0-9]{8,24}\\.[A-Z0-9]{64}"),
    _prefixed("PostHog key", "phx_ phs_", "[A-Za-z0-9]{40,50}"),
    _prefixed("Honeycomb key", "hcaik_ hcxik_ hcamk_", "[a-z0-9]{50,64}"),
    _prefixed("LaunchDarkly key", "sdk- mob- api-", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    # common shapes
    _rule("JSON web token", "eyJ", _BEGIN + r"eyJ[A-Za-z0-9_-]{12,}\.eyJ[A-Za-z0-9_-]{12,}\.[A-Za-z0-9_-]{16,}"),
    _rule(
        "password in a URL", "://",
        r"://[^\s:/@'\"<>{}$]{0,64}:(?P<value>[^\s:/@'\"<>{}$*]{6,128})@[\w.-]", spaced=True,
    ),
    _rule(
        "authorization header", "uthorization UTHORIZATION",
        r"(?i)uthorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token|ssws|apikey)\s+(?P<value>[A-Za-z0-9_.~+/=-]{16,})",
        spaced=True,
    ),
)  # fmt: skip

# Tokens without a literal part: searched only in long words.
_LONG_SHAPES: Final = (
    ("Discord bot token", re.compile(r"(?<![\w.-])[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40}(?![\w.-])")),
    ("Mailgun key", re.compile(r"(?<![\w-])[a-f0-9]{32}-[a-f0-9]{8}-[a-f0-9]{8}(?![\w-])")),
)
_KEYWORDS: Final = ("passw", "passphrase", "passcode", "pwd", "secret", "token", "credential", "key")
_BEFORE_KEY: Final = (
    "api", "access", "auth", "private", "client", "account", "app", "application", "sign", "signing", "encryption",
    "master", "license", "webhook", "service", "subscription", "storage", "shared", "admin", "secret", "deploy",
    "integration",
)  # fmt: skip
_VALUE: Final = re.compile(
    r"[\w.-]{0,24}+[\"'`*]{0,3}+(?:[ \t](?:of|for|to|on|in|at)(?:[ \t][\w.'-]{1,24}){1,5}?)?"
    r"(?:[ \t]{0,3}(?:=>|:=|={1,3}|:)[ \t]{0,3}|[ \t]+(?:is|was|to)[ \t]+)[\"'`*]{0,3}"
    r"(?:bearer[ \t]+|basic[ \t]+)?(?P<value>[A-Za-z0-9_.~!@#$%^&*+/=-]{8,256})",
    re.IGNORECASE,
)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_KEY_ROOM: Final = 16
_MIN_CHARS: Final = 16
"""The fewest characters of a token."""
_DIGITS: Final = frozenset("0123456789")
_DIGIT, _LOWER, _UPPER, _SIGN = (re.compile(kind) for kind in ("[0-9]", "[a-z]", "[A-Z]", r"[^A-Za-z0-9_./-]"))
_PLACEHOLDER: Final = re.compile(
    r"example|placeholder|changeme|change_me|change-me|dummy|sample|redacted|your|insert|replace|here|todo|xxxx|\*\*\*|\.\.\."
    r"|<|\{|\$\(|%\(|^\$|^%|test_?test|0{8}|1234567890abcdef|abcdefghij|deadbeefdeadbeef",
    re.IGNORECASE,
)
_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff\U000e0000-\U000e0fff]")
_MIN_DISTINCT: Final = 6
_MIN_ENTROPY: Final = 3.4


def find_secrets(text: str) -> list[SecretFinding]:
    """Return the kind and position of each secret in a text, in order; positions ignore invisible characters."""
    text = _INVISIBLE.sub("", text)
    findings: list[SecretFinding] = []
    line, counted = 1, 0
    for start, end, name in _spans(text):
        line += text.count("\n", counted, start)
        counted = start
        findings.append(SecretFinding(name, line, start - text.rfind("\n", 0, start), end - start))
    return findings


def without_secrets(text: str) -> str:
    """Return a text in which a note of its kind replaces each secret; a text without secrets is unchanged."""
    visible = _INVISIBLE.sub("", text)
    parts: list[str] = []
    reached = 0
    for start, end, name in _spans(visible):
        parts += [visible[reached : max(start, reached)], f"[{name} left out]"]
        rest = _KEY_REST.match(visible, end) if name == _PRIVATE_KEY else None
        reached = rest.end() if rest else end
    return "".join([*parts, visible[reached:]]) if parts else text


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and kind of each secret, in order and without overlap."""
    reached = -1
    for start, end, name in sorted([*_of_rules(text), *_beside_keywords(text)], key=lambda span: (span[0], -span[1])):
        if start >= reached:
            reached = end
            yield start, end, name


def _of_rules(text: str) -> Iterator[tuple[int, int, str]]:
    # Most words are too short for a token or have no digit, so they are removed before the search.
    long = "\n".join(word for word in text.split() if len(word) >= _MIN_CHARS and not _DIGITS.isdisjoint(word))
    for rule in RULES:
        for needle in rule.needles:
            if needle in (text if rule.spaced else long):
                yield from _of_needle(text, rule, needle)
    for name, shape in _LONG_SHAPES:
        if shape.search(long):
            yield from ((*found.span(), name) for found in shape.finditer(text) if not _is_placeholder(found.group()))


def _of_needle(text: str, rule: SecretRule, needle: str) -> Iterator[tuple[int, int, str]]:
    group = "value" if "value" in rule.shape.groupindex else 0
    match = rule.shape.match
    at = text.find(needle)
    while at >= 0:
        found = None
        for back in rule.back:
            if back <= at and (found := match(text, at - back)):
                break
        if found and not _is_placeholder(found[group]):
            yield found.start(), found.end(), rule.name
        at = text.find(needle, max(at + len(needle), found.end() if found else 0))


def refuse_secrets(text: str, what: str) -> None:
    """Raise ``InputError`` if a text, called ``what``, contains a secret; the error never states its value."""
    findings = find_secrets(text)
    if findings:
        first = findings[0]
        more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
        raise InputError(
            f"{what} was not saved: line {first.line} looks like a secret ({first.rule}){more}. Memories are shown to "
            "models and may be shared; keep the secret in a key store and remember where it is"
        )


def _beside_keywords(text: str) -> Iterator[tuple[int, int, str]]:
    lowered = text.replace("\u0130", "I").lower()  # the one letter that gets longer in lower case
    for word in _KEYWORDS:
        at = lowered.find(word)
        while at >= 0:
            is_named = word != "key" or _names_a_key(lowered[max(0, at - _KEY_ROOM) : at])
            found = _VALUE.match(text, at + len(word)) if is_named else None
            if found and (value := found["value"].rstrip(".,;:!?")):
                # An id next to a plain word is an id; next to the name of a variable or an API it is a credential.
                named = text[at : at + len(word)].isupper() or "api" in lowered[max(0, at - 5) : at]
                random = _looks_random(value) or (named and _UUID.fullmatch(value) is not None)
                if random and not _is_placeholder(value):
                    yield found.start("value"), found.start("value") + len(value), "value beside a keyword"
            at = lowered.find(word, at + len(word))


def _names_a_key(before: str) -> bool:
    """Say whether the text before "key" makes the key a credential, such as "api" or "private"."""
    return (before[:-1] if before[-1:] in ("_", " ", ".", "-") else before).endswith(_BEFORE_KEY)


def _is_placeholder(value: str) -> bool:
    return len(set(value)) < _MIN_DISTINCT or _PLACEHOLDER.search(value) is not None


def _looks_random(value: str) -> bool:
    """Say whether a value next to a keyword is too random to be a word, a name or an expression."""
    if len(value) < 12 or not _DIGIT.search(value) or not (_LOWER.search(value) or _UPPER.search(value)):
        return _is_strong_password(value)
    if re.fullmatch(r"[A-Za-z_][\w.]*(?:\.[A-Za-z_]\w*)+|[\w/.-]+\.\w{1,5}|[a-z]+(?:[-_][a-z0-9]+)+", value):
        return False  # an attribute, a path, a name with dashes
    if _UUID.fullmatch(value) or re.fullmatch(r"v?\d+(?:\.\d+)+\S*|\d{4}-\d\d-\d\d.*", value):
        return False  # an id, a version, a date
    return _entropy(value) >= _MIN_ENTROPY


def _is_strong_password(value: str) -> bool:
    """Say whether a value mixes upper case, lower case, digits and signs like a password."""
    mixed = _DIGIT.search(value) and _UPPER.search(value) and _LOWER.search(value) and _SIGN.search(value)
    return bool(mixed) and value[-1] not in "=("


def _entropy(value: str) -> float:
    total = len(value)
    return -sum(count / total * math.log2(count / total) for count in Counter(value).values())
