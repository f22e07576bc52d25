# ruff: noqa
# fmt: off
"""Synthetic secrets for testing secret detectors: formats, forms, harmless look-alikes.

Every value is random; none was issued by a vendor.  Python 3.11, no dependencies.

FORMATS   name -> f(rng) -> str        one secret (for names in KV_FORMATS: a text with key names)
UNSURE    names whose exact shape could not be confirmed from a public source
KV_FORMATS names whose secret has no distinctive shape of its own, so the text carries a key name
secret_parts(name, text) -> list[str]  the secret substrings that must not survive redaction
FORMS     name -> f(rng) -> (text, secret)   the secret in the place where people leave it
HARMLESS  list[str]                    look-alikes which are not secrets
"""
from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import string
import struct
import sys
import zlib
from random import Random
from typing import Callable

FORMATS: dict[str, Callable[[Random], str]] = {}
FORMS: dict[str, Callable[[Random], tuple[str, str]]] = {}
UNSURE: set[str] = set()
KV_FORMATS: set[str] = set()
_PARTS: dict[str, Callable[[str], list[str]]] = {}

# ------------------------------------------------------------------ helpers
LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALNUM = DIGITS + UPPER + LOWER          # base62, the order of GitHub's checksum
LOWNUM, UPNUM = LOWER + DIGITS, UPPER + DIGITS
HEX, HEXU = DIGITS + "abcdef", DIGITS + "ABCDEF"
B64URL = ALNUM + "-_"
B64 = ALNUM + "+/"
B32 = UPPER + "234567"
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
BASE57 = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def _s(r: Random, alphabet: str, n: int, m: int | None = None) -> str:
    return "".join(r.choices(alphabet, k=n if m is None else r.randint(n, m)))


def _bytes(r: Random, n: int) -> bytes:
    return r.randbytes(n)


def _b64(b: bytes) -> str:
    return base64.b64encode(b).decode()


def _b64u(b: bytes) -> str:
    return base64.urlsafe_b64encode(b).decode().rstrip("=")


def _uuid(r: Random) -> str:
    h = _s(r, HEX, 32)
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{r.choice('89ab')}{h[17:20]}-{h[20:]}"


def _base(n: int, digits: str, width: int) -> str:
    out = ""
    while n:
        n, d = divmod(n, len(digits))
        out = digits[d] + out
    return out.rjust(width, digits[0])


def _crc62(body: str) -> str:
    return _base(zlib.crc32(body.encode()), ALNUM, 6)


def _add(name: str, f: Callable[[Random], str], unsure: bool = False,
         parts: Callable[[str], list[str]] | None = None) -> None:
    assert name not in FORMATS, name
    FORMATS[name] = f
    if unsure:
        UNSURE.add(name)
    if parts:
        _PARTS[name] = parts


def _fmt(name: str, unsure: bool = False, parts: Callable[[str], list[str]] | None = None):
    def deco(f):
        _add(name, f, unsure, parts)
        return f
    return deco


_KV_RE = re.compile(r'^[^=:]+?"?\s*[=:]\s*["\']?([^"\'\s]+?)["\']?,?$')


def _kv_text(r: Random, key: str, val: str) -> str:
    """`KEY=value` in one of the usual spellings."""
    if "-" in key:                                  # an HTTP header
        return f"{key}: {val}"
    k = r.choice([key, key, key.lower()])
    return r.choice([
        f"{k}={val}", f'{k}="{val}"', f"export {k}={val}", f"{k}: {val}", f"{k}: '{val}'",
        f'"{k}": "{val}",', f'{k} = "{val}"',
    ])


def _kv(name: str, keys: list[str], gen: Callable[[Random], str], unsure: bool = False) -> None:
    def f(r: Random) -> str:
        return _kv_text(r, r.choice(keys), gen(r))
    _add(name, f, unsure, lambda t: [_KV_RE.match(t).group(1)])
    KV_FORMATS.add(name)


def secret_parts(name: str, text: str) -> list[str]:
    """The substrings of `text` that are secret."""
    return _PARTS[name](text) if name in _PARTS else [text]


def _url_parts(text: str) -> list[str]:
    return [re.search(r"://[^:/@\s]*:([^@\s]+)@", text).group(1)]


def _jwt(r: Random, payload: dict, alg: str = "HS256", header: dict | None = None) -> str:
    h = {"alg": alg, "typ": "JWT", **(header or {})}
    enc = lambda o: _b64u(json.dumps(o, separators=(",", ":")).encode())
    head = enc(h) + "." + enc(payload)
    if alg == "HS256":
        sig = hmac.new(_bytes(r, 32), head.encode(), hashlib.sha256).digest()
    else:
        sig = _bytes(r, {"RS256": 256, "ES256": 64, "EdDSA": 64}[alg])
    return head + "." + _b64u(sig)


_FIRST = "anna boris carla dmitri elena felix greta hugo irina jonas katya lukas maria nikolai olga pavel rosa stefan tanya viktor".split()
_NOUN = "billing orders payments reports ledger search mailer ingest gateway users catalog metrics warehouse scheduler crm".split()
_TLD = ["internal", "local", "net", "io", "dev", "com"]


def _host(r: Random) -> str:
    return f"{r.choice(['db', 'pg', 'prod', 'stage', 'eu', 'node'])}{r.randint(1, 19)}.{r.choice(_NOUN)}.{r.choice(_TLD)}"


def _user(r: Random) -> str:
    return r.choice(_FIRST + ["admin", "root", "svc_" + r.choice(_NOUN), "deploy"])


def password(r: Random, url_safe: bool = False, minimum: int = 8) -> str:
    """8-24 characters: letters; letters+digits; letters+digits+punctuation."""
    n = r.randint(minimum, 24)
    kind = r.randrange(4)
    alpha = string.ascii_letters
    if kind == 0:                                   # letters only
        pw = r.choices(alpha, k=n)
    elif kind == 1:                                 # letters + digits
        pw = r.choices(alpha + DIGITS, k=n)
        pw[r.randrange(n)] = r.choice(DIGITS)
    else:                                           # + one to three marks
        pw = r.choices(alpha + DIGITS, k=n)
        marks = "_-.!*~" if url_safe else "!@#%^*_-+.?~"
        for i in r.sample(range(1, n), r.randint(1, 3)):
            pw[i] = r.choice(marks)
    pw[0] = r.choice(alpha)
    return "".join(pw)


# ================================================================== AI vendors
# OpenAI project key: 74 + "T3BlbkFJ" (base64 of "OpenAI") + 74; platform.openai.com/docs/api-reference/authentication, shape from public scanners
_add("openai_sk_proj", lambda r: "sk-proj-" + _s(r, B64URL, 74) + "T3BlbkFJ" + _s(r, B64URL, 73) + "A")
# OpenAI service account: same marker; platform.openai.com docs "service accounts"
_add("openai_sk_svcacct", lambda r: "sk-svcacct-" + _s(r, B64URL, 74) + "T3BlbkFJ" + _s(r, B64URL, 73) + "A")
# OpenAI admin key: platform.openai.com/docs/api-reference/admin-api-keys; lengths 58 and 74 both reported
_add("openai_sk_admin", lambda r: (lambda n: "sk-admin-" + _s(r, B64URL, n) + "T3BlbkFJ" + _s(r, B64URL, n))(r.choice([58, 74])))
# OpenAI legacy user key: 20 + T3BlbkFJ + 20 (public knowledge, 51 characters)
_add("openai_legacy", lambda r: "sk-" + _s(r, ALNUM, 20) + "T3BlbkFJ" + _s(r, ALNUM, 20))
# Anthropic API key: 93 + "AA", 108 characters; docs.anthropic.com, GitHub secret scanning partner list
_add("anthropic_api03", lambda r: "sk-ant-api03-" + _s(r, B64URL, 93) + "AA")
# Anthropic admin key: docs.anthropic.com/en/api/administration-api
_add("anthropic_admin01", lambda r: "sk-ant-admin01-" + _s(r, B64URL, 93) + "AA")
# Anthropic OAuth access token (`claude setup-token`): prefix in Claude Code docs
_add("anthropic_oat01", lambda r: "sk-ant-oat01-" + _s(r, B64URL, 93) + "AA")
# Anthropic OAuth refresh token: .credentials.json of Claude Code (public issues)
_add("anthropic_ort01", lambda r: "sk-ant-ort01-" + _s(r, B64URL, 93) + "AA")
# OpenRouter: openrouter.ai/docs, 64 hex
_add("openrouter", lambda r: "sk-or-v1-" + _s(r, HEX, 64))
# DeepSeek: api-docs.deepseek.com, sk- + 32 hex
_add("deepseek", lambda r: "sk-" + _s(r, HEX, 32))
# Groq: console.groq.com/docs, gsk_ + 52 (WGdyb3FY = "Groq" marker inside)
_add("groq", lambda r: "gsk_" + _s(r, ALNUM, 20) + "WGdyb3FY" + _s(r, ALNUM, 24))
# Perplexity: docs.perplexity.ai, pplx- + 48
_add("perplexity", lambda r: "pplx-" + _s(r, ALNUM, 48))
# xAI: docs.x.ai, xai- + 80
_add("xai", lambda r: "xai-" + _s(r, ALNUM, 80))
# Together: tgp_v1_ + 43 base64url (public scanners; docs.together.ai states no shape)
_add("together", lambda r: "tgp_v1_" + _s(r, B64URL, 43))
# Fireworks: fw_ + 22..24 alphanumerics (docs.fireworks.ai shows the prefix only; sources disagree on length)
_add("fireworks", lambda r: "fw_" + _s(r, ALNUM, 22, 24), unsure=True)
# Cerebras: csk- + 48 lower alphanumerics (public scanners)
_add("cerebras", lambda r: "csk-" + _s(r, LOWNUM, 48))
# Voyage AI: docs.voyageai.com, pa- + 43 base64url
_add("voyage", lambda r: "pa-" + _s(r, B64URL, 43))
# Hugging Face: huggingface.co/docs/hub/security-tokens, hf_ + 34 letters
_add("huggingface", lambda r: "hf_" + _s(r, string.ascii_letters, 34))
# Replicate: replicate.com/docs, r8_ + 37
_add("replicate", lambda r: "r8_" + _s(r, ALNUM, 37))
# Pinecone: pcsk_ + 5-6 + _ + 63 (TruffleHog detector)
_add("pinecone", lambda r: "pcsk_" + _s(r, ALNUM, 5, 6) + "_" + _s(r, ALNUM, 63))
# ElevenLabs: elevenlabs.io/docs, sk_ + 48 hex
_add("elevenlabs", lambda r: "sk_" + _s(r, HEX, 48))
# Langfuse: langfuse.com/docs, sk-lf- + uuid
_add("langfuse_secret", lambda r: "sk-lf-" + _uuid(r))
# Langfuse "public" half of the pair: langfuse.com/docs
_add("langfuse_public", lambda r: "pk-lf-" + _uuid(r))
# LangSmith personal token: docs.smith.langchain.com; 32 hex _ 10 hex
_add("langsmith_pt", lambda r: "lsv2_pt_" + _s(r, HEX, 32) + "_" + _s(r, HEX, 10))
# LangSmith service key: docs.smith.langchain.com
_add("langsmith_sk", lambda r: "lsv2_sk_" + _s(r, HEX, 32) + "_" + _s(r, HEX, 10))
# E2B: e2b.dev/docs, e2b_ + 40 hex
_add("e2b", lambda r: "e2b_" + _s(r, HEX, 40))
# Firecrawl: docs.firecrawl.dev, fc- + 32 hex
_add("firecrawl", lambda r: "fc-" + _s(r, HEX, 32))
# Tavily: docs.tavily.com, tvly-dev- / tvly-prod- + 32
_add("tavily", lambda r: "tvly-" + r.choice(["dev-", "prod-", ""]) + _s(r, ALNUM, 32))
# Brave Search: api-dashboard.search.brave.com, BSA + 27..28
_add("brave_search", lambda r: "BSA" + _s(r, B64URL, 28), unsure=True)
# NVIDIA NIM: build.nvidia.com, nvapi- + 64
_add("nvidia_nvapi", lambda r: "nvapi-" + _s(r, B64URL, 64))
# Weights & Biases v1: wandb_v1_ + 27 _ 49 (TruffleHog detector)
_add("wandb_v1", lambda r: "wandb_v1_" + _s(r, ALNUM, 27) + "_" + _s(r, ALNUM, 49))
# Exa: docs.exa.ai, uuid in EXA_API_KEY
_kv("exa_kv", ["EXA_API_KEY"], _uuid)
# Mistral: docs.mistral.ai, 32 alphanumerics, no prefix
_kv("mistral_kv", ["MISTRAL_API_KEY"], lambda r: _s(r, ALNUM, 32))
# Cohere: docs.cohere.com, 40 alphanumerics, no prefix
_kv("cohere_kv", ["COHERE_API_KEY", "CO_API_KEY"], lambda r: _s(r, ALNUM, 40))
# SerpAPI: serpapi.com, 64 hex
_kv("serpapi_kv", ["SERPAPI_API_KEY", "SERPAPI_KEY"], lambda r: _s(r, HEX, 64))
# Weaviate Cloud: weaviate.io/developers/wcs, older keys 36 alphanumerics, no prefix
_kv("weaviate_kv", ["WEAVIATE_API_KEY", "WCS_API_KEY"], lambda r: _s(r, ALNUM, 36), unsure=True)
# Qdrant Cloud: qdrant.tech/documentation/cloud/authentication, JWT with {"access":"m"}
_kv("qdrant_kv", ["QDRANT_API_KEY"], lambda r: _jwt(r, {"access": "m", "subject": "api-key:" + _uuid(r)}))

# ================================================================== Google
# Google API key: cloud.google.com/docs/authentication/api-keys, AIzaSy + 33
_add("google_aiza", lambda r: "AIzaSy" + _s(r, B64URL, 33))
# Google "auth" API keys of AI Studio since 2026: ai.google.dev/gemini-api/docs/api-key, AQ.Ab8RN6 + 44
_add("google_aq", lambda r: "AQ.Ab8RN6" + r.choice("IJKL") + _s(r, B64URL, 43))
# Google OAuth client secret: developers.google.com/identity, GOCSPX- + 28
_add("google_gocspx", lambda r: "GOCSPX-" + _s(r, B64URL, 28))
# Google OAuth access token: developers.google.com/identity/protocols/oauth2, ya29. + variable
_add("google_ya29", lambda r: "ya29.a0A" + _s(r, B64URL, 150, 210))
# Google OAuth refresh token: same page, 1//0 + ~100
_add("google_refresh", lambda r: "1//0" + _s(r, DIGITS, 1) + _s(r, B64URL, 95, 98))

# ================================================================== AWS
# AWS pair: docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html, AKIA + 16 base32, secret 40 base64
@_fmt("aws_pair", parts=lambda t: [re.search(r"(A[KS]IA[A-Z2-7]{16})", t).group(1),
                                   re.search(r"secret_access_key\W+([A-Za-z0-9+/]{40})", t, re.I).group(1)])
def _aws_pair(r: Random) -> str:
    a, b = "AKIA" + _s(r, B32, 16), _s(r, B64, 40)
    return r.choice([f"AWS_ACCESS_KEY_ID={a}\nAWS_SECRET_ACCESS_KEY={b}",
                     f"aws_access_key_id = {a}\naws_secret_access_key = {b}",
                     f'"aws_access_key_id": "{a}", "aws_secret_access_key": "{b}"'])
KV_FORMATS.add("aws_pair")
# AWS temporary session: same page, ASIA + session token
@_fmt("aws_session", parts=lambda t: [re.search(r"SESSION_TOKEN=(\S+)", t).group(1)])
def _aws_session(r: Random) -> str:
    return ("AWS_ACCESS_KEY_ID=ASIA" + _s(r, B32, 16) + "\nAWS_SECRET_ACCESS_KEY=" + _s(r, B64, 40)
            + "\nAWS_SESSION_TOKEN=IQoJb3JpZ2luX2Vj" + _b64(_bytes(r, 300)))
KV_FORMATS.add("aws_session")
# AWS Bedrock long-term: docs.aws.amazon.com/bedrock/latest/userguide/api-keys.html; ABSK + base64("BedrockAPIKey-xxxx-at-<account>:<secret>")
_add("aws_bedrock_absk", lambda r: "ABSK" + _b64(f"BedrockAPIKey-{_s(r, LOWNUM, 4)}-at-{_s(r, DIGITS, 12)}:{_s(r, B64, 44)}".encode()))
# AWS Bedrock short-term: aws-bedrock-token-generator; bedrock-api-key- + base64 of a presigned URL
_add("aws_bedrock_short", lambda r: "bedrock-api-key-" + _b64(
    ("bedrock.amazonaws.com/?Action=CallWithBearerToken&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=ASIA" + _s(r, B32, 16)
     + "%2F20260701%2Fus-east-1%2Fbedrock%2Faws4_request&X-Amz-Date=20260701T120000Z&X-Amz-Expires=43200&X-Amz-Signature="
     + _s(r, HEX, 64) + "&X-Amz-SignedHeaders=host&Version=1").encode()))

# ================================================================== Azure / Microsoft
# Azure storage key: learn.microsoft.com purview SIT "Azure storage account key"; 64 bytes base64 with "+ASt" signature
def _azure_storage(r: Random) -> str:
    return _s(r, B64, 76) + "+ASt" + _s(r, B64, 5) + r.choice("AQgw") + "=="
_add("azure_storage_conn", lambda r: f"DefaultEndpointsProtocol=https;AccountName={r.choice(_NOUN)}{r.randint(1, 99)};AccountKey={_azure_storage(r)};EndpointSuffix=core.windows.net",
     parts=lambda t: [re.search(r"AccountKey=([^;]+)", t).group(1)])
# Azure storage key in a key-value
_kv("azure_storage_kv", ["AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"], _azure_storage)
# Azure OpenAI / Cognitive Services, 84 characters: 52 + JQQJ99 + date + ... + ACOG + checksum (Microsoft CASK-like keys)
_add("azure_openai_84", lambda r: _s(r, ALNUM, 52) + "JQQJ99" + r.choice("ABC") + _s(r, UPPER[:12], 1) + "AC" + _s(r, ALNUM, 5) + "XJ3w3AAA" + _s(r, "AB", 1) + "ACOG" + _s(r, ALNUM, 4))
# Azure OpenAI older: 32 hex, key-value
_kv("azure_openai_hex_kv", ["AZURE_OPENAI_API_KEY", "AZURE_OPENAI_KEY"], lambda r: _s(r, HEX, 32))
# Azure DevOps PAT: learn.microsoft.com purview SIT, 84 characters, AZDO at 76-80
_add("azure_devops_pat", lambda r: _s(r, ALNUM, 52) + "JQQJ99" + r.choice("ABC") + _s(r, UPPER[:12], 1) + "ACAAAAA" + _s(r, ALNUM, 5) + "AAAS" + "AZDO" + _s(r, ALNUM, 4))
# Entra client secret: 40 characters, "?Q~" at 4 (e.g. 8Q~); learn.microsoft.com purview SIT "Client secret"
_add("entra_client_secret", lambda r: _s(r, ALNUM, 3) + r.choice("78") + "Q~" + _s(r, ALNUM + "-_.~", 33) + _s(r, ALNUM, 1))
# Azure SAS: learn.microsoft.com/azure/storage/common/storage-sas-overview
_add("azure_sas_url", lambda r: f"https://{r.choice(_NOUN)}{r.randint(1, 99)}.blob.core.windows.net/backup?sv=2024-11-04&ss=b&srt=co&sp=rwdl&se=2027-01-01T00:00:00Z&st=2026-01-01T00:00:00Z&spr=https&sig=" + _b64(_bytes(r, 32)).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
     parts=lambda t: [t.split("sig=")[1]])

# ================================================================== code hosts
def _gh(prefix: str) -> Callable[[Random], str]:
    def f(r: Random) -> str:
        body = _s(r, ALNUM, 30)
        return prefix + body + _crc62(body)
    return f
# GitHub classic PAT: github.blog/2021-04-05-behind-githubs-new-authentication-token-formats (CRC32, base62)
_add("github_ghp", _gh("ghp_"))
# GitHub OAuth token: same page
_add("github_gho", _gh("gho_"))
# GitHub user-to-server: same page
_add("github_ghu", _gh("ghu_"))
# GitHub server-to-server, stateful: same page
_add("github_ghs", _gh("ghs_"))
# GitHub refresh token: same page; ghr_ + 76
def _ghr(r: Random) -> str:
    body = _s(r, ALNUM, 70)
    return "ghr_" + body + _crc62(body)
_add("github_ghr", _ghr)
# GitHub installation token, stateless, since 2026: github.blog/changelog/2026-04-24-...; ghs_APPID_JWT, ~520 characters
_add("github_ghs_jwt", lambda r: f"ghs_{r.randint(10000, 3999999)}_" + _jwt(r, {
    "iss": "github", "iat": 1780000000 + r.randint(0, 9999999), "exp": 1790000000, "jti": _s(r, HEX, 16),
    "sub": str(r.randint(10 ** 7, 10 ** 8))}, "RS256"), unsure=True)
# GitHub fine-grained PAT: docs.github.com "token formats"; 22 _ 59
_add("github_pat", lambda r: "github_pat_11" + _s(r, UPNUM, 7) + "0" + _s(r, ALNUM, 12) + "_" + _s(r, ALNUM, 59))
# GitLab classic: docs.gitlab.com/security/tokens (20 base64url)
_add("gitlab_glpat", lambda r: "glpat-" + _s(r, B64URL, 20))
# GitLab routable: handbook.gitlab.com/.../cells/routable_tokens; payload . [01.] len(base36,2) crc32(base36,7)
def _gl_routable(prefix: str, versioned: bool) -> Callable[[Random], str]:
    def f(r: Random) -> str:
        raw = f"o:1\nu:{_base(r.randint(10 ** 4, 10 ** 8), DIGITS + LOWER, 1)}".encode()
        payload = _b64u(raw + _bytes(r, 16) + b"\x10")
        head = prefix + payload + (".01." if versioned else ".") + _base(len(payload), DIGITS + LOWER, 2)
        return head + _base(zlib.crc32(head.encode()), DIGITS + LOWER, 7)
    return f
_add("gitlab_glpat_routable", _gl_routable("glpat-", False))
# GitLab routable with version field `.01.`: same page
_add("gitlab_glpat_routable_v1", _gl_routable("glpat-", True))
# GitLab deploy token: docs.gitlab.com/security/tokens
_add("gitlab_gldt", lambda r: "gldt-" + _s(r, B64URL, 20))
# GitLab runner: docs.gitlab.com/security/tokens; glrt- and glrt-t1_
_add("gitlab_glrt", lambda r: "glrt-" + r.choice(["", "t1_", "t2_", "t3_"]) + _s(r, B64URL, 20))
# GitLab runner, routable: same
_add("gitlab_glrt_routable", _gl_routable("glrt-t1_", True))
# GitLab CI job token: same; glcbt-<hex partition>_<20>
_add("gitlab_glcbt", lambda r: "glcbt-" + _s(r, HEX, 1, 3) + "_" + _s(r, B64URL, 20))
# GitLab pipeline trigger: same; glptt- + 40 hex
_add("gitlab_glptt", lambda r: "glptt-" + _s(r, HEX, 40))
# GitLab OAuth app secret: same; gloas- + 64 hex
_add("gitlab_gloas", lambda r: "gloas-" + _s(r, HEX, 64))
# Bitbucket app password: community.atlassian.com (ATBB + 24 + 8 hex, CRC)
_add("bitbucket_atbb", lambda r: "ATBB" + _s(r, ALNUM, 24) + _s(r, HEXU, 8))
# Atlassian tokens: 12 header + 171 + "=" + CRC32 in 8 upper hex (192 characters)
def _atl(header: str) -> Callable[[Random], str]:
    def f(r: Random) -> str:
        head = header + _s(r, B64URL, 171) + "="
        return head + f"{zlib.crc32(head.encode()):08X}"
    return f
# Bitbucket repository/project access token: community.atlassian.com staff answer 2025-08-25 + public scanners
_add("bitbucket_atctt", _atl("ATCTT3xFfGN0"))
# Atlassian account API token: support.atlassian.com; public scanners
_add("atlassian_atatt", _atl("ATATT3xFfGF0"))

# ================================================================== chat
# Slack bot: api.slack.com/concepts/token-types
_add("slack_xoxb", lambda r: f"xoxb-{r.randint(10**11, 10**13-1)}-{r.randint(10**12, 10**13-1)}-" + _s(r, ALNUM, 24))
# Slack user: same page
_add("slack_xoxp", lambda r: f"xoxp-{r.randint(10**11, 10**13-1)}-{r.randint(10**11, 10**13-1)}-{r.randint(10**12, 10**13-1)}-" + _s(r, HEX, 32))
# Slack app-level: same page
_add("slack_xapp", lambda r: "xapp-1-A" + _s(r, UPNUM, 10) + f"-{r.randint(10**12, 10**13-1)}-" + _s(r, HEX, 64))
# Slack rotating token: docs.slack.dev/authentication/using-token-rotation
_add("slack_xoxe_xoxp", lambda r: "xoxe.xoxp-1-" + _s(r, ALNUM, 166))
# Slack incoming webhook: api.slack.com/messaging/webhooks
_add("slack_webhook", lambda r: "https://hooks.slack.com/services/T" + _s(r, UPNUM, 8, 10) + "/B" + _s(r, UPNUM, 8, 10) + "/" + _s(r, ALNUM, 24),
     parts=lambda t: [t.rsplit("/", 1)[1]])
# Discord bot token: discord.com/developers; base64(user id) . 6 . 38
_add("discord_bot", lambda r: _b64u(str(r.randint(10 ** 18, 14 * 10 ** 17)).encode()) + "." + "G" + _s(r, B64URL, 5) + "." + _s(r, B64URL, 38))
# Discord webhook: discord.com/developers/docs/resources/webhook; 68 characters
_add("discord_webhook", lambda r: f"https://discord.com/api/webhooks/{r.randint(10**18, 14*10**17)}/" + _s(r, B64URL, 68),
     parts=lambda t: [t.rsplit("/", 1)[1]])
# Telegram bot: core.telegram.org/bots/api#authorizing-your-bot; id:AA + 33
_add("telegram_bot", lambda r: f"{r.randint(10**9, 8*10**9)}:AA" + r.choice("EFGH") + _s(r, B64URL, 32))
# Microsoft Teams webhook: learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors
_add("teams_webhook", lambda r: f"https://{r.choice(_NOUN)}.webhook.office.com/webhookb2/{_uuid(r)}@{_uuid(r)}/IncomingWebhook/{_s(r, HEX, 32)}/{_uuid(r)}",
     parts=lambda t: [re.search(r"IncomingWebhook/(\w+)", t).group(1)])

# ================================================================== mail / telephony
# Twilio: twilio.com/docs/iam/api-keys; AC + 32 hex with the auth token 32 hex
@_fmt("twilio_pair", parts=lambda t: [re.search(r"AUTH_TOKEN\W+([0-9a-f]{32})", t, re.I).group(1)])
def _twilio(r: Random) -> str:
    return f"TWILIO_ACCOUNT_SID=AC{_s(r, HEX, 32)}\nTWILIO_AUTH_TOKEN={_s(r, HEX, 32)}"
KV_FORMATS.add("twilio_pair")
# Twilio API key sid SK + 32 hex: same page
_add("twilio_sk", lambda r: "SK" + _s(r, HEX, 32))
# SendGrid: docs.sendgrid.com; SG. 22 . 43
_add("sendgrid", lambda r: "SG." + _s(r, B64URL, 22) + "." + _s(r, B64URL, 43))
# Mailgun private key (old): documentation.mailgun.com; key- + 32 hex
_add("mailgun_key", lambda r: "key-" + _s(r, HEX, 32))
# Mailgun (new): 32hex-8hex-8hex
_add("mailgun_new", lambda r: _s(r, HEX, 32) + "-" + _s(r, HEX, 8) + "-" + _s(r, HEX, 8))
# Mailchimp: mailchimp.com/developer; 32hex-usNN
_add("mailchimp", lambda r: _s(r, HEX, 32) + f"-us{r.randint(1, 22)}")
# Postmark server token: postmarkapp.com/developer; uuid, key-value
_kv("postmark_kv", ["POSTMARK_SERVER_TOKEN", "POSTMARK_API_TOKEN", "X-Postmark-Server-Token"], _uuid)
# Resend: resend.com/docs; re_ + 8 + _ + 24 base58
_add("resend", lambda r: "re_" + _s(r, BASE58, 8) + "_" + _s(r, BASE58, 24))
# Brevo: developers.brevo.com; xkeysib-64hex-16
_add("brevo", lambda r: "xkeysib-" + _s(r, HEX, 64) + "-" + _s(r, ALNUM, 16))

# ================================================================== payments / shops
# Stripe secret: docs.stripe.com/keys; sk_live_51 + account 14 + rest (107 characters)
_add("stripe_sk_live", lambda r: "sk_live_51" + _s(r, ALNUM, 14) + _s(r, ALNUM, 73) + "00" + _s(r, ALNUM, 8))
# Stripe, older: sk_live_ + 24
_add("stripe_sk_live_24", lambda r: "sk_live_" + _s(r, ALNUM, 24))
# Stripe restricted: same page
_add("stripe_rk_live", lambda r: "rk_live_51" + _s(r, ALNUM, 14) + _s(r, ALNUM, 73) + "00" + _s(r, ALNUM, 8))
# Stripe test key (still a credential): same page
_add("stripe_sk_test", lambda r: "sk_test_51" + _s(r, ALNUM, 14) + _s(r, ALNUM, 73) + "00" + _s(r, ALNUM, 8))
# Stripe webhook: docs.stripe.com/webhooks; whsec_ + 32
_add("stripe_whsec", lambda r: "whsec_" + _s(r, ALNUM, 32))
# Svix / standard webhooks: standardwebhooks.com; whsec_ + base64
_add("svix_whsec", lambda r: "whsec_" + _b64(_bytes(r, 24)))
# Square access token: developer.squareup.com; EAAA + 60
_add("square_eaaa", lambda r: "EAAA" + _s(r, B64URL, 60))
# Square OAuth secret: sq0csp- + 43
_add("square_csp", lambda r: "sq0csp-" + _s(r, B64URL, 43))
# Braintree access token: developer.paypal.com/braintree; access_token$production$16$32hex
_add("braintree", lambda r: "access_token$production$" + _s(r, LOWNUM, 16) + "$" + _s(r, HEX, 32))
# PayPal client secret: developer.paypal.com; 80 characters starting with E, key-value
_kv("paypal_kv", ["PAYPAL_CLIENT_SECRET", "PAYPAL_SECRET"], lambda r: "E" + _s(r, B64URL, 79))
# Shopify admin token: shopify.dev; shpat_ + 32 hex
_add("shopify_shpat", lambda r: "shpat_" + _s(r, HEX, 32))
# Shopify shared secret
_add("shopify_shpss", lambda r: "shpss_" + _s(r, HEX, 32))

# ================================================================== cloud hosts
def _cf(prefix: str) -> Callable[[Random], str]:
    def f(r: Random) -> str:
        body = _s(r, ALNUM, 40)
        return prefix + body + f"{zlib.crc32(body.encode()):08x}"   # checksum is 8 hex; its algorithm is not public
    return f
# Cloudflare user token: developers.cloudflare.com/fundamentals/api/get-started/token-formats
_add("cloudflare_cfut", _cf("cfut_"))
# Cloudflare account token: same page
_add("cloudflare_cfat", _cf("cfat_"))
# Cloudflare global key, new: same page
_add("cloudflare_cfk", _cf("cfk_"))
# Cloudflare Origin CA key: developers.cloudflare.com/fundamentals/api/get-started/ca-keys
_add("cloudflare_origin_ca", lambda r: "v1.0-" + _s(r, HEX, 24) + "-" + _s(r, HEX, 146))
# Cloudflare global key, old: 37 hex in a key-value
_kv("cloudflare_global_kv", ["CLOUDFLARE_API_KEY", "CF_API_KEY", "X-Auth-Key"], lambda r: _s(r, HEX, 37))
# Cloudflare token, old: 40 base64url in a key-value
_kv("cloudflare_token_kv", ["CLOUDFLARE_API_TOKEN", "CF_API_TOKEN"], lambda r: _s(r, B64URL, 40))
# DigitalOcean PAT: docs.digitalocean.com/reference/api; dop_v1_ + 64 hex
_add("digitalocean_dop", lambda r: "dop_v1_" + _s(r, HEX, 64))
# DigitalOcean OAuth
_add("digitalocean_doo", lambda r: "doo_v1_" + _s(r, HEX, 64))
# Linode: techdocs.akamai.com/linode-api; 64 hex, key-value
_kv("linode_kv", ["LINODE_TOKEN", "LINODE_CLI_TOKEN", "LINODE_API_TOKEN"], lambda r: _s(r, HEX, 64))
# Vultr: vultr.com/api; 36 upper alphanumerics, key-value
_kv("vultr_kv", ["VULTR_API_KEY"], lambda r: _s(r, UPNUM, 36))
# Hetzner Cloud: docs.hetzner.cloud; 64 alphanumerics, key-value
_kv("hetzner_kv", ["HCLOUD_TOKEN", "HETZNER_API_TOKEN"], lambda r: _s(r, ALNUM, 64))
# Fly.io: fly.io/docs/security/tokens; FlyV1 fm2_<base64>[,fm2_<base64>]
_add("fly_flyv1", lambda r: "FlyV1 fm2_lJPE" + _b64(_bytes(r, 150)) + ",fm2_lJPE" + _b64(_bytes(r, 120)),
     parts=lambda t: [p.split("fm2_")[1] for p in t.split(",")])
# Fly.io macaroon alone
_add("fly_fm2", lambda r: "fm2_lJPE" + _b64(_bytes(r, 180)))
# Fly.io deploy token (old)
_add("fly_fo1", lambda r: "fo1_" + _s(r, B64URL, 43))
# Heroku: devcenter.heroku.com; HRKU-AA + 58 (42 + "_____w" + 10)
_add("heroku_hrku", lambda r: "HRKU-AA" + _s(r, B64URL, 42) + "_____w" + _s(r, B64URL, 10))
# Heroku, old: uuid in a key-value
_kv("heroku_kv", ["HEROKU_API_KEY"], _uuid)
# Render: render.com/docs/api; rnd_ + 28..32
_add("render_rnd", lambda r: "rnd_" + _s(r, ALNUM, r.choice([28, 32])), unsure=True)
# Railway: docs.railway.com/reference/public-api; uuid, key-value
_kv("railway_kv", ["RAILWAY_TOKEN", "RAILWAY_API_TOKEN"], _uuid)
# Vercel blob: vercel.com/docs/vercel-blob; vercel_blob_rw_<store 16>_<30>
_add("vercel_blob_rw", lambda r: "vercel_blob_rw_" + _s(r, ALNUM, 16) + "_" + _s(r, ALNUM, 30))
# Vercel personal token, 2026: vercel.com/docs (prefix vcp_); length 56 seen
_add("vercel_vcp", lambda r: "vcp_" + _s(r, ALNUM, 56), unsure=True)
# Vercel AI gateway key: vercel.com/docs/ai-gateway (prefix vck_)
_add("vercel_vck", lambda r: "vck_" + _s(r, ALNUM, 56), unsure=True)
# Vercel, old: 24 alphanumerics in a key-value
_kv("vercel_kv", ["VERCEL_TOKEN"], lambda r: _s(r, ALNUM, 24))
# Netlify: docs.netlify.com; nfp_ + 36
_add("netlify_nfp", lambda r: "nfp_" + _s(r, ALNUM, 36))
# Tailscale: tailscale.com/kb/1277/key-prefixes
_add("tailscale_auth", lambda r: "tskey-auth-k" + _s(r, ALNUM, 10) + "CNTRL-" + _s(r, ALNUM, 32))
# CircleCI: circleci.com/changelog/new-format-for-api-access-tokens
_add("circleci_pat", lambda r: "CCIPAT_" + _s(r, BASE58, 22) + "_" + _s(r, HEX, 40))
# Buildkite: buildkite.com/docs/apis/managing-api-tokens
_add("buildkite_bkua", lambda r: "bkua_" + _s(r, HEX, 40))

# ================================================================== data
# Supabase personal: supabase CLI AccessTokenPattern; sbp_ + 40 hex
_add("supabase_sbp", lambda r: "sbp_" + r.choice(["", "", "v0_", "oauth_"]) + _s(r, HEX, 40))
# Supabase secret key: supabase.com/docs/guides/api/api-keys (prefix); 22 _ 8 as in the CLI's local keys
_add("supabase_sb_secret", lambda r: "sb_secret_" + _s(r, B64URL, 22) + "_" + _s(r, B64URL, 8), unsure=True)
# Supabase service_role JWT: same page
_add("supabase_service_role", lambda r: _jwt(r, {"iss": "supabase", "ref": _s(r, LOWER, 20), "role": "service_role", "iat": 1750000000 + r.randint(0, 9999999), "exp": 2065000000}))
# Neon API key: neon.com/docs/manage/api-keys; napi_ + 64 lower alphanumerics
_add("neon_napi", lambda r: "napi_" + _s(r, LOWNUM, 64))
# Neon role password in a URI: npg_ + 12
_add("neon_uri", lambda r: f"postgresql://neondb_owner:npg_{_s(r, ALNUM, 12)}@ep-{r.choice(['cool', 'dark', 'plain'])}-{r.choice(_NOUN)}-{_s(r, LOWNUM, 8)}-pooler.eu-central-1.aws.neon.tech/neondb?sslmode=require", parts=_url_parts)
# PlanetScale service token: planetscale.com/docs; pscale_tkn_ + 43
_add("planetscale_tkn", lambda r: "pscale_tkn_" + _s(r, B64URL, r.choice([32, 43])))
# PlanetScale OAuth
_add("planetscale_oauth", lambda r: "pscale_oauth_" + _s(r, B64URL, 43))
# PlanetScale password
_add("planetscale_pw", lambda r: "pscale_pw_" + _s(r, ALNUM, 43))
# MongoDB Atlas URI: mongodb.com/docs/manual/reference/connection-string
_add("mongodb_atlas_uri", lambda r: f"mongodb+srv://{_user(r)}:{password(r, True)}@cluster0.{_s(r, LOWNUM, 7)}.mongodb.net/{r.choice(_NOUN)}?retryWrites=true&w=majority", parts=_url_parts)
# MongoDB Atlas API key pair: mongodb.com/docs/atlas/configure-api-access; 8 lower letters + uuid
@_fmt("mongodb_atlas_api", parts=lambda t: [re.search(r"PRIVATE_KEY=(\S+)", t).group(1)])
def _atlas(r: Random) -> str:
    return f"MONGODB_ATLAS_PUBLIC_KEY={_s(r, LOWER, 8)}\nMONGODB_ATLAS_PRIVATE_KEY={_uuid(r)}"
KV_FORMATS.add("mongodb_atlas_api")
# Redis URI: redis.io/docs (redis://default:pw@host)
_add("redis_uri", lambda r: f"{r.choice(['redis', 'rediss'])}://{r.choice(['', 'default'])}:{password(r, True)}@{_host(r)}:6379/0", parts=_url_parts)
# Postgres URI: postgresql.org/docs/current/libpq-connect.html
_add("postgres_uri", lambda r: f"{r.choice(['postgres', 'postgresql', 'postgresql+asyncpg'])}://{_user(r)}:{password(r, True)}@{_host(r)}:5432/{r.choice(_NOUN)}", parts=_url_parts)
# MySQL URI: dev.mysql.com connector URI
_add("mysql_uri", lambda r: f"{r.choice(['mysql', 'mysql+pymysql'])}://{_user(r)}:{password(r, True)}@{_host(r)}:3306/{r.choice(_NOUN)}", parts=_url_parts)
# AMQP URI: rabbitmq.com/docs/uri-spec
_add("amqp_uri", lambda r: f"{r.choice(['amqp', 'amqps'])}://{_user(r)}:{password(r, True)}@{_host(r)}:5672/%2F", parts=_url_parts)
# Confluent Cloud: docs.confluent.io; key 16 upper, secret 64 base64 (newer secrets start with cflt)
@_fmt("confluent_pair", parts=lambda t: [re.search(r"SECRET=(\S+)", t).group(1)])
def _confluent(r: Random) -> str:
    return f"CONFLUENT_API_KEY={_s(r, UPNUM, 16)}\nCONFLUENT_API_SECRET={r.choice(['', 'cflt'])}{_s(r, B64, 60)}"
KV_FORMATS.add("confluent_pair")
# Databricks: docs.databricks.com; dapi + 32 hex [-2]
_add("databricks_dapi", lambda r: "dapi" + _s(r, HEX, 32) + r.choice(["", "", "-2", "-3"]))
# Snowflake password: docs.snowflake.com connection parameters, key-value
_kv("snowflake_kv", ["SNOWFLAKE_PASSWORD", "SNOWSQL_PWD"], lambda r: password(r, True))
# Upstash / Turso style JWT: docs.turso.tech (EdDSA)
_kv("turso_kv", ["TURSO_AUTH_TOKEN"], lambda r: _jwt(r, {"a": "rw", "iat": 1780000000 + r.randint(0, 10 ** 7), "id": _uuid(r)}, "EdDSA"))

# ================================================================== registries
# npm: github.blog/changelog/2021-09-23-npm-has-a-new-access-token-format; 30 + CRC32 base62
_add("npm", _gh("npm_"))
# PyPI: pypi.org/help/#apitoken; pypi- + base64url macaroon (location "pypi.org")
def _pypi(r: Random) -> str:
    ident, caveat = _uuid(r).encode(), b'[3,"' + _uuid(r).encode() + b'"]'
    raw = b"\x02\x01\x08pypi.org\x02" + bytes([len(ident)]) + ident + b"\x00\x02" + bytes([len(caveat)]) + caveat + b"\x00\x00\x06\x20" + _bytes(r, 32)
    return "pypi-" + _b64u(raw)
_add("pypi", _pypi)
# RubyGems: guides.rubygems.org; rubygems_ + 48 hex
_add("rubygems", lambda r: "rubygems_" + _s(r, HEX, 48))
# crates.io: rust-lang/crates.io source, cio + 32
_add("crates_io", lambda r: "cio" + _s(r, ALNUM, 32))
# Docker Hub PAT: docs.docker.com; dckr_pat_ + 27
_add("docker_pat", lambda r: "dckr_pat_" + _s(r, B64URL, 27))
# Docker Hub organisation token: docs.docker.com/enterprise/security/access-tokens; 32 by public scanners
_add("docker_oat", lambda r: "dckr_oat_" + _s(r, B64URL, 32))
# NuGet: learn.microsoft.com/nuget; oy2 + 43 base32
_add("nuget", lambda r: "oy2" + _s(r, LOWER + "234567", 43))
# JFrog API key: jfrog.com/help; AKCp + 69
_add("jfrog_akcp", lambda r: "AKCp" + _s(r, DIGITS, 1) + _s(r, BASE58, 68))
# JFrog reference token: jfrog.com/help; base64("reftkn:01:<expiry>:<27>"), 64 characters
_add("jfrog_reftkn", lambda r: _b64(f"reftkn:01:{1780000000 + r.randint(0, 99999999)}:{_s(r, ALNUM, 27)}".encode()))
# Artifactory identity/access token: jfrog.com/help, JWT with issuer jfac@
_add("artifactory_jwt", lambda r: _jwt(r, {"sub": f"jfac@{_s(r, LOWNUM, 26)}/users/{_user(r)}", "scp": "applied-permissions/user", "aud": "*@*", "iss": "jfac@" + _s(r, LOWNUM, 26), "iat": 1780000000, "jti": _uuid(r)}, "RS256"))

# ================================================================== infra secrets
# Terraform Cloud: developer.hashicorp.com/terraform/cloud-docs; 14 .atlasv1. 67
_add("terraform_atlasv1", lambda r: _s(r, ALNUM, 14) + ".atlasv1." + _s(r, ALNUM, 67))
# Vault service token: developer.hashicorp.com/vault/docs/concepts/tokens; protobuf with the inner hvs.
_add("vault_hvs", lambda r: "hvs." + _b64u(b"\x08\x01\x12\x20" + _bytes(r, 32) + b"\x1a\x1e\x0a\x1chvs." + _s(r, ALNUM, 24).encode()))
# Vault short service token: same page; hvs. + 24
_add("vault_hvs_short", lambda r: "hvs." + _s(r, ALNUM, 24))
# Vault batch token: same page; hvb.AAAAAQ...
_add("vault_hvb", lambda r: "hvb.AAAAAQ" + _s(r, B64URL, 140, 180))
# Doppler personal: docs.doppler.com/reference/auth-token-formats
_add("doppler_pt", lambda r: "dp.pt." + _s(r, ALNUM, 40, 44))
# Doppler service token: same page
_add("doppler_st", lambda r: "dp.st." + r.choice(["", "prd.", "dev_backend."]) + _s(r, ALNUM, 40, 44))
# 1Password service account: developer.1password.com/docs/service-accounts; ops_ + base64 JSON
def _op(r: Random) -> str:
    js = {"signInAddress": "my.1password.com", "userAuth": {"method": "SRPg-4096", "alg": "PBES2g-HS256", "iterations": 650000, "salt": _b64u(_bytes(r, 16))},
          "email": _s(r, LOWNUM, 13) + "@1passwordserviceaccounts.com", "srpX": _s(r, HEX, 64),
          "muk": {"alg": "A256GCM", "ext": True, "k": _b64u(_bytes(r, 32)), "key_ops": ["decrypt", "encrypt"], "kty": "oct", "kid": "mp"},
          "secretKey": f"A3-{_s(r, UPNUM, 6)}-{_s(r, UPNUM, 6)}-{_s(r, UPNUM, 5)}-{_s(r, UPNUM, 5)}-{_s(r, UPNUM, 5)}-{_s(r, UPNUM, 5)}",
          "throttleSecret": {"seed": _s(r, HEX, 64), "uuid": _s(r, UPNUM, 26)}, "deviceUuid": _s(r, LOWNUM, 26)}
    return "ops_" + _b64u(json.dumps(js, separators=(",", ":")).encode())
_add("onepassword_ops", _op)
# 1Password Secret Key: support.1password.com/secret-key
_add("onepassword_secret_key", lambda r: f"A3-{_s(r, UPNUM, 6)}-{_s(r, UPNUM, 6)}-{_s(r, UPNUM, 5)}-{_s(r, UPNUM, 5)}-{_s(r, UPNUM, 5)}-{_s(r, UPNUM, 5)}")
# Infisical service token: infisical.com/docs; st.<id>.<hex>.<hex>
_add("infisical_st", lambda r: "st." + r.choice([_uuid(r), _s(r, HEX, 24)]) + "." + _s(r, HEX, 32) + "." + _s(r, HEX, 32), unsure=True)
# Pulumi: pulumi.com/docs; pul- + 40 hex
_add("pulumi", lambda r: "pul-" + _s(r, HEX, 40))
# Grafana service account: grafana.com/docs; glsa_ 32 _ CRC32 (8 hex, little endian of "glsa_"+secret)
def _glsa(r: Random) -> str:
    body = "glsa_" + _s(r, ALNUM, 32)
    return body + "_" + struct.pack("<I", zlib.crc32(body.encode())).hex()
_add("grafana_glsa", _glsa)
# Grafana Cloud: grafana.com/docs/grafana-cloud; glc_ + base64 JSON
_add("grafana_glc", lambda r: "glc_" + _b64(json.dumps({"o": str(r.randint(10 ** 5, 10 ** 7)), "n": f"{r.choice(_NOUN)}-token", "k": _s(r, ALNUM, 24), "m": {"r": "prod-eu-west-2"}}, separators=(",", ":")).encode()))
# Datadog API key: docs.datadoghq.com; 32 hex, key-value
_kv("datadog_kv", ["DD_API_KEY", "DATADOG_API_KEY"], lambda r: _s(r, HEX, 32))
# Datadog application key: 40 hex
_kv("datadog_app_kv", ["DD_APP_KEY", "DATADOG_APP_KEY"], lambda r: _s(r, HEX, 40))
# New Relic user key: docs.newrelic.com; NRAK- + 27 upper alphanumerics
_add("newrelic_nrak", lambda r: "NRAK-" + _s(r, UPNUM, 27))
# Dynatrace: docs.dynatrace.com token format; dt0c01.24.64 (base32)
_add("dynatrace", lambda r: "dt0c01." + _s(r, B32, 24) + "." + _s(r, B32, 64))
# Sentry org token: develop.sentry.dev RFC 0091; sntrys_ base64(JSON) _ 43
def _sntrys(r: Random) -> str:
    js = {"iat": 1780000000 + r.randint(0, 999999) + 0.5, "url": "https://sentry.io", "region_url": r.choice(["https://us.sentry.io", "https://de.sentry.io"]), "org": r.choice(_NOUN)}
    return "sntrys_" + _b64(json.dumps(js, separators=(",", ":")).encode()) + "_" + _s(r, B64, 43)
_add("sentry_sntrys", _sntrys)
# Sentry user token: docs.sentry.io; sntryu_ + 64 hex
_add("sentry_sntryu", lambda r: "sntryu_" + _s(r, HEX, 64))
# PostHog project key: posthog.com/docs (public by design, still in many lists); phc_ + 43
_add("posthog_phc", lambda r: "phc_" + _s(r, BASE57, 43))
# PostHog personal key: phx_ + 48
_add("posthog_phx", lambda r: "phx_" + _s(r, BASE57, r.choice([43, 47, 48])))
# Snyk classic: docs.snyk.io; uuid, key-value
_kv("snyk_kv", ["SNYK_TOKEN"], _uuid)
# Snyk PAT: docs.snyk.io; snyk_uat.<8 hex>.<base64 JSON>.<signature>
_add("snyk_uat", lambda r: "snyk_uat." + _s(r, HEX, 8) + "." + _b64u(json.dumps({"e": 1790000000 + r.randint(0, 9999999), "h": "snyk.io", "j": _s(r, ALNUM, 22), "s": _s(r, B64URL, 22), "tid": "AAAAAAAAAAAAAAAAAAAAAA"}, separators=(",", ":")).encode()) + "." + _s(r, B64URL, 86), unsure=True)
# SonarQube project: docs.sonarsource.com; sqp_ + 40 hex
_add("sonar_sqp", lambda r: "sqp_" + _s(r, HEX, 40))
# SonarQube user
_add("sonar_squ", lambda r: "squ_" + _s(r, HEX, 40))

# ================================================================== work tools
# Linear: linear.app/developers; lin_api_ + 40
_add("linear", lambda r: "lin_api_" + _s(r, ALNUM, 40))
# Notion: developers.notion.com; ntn_ + 11 digits + 35
_add("notion_ntn", lambda r: "ntn_" + _s(r, DIGITS, 11) + _s(r, ALNUM, 35))
# Notion old: secret_ + 43
_add("notion_secret", lambda r: "secret_" + _s(r, ALNUM, 43))
# Asana PAT: developers.asana.com; 2/<gid>/<gid>:32hex (1/<gid>:32hex before)
_add("asana", lambda r: r.choice([f"2/{r.randint(10**15, 10**16-1)}/{r.randint(10**15, 10**16-1)}:", f"1/{r.randint(10**15, 10**16-1)}:"]) + _s(r, HEX, 32))
# Airtable: airtable.com/developers; pat14.64hex
_add("airtable", lambda r: "pat" + _s(r, ALNUM, 14) + "." + _s(r, HEX, 64))
# Figma: figma.com/developers; figd_ + 40
_add("figma", lambda r: "figd_" + _s(r, B64URL, 40))
# Dropbox short-lived: dropbox.com/developers; sl. / sl.u. + 130+
_add("dropbox_sl", lambda r: r.choice(["sl.B", "sl.u.AF"]) + _s(r, B64URL, 130, 160), unsure=True)
# Okta: developer.okta.com; 00 + 40 in "Authorization: SSWS" or key-value
@_fmt("okta_ssws", parts=lambda t: [re.search(r"(00[\w-]{40})", t).group(1)])
def _okta(r: Random) -> str:
    tok = "00" + _s(r, B64URL, 40)
    return r.choice([f"Authorization: SSWS {tok}", f"OKTA_API_TOKEN={tok}", f'okta_api_token = "{tok}"'])
KV_FORMATS.add("okta_ssws")
# Auth0 client secret: auth0.com/docs; 64 base64url, key-value
_kv("auth0_kv", ["AUTH0_CLIENT_SECRET"], lambda r: _s(r, B64URL, 64))
# HubSpot private app: developers.hubspot.com; pat-na1- + uuid
_add("hubspot_pat", lambda r: "pat-" + r.choice(["na1", "na2", "eu1"]) + "-" + _uuid(r))
# Intercom: developers.intercom.com; base64("tok:<uuid-like>:1:0") -> dG9rO...
_add("intercom", lambda r: _b64(f"tok:{_s(r, HEX, 8)}_{_s(r, HEX, 4)}_{_s(r, HEX, 4)}_{_s(r, HEX, 4)}_{_s(r, HEX, 12)}:1:0".encode()))
# Algolia admin key: algolia.com/doc; 32 hex, key-value
_kv("algolia_kv", ["ALGOLIA_ADMIN_KEY", "ALGOLIA_API_KEY", "ALGOLIA_WRITE_API_KEY"], lambda r: _s(r, HEX, 32))
# Mapbox secret: docs.mapbox.com; sk.<base64 {"u","a"}>.<22>
_add("mapbox_sk", lambda r: "sk." + _b64u(json.dumps({"u": r.choice(_FIRST), "a": "c" + _s(r, LOWNUM, 24)}, separators=(",", ":")).encode()) + "." + _s(r, B64URL, 22))
# Contentful: contentful.com/developers; CFPAT- + 43
_add("contentful_cfpat", lambda r: "CFPAT-" + _s(r, B64URL, 43))
# Postman: learning.postman.com; PMAK-24hex-34hex
_add("postman_pmak", lambda r: "PMAK-" + _s(r, HEX, 24) + "-" + _s(r, HEX, 34))
# Apify: docs.apify.com; apify_api_ + 36
_add("apify", lambda r: "apify_api_" + _s(r, ALNUM, 36))
# Facebook / Meta access token: developers.facebook.com; EAA + long
_add("facebook_eaa", lambda r: "EAA" + _s(r, ALNUM, 150, 190))
# Twitter/X bearer: docs.x.com; 22 x A + ... %3D
_add("x_bearer", lambda r: "AAAAAAAAAAAAAAAAAAAAA" + _s(r, ALNUM, 10) + "AAAAAA" + _s(r, ALNUM, 20) + "%3D" + _s(r, ALNUM, 50))
# OpenShift: docs.openshift.com; sha256~ + 43
_add("openshift_sha256", lambda r: "sha256~" + _s(r, B64URL, 43))

# ================================================================== keys
_BECH = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"


def _bech32(hrp: str, data: bytes) -> str:
    bits = "".join(f"{b:08b}" for b in data)
    bits += "0" * (-len(bits) % 5)
    vals = [int(bits[i:i + 5], 2) for i in range(0, len(bits), 5)]

    def polymod(v):
        chk = 1
        for x in v:
            top = chk >> 25
            chk = (chk & 0x1FFFFFF) << 5 ^ x
            for i, g in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
                chk ^= g if (top >> i) & 1 else 0
        return chk
    exp = [ord(c) >> 5 for c in hrp] + [0] + [ord(c) & 31 for c in hrp]
    pm = polymod(exp + vals + [0] * 6) ^ 1
    return hrp + "1" + "".join(_BECH[v] for v in vals + [(pm >> 5 * (5 - i)) & 31 for i in range(6)])


# age: age-encryption.org/v1; bech32 with checksum, upper case
_add("age_secret_key", lambda r: _bech32("age-secret-key-", _bytes(r, 32)).upper())


def _der(tag: int, body: bytes) -> bytes:
    n = len(body)
    ln = bytes([n]) if n < 128 else (lambda b: bytes([0x80 | len(b)]) + b)(n.to_bytes((n.bit_length() + 7) // 8, "big"))
    return bytes([tag]) + ln + body


def _int(r: Random, nbytes: int) -> bytes:
    b = bytearray(_bytes(r, nbytes))
    b[0] |= 0x80
    b[-1] |= 1
    return _der(2, b"\0" + bytes(b))


def _pem(label: str, body: bytes, width: int = 64, head: str = "", tail: str = "") -> str:
    t = _b64(body)
    lines = "\n".join(t[i:i + width] for i in range(0, len(t), width))
    return f"-----BEGIN {label}-----\n{head}{lines}\n{tail}-----END {label}-----"


def _rsa_der(r: Random) -> bytes:
    return _der(0x30, _der(2, b"\0") + _int(r, 256) + _der(2, b"\1\0\1") + _int(r, 256)
                + b"".join(_int(r, 128) for _ in range(5)))


def _pem_parts(text: str) -> list[str]:
    """Lines of key material (base64 or hex lines of 40+ characters)."""
    return [ln for ln in text.replace("\\n", "\n").splitlines() if re.fullmatch(r"[A-Za-z0-9+/=]{40,}", ln)]


def _pkcs8(r: Random) -> str:
    alg = _der(0x30, bytes.fromhex("06092a864886f70d0101010500"))
    return _pem("PRIVATE KEY", _der(0x30, _der(2, b"\0") + alg + _der(4, _rsa_der(r))))


# PKCS#1 PEM: RFC 8017, RFC 7468
_add("pem_rsa", lambda r: _pem("RSA PRIVATE KEY", _rsa_der(r)), parts=_pem_parts)
# PKCS#8 PEM: RFC 5958
_add("pem_pkcs8", _pkcs8, parts=_pem_parts)
# SEC1 EC PEM: RFC 5915 (prime256v1)
_add("pem_ec", lambda r: _pem("EC PRIVATE KEY", _der(0x30, _der(2, b"\1") + _der(4, _bytes(r, 32)) + _der(0xA0, bytes.fromhex("06082a8648ce3d030107")) + _der(0xA1, _der(3, b"\0\4" + _bytes(r, 64))))), parts=_pem_parts)
# Encrypted PKCS#8: RFC 5958
_add("pem_encrypted", lambda r: _pem("ENCRYPTED PRIVATE KEY", _der(0x30, _der(0x30, bytes.fromhex("06092a864886f70d01050d") + _bytes(r, 60)) + _der(4, _bytes(r, 1232)))), parts=_pem_parts)


def _ssh_str(b: bytes) -> bytes:
    return struct.pack(">I", len(b)) + b


# OpenSSH: openssh PROTOCOL.key, ed25519, 70 columns
@_fmt("pem_openssh", parts=_pem_parts)
def _openssh(r: Random) -> str:
    pub, sec, chk = _bytes(r, 32), _bytes(r, 32), _bytes(r, 4)
    pubblob = _ssh_str(b"ssh-ed25519") + _ssh_str(pub)
    priv = chk + chk + _ssh_str(b"ssh-ed25519") + _ssh_str(pub) + _ssh_str(sec + pub) + _ssh_str(f"{_user(r)}@{_host(r)}".encode())
    priv += bytes(range(1, 1 + (-len(priv) % 8)))
    body = b"openssh-key-v1\0" + _ssh_str(b"none") + _ssh_str(b"none") + _ssh_str(b"") + struct.pack(">I", 1) + _ssh_str(pubblob) + _ssh_str(priv)
    return _pem("OPENSSH PRIVATE KEY", body, 70)


def _crc24(data: bytes) -> bytes:
    crc = 0xB704CE
    for b in data:
        crc ^= b << 16
        for _ in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1864CFB
    return (crc & 0xFFFFFF).to_bytes(3, "big")


# PGP: RFC 4880 / 9580 ASCII armor with CRC24
@_fmt("pgp_private", parts=_pem_parts)
def _pgp(r: Random) -> str:
    body = b"\x94\x58\x04" + struct.pack(">I", 1780000000 + r.randint(0, 10 ** 6)) + b"\x16\x09\x2b\x06\x01\x04\x01\xda\x47\x0f\x01\x01\x07\x40" + _bytes(r, 330)
    return _pem("PGP PRIVATE KEY BLOCK", body, 64, "\n", "=" + _b64(_crc24(body)) + "\n")


# PuTTY: tartarus.org/~simon/putty, appendix C (PPK v3)
@_fmt("putty_ppk", parts=lambda t: re.search(r"Private-Lines: \d+\n(.*?)\nPrivate-MAC", t, re.S).group(1).splitlines())
def _ppk(r: Random) -> str:
    pub = _b64(_ssh_str(b"ssh-ed25519") + _ssh_str(_bytes(r, 32)))
    pl = [pub[i:i + 64] for i in range(0, len(pub), 64)]
    return (f"PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: {_user(r)}@{_host(r)}\nPublic-Lines: {len(pl)}\n" + "\n".join(pl)
            + "\nPrivate-Lines: 1\n" + _b64(_ssh_str(_bytes(r, 32))) + "\nPrivate-MAC: " + _s(r, HEX, 64))


# JWT: RFC 7519, HS256 (valid signature over a random key)
_add("jwt_hs256", lambda r: _jwt(r, {"sub": str(r.randint(1, 10 ** 9)), "email": f"{r.choice(_FIRST)}@corp.io", "iat": 1780000000 + r.randint(0, 10 ** 6), "exp": 1790000000}))
# WireGuard: wireguard.com/quickstart; 32 clamped bytes, base64, in PrivateKey =
@_fmt("wireguard", parts=lambda t: [re.search(r"PrivateKey = (\S+)", t).group(1)])
def _wg(r: Random) -> str:
    k = bytearray(_bytes(r, 32))
    k[0] &= 248
    k[31] = k[31] & 127 | 64
    return f"[Interface]\nAddress = 10.8.0.{r.randint(2, 254)}/24\nPrivateKey = {_b64(bytes(k))}\n"
KV_FORMATS.add("wireguard")
# Kubernetes service-account token: kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin
_add("kubernetes_sa_jwt", lambda r: _jwt(r, {"aud": ["https://kubernetes.default.svc"], "iss": "https://kubernetes.default.svc", "exp": 1790000000, "iat": 1780000000,
     "kubernetes.io": {"namespace": r.choice(_NOUN), "serviceaccount": {"name": "deployer", "uid": _uuid(r)}}, "sub": "system:serviceaccount:default:deployer"}, "RS256", {"kid": _s(r, B64URL, 43)}))
# Kubernetes bootstrap token: kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens; 6.16
_kv("kubernetes_bootstrap_kv", ["token", "KUBEADM_TOKEN"], lambda r: _s(r, LOWNUM, 6) + "." + _s(r, LOWNUM, 16))
# Ethereum private key: ethereum.org; 32 bytes hex after "private key"
@_fmt("ethereum_private_key", parts=lambda t: [re.search(r"(0x[0-9a-f]{64})", t).group(1)])
def _eth(r: Random) -> str:
    return r.choice(["private key: ", "PRIVATE_KEY=", "the wallet's private key is ", "privateKey: "]) + "0x" + _s(r, HEX, 64)
KV_FORMATS.add("ethereum_private_key")

# GCP service account: cloud.google.com/iam/docs/keys-create-delete
@_fmt("gcp_service_account_json", parts=lambda t: _pem_parts(json.loads(t)["private_key"]))
def _gcp(r: Random) -> str:
    proj = f"{r.choice(_NOUN)}-{r.randint(100000, 999999)}"
    mail = f"{r.choice(_NOUN)}@{proj}.iam.gserviceaccount.com"
    return json.dumps({"type": "service_account", "project_id": proj, "private_key_id": _s(r, HEX, 40), "private_key": _pkcs8(r) + "\n",
                       "client_email": mail, "client_id": _s(r, DIGITS[1:], 21), "auth_uri": "https://accounts.google.com/o/oauth2/auth",
                       "token_uri": "https://oauth2.googleapis.com/token", "universe_domain": "googleapis.com"}, indent=2)


# BIP-39: github.com/bitcoin/bips/blob/master/bip-0039/english.txt (a part of the list; checksum word not computed)
BIP39_WORDS = """abandon ability able about above absent absorb abstract absurd abuse access accident account accuse achieve acid
acoustic acquire across act action actor actress actual adapt add addict address adjust admit adult advance advice aerobic affair
afford afraid again age agent agree ahead aim air airport aisle alarm album alcohol alert alien all alley allow almost alone alpha
already also alter always amateur amazing among amount amused analyst anchor ancient anger angle angry animal ankle announce annual
bacon badge bag balance balcony ball bamboo banana banner bar barely bargain barrel base basic basket battle beach bean beauty
cabbage cabin cable cactus cage cake call calm camera camp canal cancel candy cannon canoe canvas canyon carbon cargo carpet
damage dance danger daring dash daughter dawn day deal debate debris decade december decide decline decorate eagle early earn earth
easily east easy echo ecology economy edge fabric face faculty fade faint faith fall false fame family gadget gain galaxy gallery
game gap garage garbage garden garlic habit hair half hammer hamster hand happy harbor ice icon idea identify idle ignore
jacket jaguar jar jazz kangaroo keen keep ketchup label labor ladder lady machine mad magic magnet naive name napkin narrow
oak obey object oblige pact paddle page pair quality quantum quarter rabbit raccoon race rack sad saddle sadness safe
table tackle tag tail ugly umbrella unable vacant vacuum vague wage wagon wait yard year yellow zebra zero zone zoo""".split()


def _seed(n: int) -> Callable[[Random], str]:
    def f(r: Random) -> str:
        words = " ".join(r.choice(BIP39_WORDS) for _ in range(n))
        return r.choice(["seed phrase: {}", "my seed phrase is {}", 'MNEMONIC="{}"', "recovery phrase: {}", 'mnemonic: "{}"', "seed phrase:\n{}"]).format(words)
    return f


def _seed_parts(t: str) -> list[str]:
    m = re.search(r'(?:: "?|is |="|:\n)((?:[a-z]+ ){11,}[a-z]+)"?$', t)
    return [m.group(1)]


# 12 words
_add("bip39_12", _seed(12), parts=_seed_parts)
# 24 words
_add("bip39_24", _seed(24), parts=_seed_parts)
KV_FORMATS |= {"bip39_12", "bip39_24"}


# Shape known, but the length (or the checksum's algorithm) rests on one public tool or on samples only
UNSURE |= {"anthropic_ort01", "docker_oat", "confluent_pair", "x_bearer", "posthog_phx", "cloudflare_cfut", "cloudflare_cfat",
           "cloudflare_cfk", "openai_sk_admin", "google_aq", "neon_napi", "tailscale_auth", "bitbucket_atbb", "voyage"}


# ================================================================== FORMS
def _form(name: str):
    def deco(f):
        assert name not in FORMS, name
        FORMS[name] = f
        return f
    return deco


def _any_token(r: Random) -> str:
    """A bearer-like token: a known format, or opaque."""
    return r.choice([lambda: FORMATS["jwt_hs256"](r), lambda: FORMATS["github_ghp"](r), lambda: _s(r, ALNUM, 32, 48), lambda: _s(r, HEX, 40),
                     lambda: _s(r, B64URL, 43)])()


def _sq(pw: str) -> str:
    """Quotes for the shell where a mark needs them."""
    return f"'{pw}'" if re.search(r"[^\w.\-+@%/]", pw) else pw


@_form("netrc_line")
def _f(r):
    p = password(r)
    return f"machine {_host(r)} login {_user(r)} password {p}\n", p


@_form("netrc_block")
def _f(r):
    p = password(r)
    return f"machine {_host(r)}\n  login {_user(r)}\n  password {p}\n", p


@_form("pgpass")
def _f(r):
    p = password(r)
    return f"{_host(r)}:5432:{r.choice([*_NOUN, '*'])}:{_user(r)}:{p}\n", p


@_form("curl_u")
def _f(r):
    p = password(r)
    return f"curl {r.choice(['-u', '--user'])} {_sq(_user(r) + ':' + p)} https://{_host(r)}/api/v1/status", p


@_form("curl_bearer")
def _f(r):
    t = _any_token(r)
    q = r.choice("\"'")
    return f"curl -sS -H {q}Authorization: Bearer {t}{q} https://{_host(r)}/v1/{r.choice(_NOUN)}", t


@_form("curl_x_api_key")
def _f(r):
    t = _s(r, ALNUM, 32)
    return f"curl -H 'X-API-Key: {t}' https://{_host(r)}/v2/items", t


@_form("http_basic_header")
def _f(r):
    b = _b64(f"{_user(r)}:{password(r)}".encode())
    return f"GET /admin HTTP/1.1\nHost: {_host(r)}\nAuthorization: Basic {b}\n", b


@_form("docker_config_auth")
def _f(r):
    a = _b64(f"{_user(r)}:{password(r)}".encode())
    return json.dumps({"auths": {r.choice(["https://index.docker.io/v1/", "ghcr.io", _host(r)]): {"auth": a}}}, indent=r.choice([None, 2, "\t"])), a


@_form("mysql_p")
def _f(r):
    p = password(r, True)
    return f"{r.choice(['mysql', 'mysqldump', 'mariadb'])} -h {_host(r)} -u {_user(r)} -p{_sq(p)} {r.choice(_NOUN)}", p


@_form("sshpass_p")
def _f(r):
    p = password(r)
    return f"sshpass -p {_sq(p)} ssh -o StrictHostKeyChecking=no {_user(r)}@10.{r.randint(0, 255)}.{r.randint(0, 255)}.{r.randint(1, 254)}", p


@_form("pgpassword_env_cmd")
def _f(r):
    p = password(r)
    return f"PGPASSWORD={_sq(p)} psql -h {_host(r)} -U {_user(r)} -c 'select 1'", p


@_form("redis_cli_a")
def _f(r):
    p = password(r, True)
    return f"redis-cli -h {_host(r)} -a {_sq(p)} ping", p


@_form("set_cookie")
def _f(r):
    t = _s(r, ALNUM, 26, 64)
    return f"Set-Cookie: {r.choice(['session', 'sessionid', 'PHPSESSID', 'JSESSIONID', 'connect.sid'])}={t}; Path=/; HttpOnly; Secure; SameSite=Lax", t


@_form("cookie")
def _f(r):
    t = r.choice([_s(r, HEX, 32), _s(r, B64URL, 43), FORMATS["jwt_hs256"](r)])
    return f"Cookie: theme=dark; {r.choice(['session', 'sid', 'auth_token', 'remember_token', 'sessionid'])}={t}; lang=en", t


@_form("env_api_key")
def _f(r):
    t = _s(r, ALNUM, 24, 40)
    return f"{r.choice(['API_KEY', 'SERVICE_API_KEY', 'APP_SECRET', 'SECRET_KEY'])}={t}\n", t


@_form("env_password")
def _f(r):
    p = password(r)
    q = r.choice(['"', "'"])
    return f"{r.choice(['DB_PASSWORD', 'POSTGRES_PASSWORD', 'SMTP_PASS', 'ADMIN_PASSWORD', 'REDIS_PASSWORD'])}={q}{p}{q}\n", p


@_form("env_password_bare")
def _f(r):
    p = password(r, True)
    return f"{r.choice(['DB_PASSWORD', 'MYSQL_ROOT_PASSWORD', 'MAIL_PASSWORD'])}={p}\n", p


@_form("yaml_password")
def _f(r):
    p = password(r)
    return f"database:\n  host: {_host(r)}\n  user: {_user(r)}\n  password: " + (f'"{p}"' if r.random() < .5 or re.search(r"[#:%@!*&?]", p) else p) + "\n", p


@_form("json_client_secret")
def _f(r):
    t = _s(r, r.choice([ALNUM, B64URL]), 24, 48)
    return json.dumps({"client_id": _uuid(r), "client_secret": t}, indent=r.choice([None, 2])), t


@_form("json_password")
def _f(r):
    p = password(r)
    return json.dumps({"user": _user(r), "password": p}), p


@_form("toml_db_password")
def _f(r):
    p = password(r)
    return f'[database]\nuser = "{_user(r)}"\ndb_password = "{p}"\n', p


@_form("ini_password")
def _f(r):
    p = password(r, True)
    return f"[client]\nuser = {_user(r)}\npassword = {p}\n", p


@_form("properties_password")
def _f(r):
    p = password(r, True)
    return f"spring.datasource.username={_user(r)}\nspring.datasource.password={p}\n", p


@_form("xml_password")
def _f(r):
    p = password(r, True)
    return f"<server>\n  <id>central</id>\n  <username>{_user(r)}</username>\n  <password>{p}</password>\n</server>", p


@_form("python_assignment")
def _f(r):
    p = password(r)
    return f'{r.choice(["password", "DB_PASS", "secret_key", "auth_token"])} = "{p}"\n', p


@_form("export_token")
def _f(r):
    t = _any_token(r)
    return f"export {r.choice(['X_TOKEN', 'GH_TOKEN', 'SLACK_TOKEN', 'DEPLOY_TOKEN'])}={t}\n", t


@_form("powershell_env")
def _f(r):
    t = _any_token(r)
    return f'$env:{r.choice(["API_TOKEN", "CI_TOKEN"])} = "{t}"\n', t


@_form("conn_postgres")
def _f(r):
    p = password(r, True)
    return f"DATABASE_URL=postgres://{_user(r)}:{p}@{_host(r)}:5432/{r.choice(_NOUN)}?sslmode=require", p


@_form("conn_mongodb_srv")
def _f(r):
    p = password(r, True)
    return f"mongodb+srv://{_user(r)}:{p}@cluster0.{_s(r, LOWNUM, 5)}.mongodb.net/?retryWrites=true", p


@_form("conn_redis")
def _f(r):
    p = password(r, True)
    return f"redis://:{p}@{_host(r)}:6379/1", p


@_form("conn_amqp")
def _f(r):
    p = password(r, True)
    return f"broker_url = 'amqp://{_user(r)}:{p}@{_host(r)}:5672//'", p


@_form("conn_jdbc_params")
def _f(r):
    p = password(r, True)
    return f"jdbc:{r.choice(['postgresql', 'mysql', 'mariadb'])}://{_host(r)}/{r.choice(_NOUN)}?user={_user(r)}&password={p}", p


@_form("conn_jdbc_oracle")
def _f(r):
    p = password(r, True)
    return f"jdbc:oracle:thin:{_user(r)}/{p}@//{_host(r)}:1521/ORCL", p


@_form("conn_jdbc_sqlserver")
def _f(r):
    p = password(r, True)
    return f"jdbc:sqlserver://{_host(r)}:1433;databaseName={r.choice(_NOUN)};user={_user(r)};password={p};encrypt=true", p


@_form("conn_adonet")
def _f(r):
    p = password(r)
    return f"Server=tcp:{_host(r)},1433;Initial Catalog={r.choice(_NOUN)};User ID={_user(r)};{r.choice(['Password', 'Pwd'])}={p};Encrypt=True;", p


@_form("conn_libpq")
def _f(r):
    p = password(r, True)
    return f"host={_host(r)} port=5432 dbname={r.choice(_NOUN)} user={_user(r)} password={p}", p


@_form("npmrc")
def _f(r):
    t = r.choice([FORMATS["npm"](r), _uuid(r)])
    return f"//{r.choice(['registry.npmjs.org', _host(r)])}/:_authToken={t}\nalways-auth=true\n", t


@_form("npmrc_auth")
def _f(r):
    t = _b64(f"{_user(r)}:{password(r)}".encode())
    return f"registry=https://{_host(r)}/npm/\n_auth={t}\n", t


@_form("pypirc")
def _f(r):
    t = r.choice([FORMATS["pypi"](r), password(r, True)])
    return f"[distutils]\nindex-servers = pypi\n\n[pypi]\nusername = __token__\npassword = {t}\n", t


@_form("htpasswd_apr1")
def _f(r):
    h = "$apr1$" + _s(r, ALNUM + "./", 8) + "$" + _s(r, ALNUM + "./", 22)
    return f"{_user(r)}:{h}\n", h


@_form("htpasswd_bcrypt")
def _f(r):
    h = "$2y$" + r.choice(["05", "10", "12"]) + "$" + _s(r, ALNUM + "./", 53)
    return f"{_user(r)}:{h}\n", h


@_form("htpasswd_sha")
def _f(r):
    h = "{SHA}" + _b64(_bytes(r, 20))
    return f"{_user(r)}:{h}\n", h


@_form("etc_shadow")
def _f(r):
    h = "$6$" + _s(r, ALNUM + "./", 16) + "$" + _s(r, ALNUM + "./", 86)
    return f"{_user(r)}:{h}:19900:0:99999:7:::\n", h


@_form("aws_credentials_file")
def _f(r):
    b = _s(r, B64, 40)
    return f"[{r.choice(['default', 'prod'])}]\naws_access_key_id = AKIA{_s(r, B32, 16)}\naws_secret_access_key = {b}\nregion = eu-west-1\n", b


@_form("gcp_json")
def _f(r):
    t = _gcp(r)
    return t, _pem_parts(json.loads(t)["private_key"])[3]


@_form("url_basic_auth")
def _f(r):
    p = password(r, True)
    return f"git clone https://{_user(r)}:{p}@{_host(r)}/{r.choice(_NOUN)}.git", p


@_form("url_token_user")
def _f(r):
    t = FORMATS["github_ghp"](r)
    return f"git remote set-url origin https://{t}@github.com/acme/{r.choice(_NOUN)}.git", t


@_form("url_query_token")
def _f(r):
    t = _s(r, ALNUM, 32, 40)
    return f"https://{_host(r)}/hook?{r.choice(['access_token', 'api_key', 'token'])}={t}&format=json", t


_PROSE = [
    "the root password of the box is {}", "The password for {u} is {}, please don't share it", "login {u}, password {}",
    "ok so the new db password is {}", "use {} as the admin password", "I changed the wifi password to {}", "pw: {}",
    "My password is {} by the way", "user: {u} / pass: {}", "credentials: {u} / {}", "temporary password: {}", "ssh passphrase is {}",
]


@_form("prose_password")
def _f(r):
    p = password(r)
    return r.choice(_PROSE).replace("{u}", _user(r)).replace("{}", p), p


@_form("prose_password_ru")
def _f(r):
    p = password(r)
    return r.choice(["пароль от сервера {}", "логин {u}, пароль: {}", "пароль root на коробке {}", "новый пароль от базы — {}"]).replace("{u}", _user(r)).replace("{}", p), p


@_form("prose_token")
def _f(r):
    t = _s(r, ALNUM, 32, 40)
    return r.choice(["here is my api key {}", "the token is {}", "API key: {}", "use this access token: {}"]).replace("{}", t), t


@_form("prose_pin")
def _f(r):
    p = _s(r, DIGITS, 6)
    return r.choice(["the PIN code of the safe is {}", "my one-time code is {}"]).replace("{}", p), p


@_form("kubeconfig_client_key")
def _f(r):
    k = _b64(_pem("RSA PRIVATE KEY", _rsa_der(r)).encode())
    return f"users:\n- name: admin\n  user:\n    client-certificate-data: {_b64(b'-----BEGIN CERTIFICATE-----' + _bytes(r, 60))}\n    client-key-data: {k}\n", k


@_form("kubeconfig_token")
def _f(r):
    t = FORMATS["kubernetes_sa_jwt"](r)
    return f"users:\n- name: ci\n  user:\n    token: {t}\n", t


@_form("k8s_secret_manifest")
def _f(r):
    b = _b64(password(r).encode())
    return f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: {r.choice(_NOUN)}-db\ntype: Opaque\ndata:\n  password: {b}\n", b


@_form("tfvars")
def _f(r):
    p = password(r)
    return f'region      = "eu-central-1"\n{r.choice(["db_password", "admin_password", "rds_master_password", "api_token"])} = "{p}"\n', p


@_form("dockerfile_env")
def _f(r):
    p = password(r, True)
    return f"FROM postgres:16\nENV POSTGRES_PASSWORD={p}\n", p


@_form("compose_environment")
def _f(r):
    p = password(r, True)
    return f"services:\n  db:\n    image: mysql:8\n    environment:\n      - MYSQL_ROOT_PASSWORD={p}\n", p


@_form("docker_login")
def _f(r):
    p = password(r, True)
    return f"docker login -u {_user(r)} -p {_sq(p)} {_host(r)}", p


@_form("cli_password_flag")
def _f(r):
    p = password(r, True)
    return f"{r.choice(['mongosh', 'influx', 'rabbitmqadmin', 'cockroach'])} --username {_user(r)} {r.choice(['--password ', '--password='])}{_sq(p)} --host {_host(r)}", p


@_form("echo_pipe_sudo")
def _f(r):
    p = password(r, True)
    return f"echo {_sq(p)} | sudo -S systemctl restart nginx", p


@_form("sql_create_user")
def _f(r):
    p = password(r)
    return r.choice([f"CREATE USER {_user(r)} WITH PASSWORD '{p}';", f"ALTER USER {_user(r)} IDENTIFIED BY '{p}';", f"ALTER ROLE {_user(r)} PASSWORD '{p}';"]), p


@_form("git_credentials")
def _f(r):
    p = FORMATS["gitlab_glpat"](r)
    return f"https://oauth2:{p}@gitlab.com\n", p


@_form("wpa_supplicant")
def _f(r):
    p = password(r)
    return f'network={{\n  ssid="Office"\n  psk="{p}"\n}}\n', p


@_form("openvpn_auth_block")
def _f(r):
    p = password(r)
    return f"<auth-user-pass>\n{_user(r)}\n{p}\n</auth-user-pass>\n", p


@_form("log_line_token")
def _f(r):
    t = _any_token(r)
    return f"2026-07-0{r.randint(1, 9)} 12:{r.randint(10, 59)}:01 DEBUG http request headers={{'Authorization': 'Bearer {t}', 'Accept': '*/*'}}", t


@_form("otpauth_uri")
def _f(r):
    t = _s(r, B32, 32)
    return f"otpauth://totp/Acme:{r.choice(_FIRST)}@corp.io?secret={t}&issuer=Acme", t


@_form("maven_gradle_props")
def _f(r):
    p = password(r, True)
    return f"signing.keyId={_s(r, HEXU, 8)}\nsigning.password={p}\n", p


@_form("rails_master_key")
def _f(r):
    t = _s(r, HEX, 32)
    return f"RAILS_MASTER_KEY={t}\n", t


@_form("django_secret_key")
def _f(r):
    t = "django-insecure-" + _s(r, LOWNUM + "!@#$%^&*(-_=+)", 50)
    return f"SECRET_KEY = '{t}'\n", t


# ================================================================== HARMLESS
_h = Random(20260701)
HARMLESS: list[str] = [
    # placeholders
    "API_KEY=YOUR_API_KEY", "OPENAI_API_KEY=sk-...", "ANTHROPIC_API_KEY=sk-ant-...", "api_key: <your-api-key>", "token: <token>", "password: <password>",
    "Authorization: Bearer <token>", "Authorization: Bearer $TOKEN", "Authorization: Bearer ${TOKEN}", "Authorization: Bearer {token}",
    "curl -H \"Authorization: Bearer $GITHUB_TOKEN\" https://api.github.com/user", "curl -u \"$USER:$PASS\" https://example.com", "TOKEN=${TOKEN}",
    "DB_PASSWORD=${DB_PASSWORD:?required}", "password = var.db_password", "api_key = \"${var.api_key}\"", "password: {{ .Values.db.password }}",
    "password: \"{{ vault_db_password }}\"", "password: ${{ secrets.DB_PASSWORD }}", "token: ${{ secrets.GITHUB_TOKEN }}", "SECRET_KEY=changeme", "password=changeme",
    "PASSWORD=********", "password: '***'", "token=xxxxxxxxxxxxxxxxxxxx", "api_key=XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX", "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "xoxb-your-token-here", "SLACK_WEBHOOK=https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    "STRIPE_KEY=sk_test_...", "glpat-XXXXXXXXXXXXXXXXXXXX", "password=[REDACTED]", "token: [redacted]", "api_key=<redacted:openai>", "password: null", "password: \"\"", "token = None",
    "API_KEY=insert-your-key-here", "secret: REPLACE_ME", "client_secret: TODO", "auth_token = \"dummy\"", "password: example", "password=password",
    "postgres://user:password@localhost:5432/db", "postgres://USER:PASSWORD@HOST:PORT/DATABASE", "postgresql://<user>:<password>@<host>/<db>", "mongodb+srv://<username>:<password>@cluster0.example.mongodb.net/",
    "redis://localhost:6379/0", "amqp://localhost//", "mysql://root@localhost/test", "https://user@example.com/repo.git", "jdbc:postgresql://localhost:5432/mydb", "DATABASE_URL=${DATABASE_URL}",
    # values documented as fake
    "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_access_key_id = AKIAI44QH8DHBEXAMPLE",
    "arn:aws:iam::123456789012:role/ReadOnly", "arn:aws:s3:::examplebucket/developers/design_info.doc", "example card 4242 4242 4242 4242", "pk_test_TYooMQauvdEDq54NiTphI7jx is the public test key in the docs",
    # code that reads or names secrets
    "const key = process.env.OPENAI_API_KEY;", "apiKey: process.env.STRIPE_SECRET_KEY", "key = os.environ[\"API_KEY\"]", "token = os.getenv('GITHUB_TOKEN')", "password = getpass.getpass()",
    "password: str", "password: Optional[str] = None", "def login(user: str, password: str) -> Token:", "token: string;", "secret: SecretStr", "api_key: str = Field(default=None)", "self.password = password",
    "this.token = token;", "password = request.form['password']", "if not check_password(user, password):", "const { accessToken, refreshToken } = await login();", "private String password;",
    "String apiKey = System.getenv(\"API_KEY\");", "let token = std::env::var(\"TOKEN\")?;", "secret = config.get('secret')", "headers['Authorization'] = f'Bearer {self.token}'",
    "token = generate_token(length=32)", "hash_password(password, salt)", "password_hash = bcrypt.hashpw(pw, bcrypt.gensalt())", "setPassword(e.target.value)", "<input type=\"password\" name=\"password\" placeholder=\"Password\">",
    "PasswordResetTokenGenerator", "validate_password_strength", "CSRF_COOKIE_NAME = \"csrftoken\"", "SESSION_COOKIE_AGE = 1209600", "TOKEN_EXPIRE_MINUTES = 30", "max_tokens=4096", "tokens_per_second: 118.4",
    "prompt_tokens: 1532, completion_tokens: 204", "tokenizer = AutoTokenizer.from_pretrained('bert-base-uncased')", "keyboard_shortcut = 'ctrl+shift+k'", "primary_key=True", "foreign_key: user_id",
    "sort_key = lambda x: x.created_at", "public_key = load_public_key()", "secretsmanager.get_secret_value(SecretId='prod/db')", "vault kv get secret/data/prod/db", "op://Private/GitHub/token",
    "aws ssm get-parameter --name /prod/db/password --with-decryption", "kubectl get secret db-credentials -o yaml", "gh auth token", "export PATH=$PATH:/usr/local/go/bin", "DEBUG=true",
    # prose
    "password must be 8 characters or longer", "Your password was changed successfully.", "Forgot your password?", "The token has expired, please log in again.", "The secret of good coffee is fresh beans.",
    "Use a password manager and never reuse passwords.", "We rotate API keys every 90 days.", "invalid password for user anna", "ERROR 1045 (28000): Access denied for user 'root'@'localhost' (using password: YES)",
    "the password is stored in the vault", "the password is the same as last time", "password is required", "my token budget is 200k", "the key idea is to keep it simple", "key: value", "the api key is missing",
    "write your seed phrase on paper and hide it", "a private key is a 256-bit number", "the session cookie is HttpOnly", "пароль должен быть не короче 8 символов", "пароль успешно изменён", "забыли пароль?",
    "I'd like about above all to able to add an album about animals", "the machine learning login page has a password field",
    # identifiers, hashes, ids
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "git checkout 3f1d2c9", "index 83db48f..bf269f4 100644", "da39a3ee5e6b4b0d3255bfef95601890afd80709", "d41d8cd98f00b204e9800998ecf8427e",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "FROM python@sha256:2b8a8c9c0d5f3a1b4e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a392817",
    "\"integrity\": \"sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==\"",
    "integrity=\"sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC\"", "checksum = \"b6d2d3e1a4f5968778695a4b3c2d1e0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c4d\"",
    "github.com/stretchr/testify v1.8.4 h1:CcVxjf3Q8PM0mHUKJCdn+eZZtm5yQwehR5yeSVQQcUk=", "resolved \"https://registry.yarnpkg.com/lodash/-/lodash-4.17.21.tgz#679591c564c3bffaae8454cf0b3df370c3d6911c\"",
    "request id: 7f3c9a52-1f0e-4b7a-9c55-0d6a1b2c3d4e", "uuid: 123e4567-e89b-12d3-a456-426614174000", "trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=00f067aa0ba902b7", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "ObjectId(\"507f1f77bcf86cd799439011\")", "ETag: \"33a64df551425fcc55e4d42a148795d9f25f89d4\"", "x-request-id: 01HZX3K4V5W6Y7Z8A9B0C1D2E3", "msg_01XFDUDYJgAACzvnptvVoYEL", "toolu_01A09q90qw90lq917835lq9", "chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz012",
    "price_1NkXyzLkdIwHu7ixraBm864M", "cus_NffrFeUfNV2Hib", "pi_3MtwBwLkdIwHu7ix28a3tqPa", "vpc-0a1b2c3d4e5f67890", "i-0abcd1234efgh5678", "projects/my-project-123456/locations/us/keyRings/kr/cryptoKeys/k",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl user@host", "SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8", "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p", "0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045", "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq",
    "PublicKey = HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=", "transaction 0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7",
    "src: url(data:font/woff2;base64,d09GMgABAAAAAAScAA0AAAAACHwAAARGAAEAAAAAAAAAAAAAAAAAAAAA)",
    # URLs, paths, css, minified names
    "https://example.com/reset-password?step=2", "https://docs.github.com/en/authentication/keeping-your-account-and-data-secure/managing-your-personal-access-tokens", "https://www.youtube.com/watch?v=dQw4w9WgXcQ",
    "https://docs.google.com/document/d/1A2b3C4d5E6f7G8h9I0jKlMnOpQrStUvWxYz0123456789/edit", "https://hub.docker.com/_/postgres", "/api/v1/auth/token/refresh", "src/components/PasswordInput/PasswordInput.test.tsx", "/etc/ssl/private/server.key",
    "~/.aws/credentials", "/var/run/secrets/kubernetes.io/serviceaccount/token", "class=\"sc-bdVaJa kYxZpQ flex-row items-center\"", ".css-1q2w3e4r5t6y-MuiButton-root { color: red }", "<div class=\"Button_button__3kJ2a Form_password__x9Yz1\">",
    "data-testid=\"login-form-password-input\"", "test_user_can_reset_password_with_valid_token", "TestPasswordHasherRejectsShortPasswords", "function _0x3f2a(e,t,n){return e(t)}", "!function(e,t){\"object\"==typeof exports?module.exports=t():e.sk=t()}(this)",
    "chunk-vendors.8f3a1c2d.js", "main.4b7c9e21f0a3.css", "webpack:///./src/auth/token.ts?a1b2", "com.example.authentication.service.impl.DefaultTokenAuthenticationServiceImpl", "NSURLAuthenticationMethodClientCertificate",
    "risk-adjusted-return-on-capital-allocation", "task-force-for-secure-authentication-of-documents", "disk-usage-analyzer-for-large-directories-2026", "pa-rallel execution", "hf_dataset_name = 'squad'", "re_compile_all_patterns_before_the_loop",
    "npm_config_registry=https://registry.npmjs.org/", "npm_lifecycle_event=test", "sk_learn_pipeline_with_standard_scaler", "fw_update_status_last_checked_at", "phc_total = 42", "pat-terns in design", "gsk_stock_price_history", "SG.com is a domain",
    "xai-explainable-ai-methods-survey-for-medical-imaging", "fc-layer-512-relu", "key-value store", "key-frames: fade-in", "secret_santa_2026_participants_list", "st.title('Report'); st.write(df)", "dp.pt is a point in the plot", "sl.append(x)",
    "v1.0-rc.1", "ops_per_second=12000", "rnd_seed = 42", "e2b_sandbox_timeout_seconds = 300", "lin_api_version = '2'", "pul-monary function", "EAAA rated bonds", "AKCP sensor", "version = \"1.2.3\"", "build 20260701.3",
    "2026-07-01T12:00:00.000Z", "+1 (555) 010-9999", "192.168.1.1:8080", "3c:22:fb:aa:bb:cc", "978-3-16-148410-0", "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "0123456789abcdef0123456789abcdef", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", "0000000000000000000000000000000000000000",
]
# generated ones: bare hashes, ids, digests and lock-file lines with no secret word near them
HARMLESS += [f"commit {_s(_h, HEX, 40)}" for _ in range(4)]
HARMLESS += [f"run_id: {_uuid(_h)}" for _ in range(4)]
HARMLESS += [f"{_s(_h, HEX, 64)}  dist/app-{i}.tar.gz" for i in range(4)]
HARMLESS += [f'    "integrity": "sha512-{_b64(_bytes(_h, 64))}",' for _ in range(4)]
HARMLESS += [f"    --hash=sha256:{_s(_h, HEX, 64)} \\" for _ in range(4)]
HARMLESS += ["data:image/png;base64,iVBORw0KGgo" + _b64(_bytes(_h, 240)) for _ in range(3)]


# ================================================================== self-check
def _main() -> int:
    bad = 0
    for name, f in FORMATS.items():
        for seed in range(60):
            a, b = f(Random(seed)), f(Random(seed))
            try:
                ok = isinstance(a, str) and a and a == b
                parts = secret_parts(name, a)
                ok = ok and parts and all(p and p in a.replace("\\n", "\n") for p in parts)
            except Exception as e:  # noqa: BLE001 - report every broken generator
                ok, parts = False, repr(e)
            if not ok:
                print("BAD format", name, seed, repr(a)[:120], parts)
                bad += 1
                break
        if f(Random(1)) == f(Random(2)):
            print("BAD not random", name)
            bad += 1
    for name, f in FORMS.items():
        for seed in range(200):
            a, b = f(Random(seed)), f(Random(seed))
            if not (a == b and a[0] and a[1] and a[1] in a[0].replace("\\n", "\n")):
                print("BAD form", name, seed, a)
                bad += 1
                break
    assert UNSURE <= FORMATS.keys() and KV_FORMATS <= FORMATS.keys()
    assert len(set(HARMLESS)) == len(HARMLESS), [x for x in HARMLESS if HARMLESS.count(x) > 1]
    print(f"formats={len(FORMATS)} kv={len(KV_FORMATS)} unsure={len(UNSURE)} forms={len(FORMS)} harmless={len(HARMLESS)} bip39={len(BIP39_WORDS)} bad={bad}")
    if "-v" in sys.argv:
        for name, f in FORMATS.items():
            t = f(Random(7))
            print(f"{name:28} {len(t):5} {t[:110]!r}")
        for name, f in FORMS.items():
            print(f"{name:28} {f(Random(7))!r}"[:200])
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(_main())
