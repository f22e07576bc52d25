# ruff: noqa
# fmt: off
# pyright: basic
"""Synthetic secrets by a second author who had not seen the rules: vendors' formats, and the places where secrets stand.

FORMATS: vendor token formats.  FORMS: generic places where secrets stand.
Every generator takes a random.Random and returns (text, secret), secret in text.
No value is real: everything comes from the given generator.
Unprefixed formats (plain hex and the like) stand next to the name their vendor's
documentation gives the variable; prefixed ones stand in varied neutral contexts.
"""
from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import string
import zlib
from typing import Callable

R = random.Random
Pair = tuple[str, str]
Gen = Callable[[R], Pair]

LOW, UP, DIG = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALNUM = LOW + UP + DIG
HEXL = "0123456789abcdef"
HEXU = "0123456789ABCDEF"
B64 = ALNUM + "+/"
URL64 = ALNUM + "-_"
B32 = UP + "234567"
B62 = DIG + UP + LOW
BECH = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"

FORMATS: dict[str, Gen] = {}
FORMS: dict[str, Gen] = {}


def s(r: R, alphabet: str, n: int) -> str:
    return "".join(r.choice(alphabet) for _ in range(n))


def rb(r: R, n: int) -> bytes:
    return bytes(r.getrandbits(8) for _ in range(n))


def b64(b: bytes) -> str:
    return base64.b64encode(b).decode()


def b64u(b: bytes) -> str:
    return base64.urlsafe_b64encode(b).decode().rstrip("=")


def uuid(r: R) -> str:
    h = s(r, HEXL, 32)
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{r.choice('89ab')}{h[17:20]}-{h[20:]}"


def base62(n: int, width: int) -> str:
    out = ""
    while n:
        n, d = divmod(n, 62)
        out = B62[d] + out
    return out.rjust(width, "0")


def crc_token(r: R, prefix: str, n: int = 30) -> str:
    """prefix + n random base62 + 6 characters of CRC-32 (GitHub and npm announce this)."""
    body = s(r, ALNUM, n)
    return prefix + body + base62(zlib.crc32(body.encode()), 6)


def jwt(r: R, payload: dict | None = None, alg: str = "HS256", extra: dict | None = None) -> str:
    head = {"alg": alg, "typ": "JWT", **(extra or {})}
    body = payload or {"sub": s(r, DIG, 10), "name": s(r, LOW, 8), "iat": r.randint(1_740_000_000, 1_790_000_000)}
    m = b64u(json.dumps(head, separators=(",", ":")).encode()) + "." + b64u(json.dumps(body, separators=(",", ":")).encode())
    if alg == "HS256":
        sig = hmac.new(rb(r, 32), m.encode(), hashlib.sha256).digest()
    else:
        sig = rb(r, 64 if alg == "ES256" else 256)
    return m + "." + b64u(sig)


def pem(r: R, label: str, n: int, head: bytes = b"", width: int = 64, headers: str = "") -> str:
    d = b64(head + rb(r, n))
    lines = [d[i:i + width] for i in range(0, len(d), width)]
    return f"-----BEGIN {label}-----\n{headers}" + "\n".join(lines) + f"\n-----END {label}-----"


WORDS = "amber falcon river copper meadow lantern orbit willow granite saffron harbor violet thunder maple comet".split()


def ctx(r: R, tok: str) -> str:
    """A neutral place for a token; half of them carry no telling word at all."""
    w = r.choice(WORDS)
    return r.choice([
        tok,
        f"{tok}\n",
        f"  - {tok}",
        f'"{tok}",',
        f"'{tok}'",
        f"<value>{tok}</value>",
        f"2026-0{r.randint(1, 9)}-1{r.randint(0, 9)}T0{r.randint(0, 9)}:12:44Z INFO {w}: started with {tok} (retry 2)",
        f"I pasted it here: {tok}. Please try again.",
        f"| {w} | `{tok}` |",
        f"https://{w}.example.com/v1/items?limit=5&t={tok}",
        f"run --with {tok} --verbose",
        f"const {w} = \"{tok}\";",
        f"{w.upper()}={tok}",
        f"export {w.upper()}_TOKEN={tok}",
        f"# {w}: {tok}",
        f"{{\"{w}\": \"{tok}\", \"n\": {r.randint(1, 99)}}}",
        f"Authorization: Bearer {tok}",
        f"+    {w}: {tok}",
    ])


def reg(name: str, make: Callable[[R], str]) -> None:
    """A format that speaks for itself."""
    assert name not in FORMATS, name

    def g(r: R) -> Pair:
        t = make(r)
        return ctx(r, t), t
    FORMATS[name] = g


def named(name: str, keys: list[str], make: Callable[[R], str]) -> None:
    """A format without a prefix: written beside its documented variable name."""
    assert name not in FORMATS, name

    def g(r: R) -> Pair:
        t, k = make(r), r.choice(keys)
        text = r.choice([
            f"{k}={t}",
            f'{k}="{t}"',
            f"export {k}='{t}'",
            f"{k}: {t}",
            f'  "{k}": "{t}",',
            f'os.environ["{k}"] = "{t}"',
            f"ENV {k}={t}",
        ])
        return text, t
    FORMATS[name] = g


def raw(name: str, g: Gen) -> None:
    assert name not in FORMATS, name
    FORMATS[name] = g


# --- GitHub -----------------------------------------------------------------
for _n, _p in (("pat_classic", "ghp_"), ("oauth", "gho_"), ("user_to_server", "ghu_"),
               ("installation", "ghs_"), ("refresh", "ghr_")):
    reg(f"github_{_n}", lambda r, p=_p: crc_token(r, p))
reg("github_pat_fine_grained", lambda r: f"github_pat_11{s(r, UP + DIG, 20)}_{s(r, ALNUM, 59)}")
# staged roll-out since April 2026: ghs_<app id>_<JWT>, about 520 characters
reg("github_installation_stateless", lambda r: f"ghs_{r.randint(1000, 3_000_000)}_" + jwt(
    r, {"iss": "github", "inst": r.randint(10**6, 10**8), "exp": r.randint(1_780_000_000, 1_790_000_000), "jti": uuid(r)}, "RS256"))

# --- GitLab -----------------------------------------------------------------
reg("gitlab_pat", lambda r: "glpat-" + s(r, URL64, 20))
reg("gitlab_pat_routable", lambda r: "glpat-" + s(r, URL64, 27 + r.randint(0, 20)) + ".01." + s(r, LOW + DIG, 9))
reg("gitlab_deploy", lambda r: "gldt-" + s(r, URL64, 20))
reg("gitlab_runner_auth", lambda r: "glrt-" + s(r, URL64, 20))
reg("gitlab_runner_auth_t1", lambda r: f"glrt-t{r.randint(1, 3)}_" + s(r, URL64, 27) + ".01." + s(r, LOW + DIG, 9))
reg("gitlab_ci_job", lambda r: f"glcbt-{s(r, HEXL, 2)}_{s(r, URL64, 20)}")
reg("gitlab_trigger", lambda r: "glptt-" + s(r, HEXL, 40))
reg("gitlab_feed", lambda r: "glft-" + s(r, URL64, 20))
reg("gitlab_scim", lambda r: "glsoat-" + s(r, URL64, 20))
reg("gitlab_incoming_mail", lambda r: "glimt-" + s(r, LOW + DIG, 25))
reg("gitlab_agent", lambda r: "glagent-" + s(r, URL64, 50))
reg("gitlab_feature_flags", lambda r: "glffct-" + s(r, URL64, 20))
reg("gitlab_oauth_app", lambda r: "gloas-" + s(r, HEXL, 64))
reg("gitlab_runner_registration", lambda r: "GR1348941" + s(r, URL64, 20))

# --- clouds -----------------------------------------------------------------
def _aws_pair(r: R) -> Pair:
    k, sec = r.choice(["AKIA", "ASIA"]) + s(r, B32, 16), s(r, B64, 40)
    t = r.choice([
        f"AWS_ACCESS_KEY_ID={k}\nAWS_SECRET_ACCESS_KEY={sec}",
        f"aws_access_key_id = {k}\naws_secret_access_key = {sec}",
        f'{{"AccessKeyId": "{k}", "SecretAccessKey": "{sec}"}}',
        f'boto3.client("s3", aws_access_key_id="{k}", aws_secret_access_key="{sec}")',
    ])
    return t, sec


raw("aws_secret_with_key_id", _aws_pair)
reg("aws_access_key_id", lambda r: r.choice(["AKIA", "ASIA"]) + s(r, B32, 16))
named("aws_session_token", ["AWS_SESSION_TOKEN", "aws_session_token"],
      lambda r: r.choice(["IQoJb3JpZ2luX2Vj", "FwoGZXIvYXdzE"]) + s(r, B64, r.randint(300, 500)) + "==")
reg("aws_bedrock_long_term", lambda r: "ABSK" + b64(("BedrockAPIKey-" + s(r, LOW + DIG, 4) + "-at-" + s(r, DIG, 12) + ":").encode() + rb(r, 54)))


def _az_storage(r: R) -> Pair:
    key = s(r, B64, 76) + "+ASt" + s(r, B64, 5) + r.choice("AQgw") + "=="
    acc = s(r, LOW, 9)
    t = r.choice([
        f"DefaultEndpointsProtocol=https;AccountName={acc};AccountKey={key};EndpointSuffix=core.windows.net",
        f"AZURE_STORAGE_KEY={key}",
        f'az storage blob list --account-name {acc} --account-key "{key}"',
    ])
    return t, key


raw("azure_storage_key", _az_storage)
reg("azure_ad_client_secret", lambda r: s(r, ALNUM, 3) + r.choice("78") + "Q~" + s(r, ALNUM + "_-.~", 33) + s(r, ALNUM, 1))
named("azure_openai_key_84", ["AZURE_OPENAI_API_KEY", "AZURE_AI_KEY"],
      lambda r: s(r, ALNUM, 52) + "JQQJ99" + s(r, UP + DIG, 2) + "AC" + s(r, ALNUM, 10) + "AAA" + s(r, ALNUM, 4) + s(r, ALNUM, 5))
reg("azure_devops_pat_84", lambda r: s(r, ALNUM, 52) + "JQQJ99" + s(r, UP + DIG, 4) + "ACAAAAA" + s(r, ALNUM, 7) + "AZDO" + s(r, ALNUM, 4))


def _az_sas(r: R) -> Pair:
    sig = b64(rb(r, 32)).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    return f"https://{s(r, LOW, 8)}.blob.core.windows.net/c/f.bin?sv=2024-11-04&ss=b&srt=o&sp=r&se=2027-01-01T00:00:00Z&sig={sig}", sig


raw("azure_sas_signature", _az_sas)


def _az_sb(r: R) -> Pair:
    k = s(r, B64, 33) + "+ASb" + s(r, B64, 5) + r.choice("AEIMQUYcgkosw048") + "="
    return f"Endpoint=sb://{s(r, LOW, 8)}.servicebus.windows.net/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={k}", k


raw("azure_service_bus", _az_sb)
reg("gcp_api_key", lambda r: "AIza" + r.choice(["Sy", "Sy", "SyA", "SyB"])[:2] + s(r, URL64, 33))
reg("gemini_auth_key", lambda r: "AQ.Ab" + s(r, URL64, 48))
reg("google_oauth_client_secret", lambda r: "GOCSPX-" + s(r, URL64, 28))
reg("google_access_token", lambda r: "ya29.a0" + s(r, URL64, r.randint(140, 210)))
reg("google_refresh_token", lambda r: "1//0" + s(r, DIG, 1) + s(r, URL64, 98))


def _gcp_sa(r: R) -> Pair:
    k = pem(r, "PRIVATE KEY", 1190, bytes.fromhex("308204be020100300d06092a864886f70d0101010500048204a8308204a40201000282010100"))
    esc = (k + "\n").replace("\n", "\\n")
    p = s(r, LOW, 8)
    text = ('{\n  "type": "service_account",\n  "project_id": "%s",\n  "private_key_id": "%s",\n  "private_key": "%s",\n'
            '  "client_email": "ci@%s.iam.gserviceaccount.com"\n}') % (p, s(r, HEXL, 40), esc, p)
    return text, esc.split("\\n")[r.randint(1, 10)]


raw("gcp_service_account", _gcp_sa)
reg("alibaba_access_key_id", lambda r: "LTAI5t" + s(r, ALNUM, 18))
named("alibaba_secret", ["ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALICLOUD_SECRET_KEY"], lambda r: s(r, ALNUM, 30))
reg("tencent_secret_id", lambda r: "AKID" + s(r, ALNUM, 32))
named("ibm_cloud_api_key", ["IBMCLOUD_API_KEY", "IC_API_KEY"], lambda r: s(r, URL64, 44))
named("scaleway_secret_key", ["SCW_SECRET_KEY"], uuid)
reg("digitalocean_pat", lambda r: "dop_v1_" + s(r, HEXL, 64))
reg("digitalocean_oauth", lambda r: "doo_v1_" + s(r, HEXL, 64))
reg("digitalocean_refresh", lambda r: "dor_v1_" + s(r, HEXL, 64))
named("hetzner_cloud", ["HCLOUD_TOKEN"], lambda r: s(r, ALNUM, 64))
named("linode", ["LINODE_TOKEN", "LINODE_CLI_TOKEN"], lambda r: s(r, HEXL, 64))
named("vultr", ["VULTR_API_KEY"], lambda r: s(r, B32, 36))

# --- models -----------------------------------------------------------------
def _oai(prefix: str) -> Callable[[R], str]:
    return lambda r: prefix + s(r, URL64, 74) + "T3BlbkFJ" + s(r, URL64, 74)


reg("openai_project", _oai("sk-proj-"))
reg("openai_service_account", _oai("sk-svcacct-"))
reg("openai_admin", _oai("sk-admin-"))
reg("openai_legacy", lambda r: "sk-" + s(r, ALNUM, 20) + "T3BlbkFJ" + s(r, ALNUM, 20))
reg("anthropic_api", lambda r: "sk-ant-api03-" + s(r, URL64, 93) + "AA")
reg("anthropic_admin", lambda r: "sk-ant-admin01-" + s(r, URL64, 93) + "AA")
reg("anthropic_oauth", lambda r: "sk-ant-oat01-" + s(r, URL64, 93) + "AA")
reg("huggingface_user", lambda r: "hf_" + s(r, LOW + UP, 34))
reg("huggingface_org", lambda r: "api_org_" + s(r, LOW + UP, 34))
named("cohere", ["COHERE_API_KEY", "CO_API_KEY"], lambda r: s(r, ALNUM, 40))
reg("groq", lambda r: "gsk_" + s(r, ALNUM, 20) + "WGdyb3FY" + s(r, ALNUM, 24))
reg("xai", lambda r: "xai-" + s(r, ALNUM, 80))
reg("perplexity", lambda r: "pplx-" + s(r, ALNUM, 48))
reg("replicate", lambda r: "r8_" + s(r, ALNUM, 37))
reg("together_v1", lambda r: "tgp_v1_" + s(r, URL64, 43))
named("together_legacy", ["TOGETHER_API_KEY"], lambda r: s(r, HEXL, 64))
named("mistral", ["MISTRAL_API_KEY"], lambda r: s(r, ALNUM, 32))
reg("openrouter", lambda r: "sk-or-v1-" + s(r, HEXL, 64))
named("deepseek", ["DEEPSEEK_API_KEY"], lambda r: "sk-" + s(r, HEXL, 32))
reg("nvidia_nim", lambda r: "nvapi-" + s(r, URL64, 64))
reg("cerebras", lambda r: "csk-" + s(r, LOW + DIG, 48))
reg("fireworks", lambda r: "fw_" + s(r, ALNUM, 24))
reg("pinecone", lambda r: f"pcsk_{s(r, ALNUM, 5)}_{s(r, ALNUM, 63)}")
reg("langsmith", lambda r: f"lsv2_{r.choice(['pt', 'sk'])}_{s(r, HEXL, 32)}_{s(r, HEXL, 10)}")
reg("langfuse_secret", lambda r: "sk-lf-" + uuid(r))
named("elevenlabs", ["ELEVENLABS_API_KEY", "XI_API_KEY"], lambda r: "sk_" + s(r, HEXL, 48))
named("deepgram", ["DEEPGRAM_API_KEY"], lambda r: s(r, HEXL, 40))
named("assemblyai", ["ASSEMBLYAI_API_KEY"], lambda r: s(r, HEXL, 32))
named("wandb", ["WANDB_API_KEY"], lambda r: s(r, HEXL, 40))
reg("tavily", lambda r: f"tvly-{r.choice(['dev', 'prod'])}-" + s(r, ALNUM, 32))
reg("e2b", lambda r: "e2b_" + s(r, HEXL, 40))
reg("modal_secret", lambda r: "as-" + s(r, ALNUM, 22))

# --- payments ---------------------------------------------------------------
reg("stripe_secret_live", lambda r: "sk_live_51" + s(r, ALNUM, 97))
reg("stripe_secret_live_short", lambda r: "sk_live_" + s(r, ALNUM, 24))
reg("stripe_restricted_live", lambda r: "rk_live_51" + s(r, ALNUM, 97))
reg("stripe_test", lambda r: "sk_test_51" + s(r, ALNUM, 97))
reg("stripe_webhook", lambda r: "whsec_" + s(r, ALNUM, 32))
reg("square_access", lambda r: "EAAA" + s(r, URL64, 60))
reg("square_oauth_secret", lambda r: "sq0csp-" + s(r, URL64, 43))
reg("braintree_access", lambda r: f"access_token$production${s(r, LOW + DIG, 16)}${s(r, HEXL, 32)}")
named("paypal_client_secret", ["PAYPAL_CLIENT_SECRET", "PAYPAL_SECRET"], lambda r: "E" + s(r, URL64, 79))
named("plaid_secret", ["PLAID_SECRET"], lambda r: s(r, HEXL, 30))
reg("plaid_access", lambda r: "access-production-" + uuid(r))
reg("shopify_admin", lambda r: "shpat_" + s(r, HEXL, 32))
reg("shopify_shared_secret", lambda r: "shpss_" + s(r, HEXL, 32))
reg("shopify_custom_app", lambda r: "shpca_" + s(r, HEXL, 32))
reg("shopify_private_app", lambda r: "shppa_" + s(r, HEXL, 32))


def _razorpay(r: R) -> Pair:
    sec = s(r, ALNUM, 24)
    return f"RAZORPAY_KEY_ID=rzp_live_{s(r, ALNUM, 14)}\nRAZORPAY_KEY_SECRET={sec}", sec


raw("razorpay_secret", _razorpay)
reg("flutterwave_secret", lambda r: f"FLWSECK-{s(r, HEXL, 32)}-X")
reg("paystack_live", lambda r: "sk_live_" + s(r, HEXL, 40))
reg("adyen_api_key", lambda r: "AQE" + r.choice("xhkmnpqrw") + "hmfu" + s(r, B64, 120) + "-" + s(r, B64, 43) + "=-" + s(r, ALNUM, 16))

# --- messages ---------------------------------------------------------------
reg("slack_bot", lambda r: f"xoxb-{s(r, '123456789', 1)}{s(r, DIG, 11)}-{s(r, '123456789', 1)}{s(r, DIG, 12)}-{s(r, ALNUM, 24)}")
reg("slack_user", lambda r: f"xoxp-{s(r, DIG, 12)}-{s(r, DIG, 12)}-{s(r, DIG, 13)}-{s(r, HEXL, 32)}")
reg("slack_app", lambda r: f"xapp-1-A0{s(r, UP + DIG, 9)}-{s(r, DIG, 13)}-{s(r, HEXL, 64)}")
reg("slack_config_refresh", lambda r: "xoxe-1-" + s(r, ALNUM, 146))
reg("slack_config_access", lambda r: "xoxe.xoxp-1-" + s(r, ALNUM, 163))


def _slack_hook(r: R) -> Pair:
    u = f"https://hooks.slack.com/services/T0{s(r, UP + DIG, 9)}/B0{s(r, UP + DIG, 9)}/{s(r, ALNUM, 24)}"
    return ctx(r, u), u.rsplit("/", 1)[1]


raw("slack_webhook", _slack_hook)
reg("discord_bot", lambda r: f"{b64u(str(r.randint(10**17, 13 * 10**17)).encode())}.{s(r, 'GHI', 1)}{s(r, URL64, 5)}.{s(r, URL64, 38)}")


def _discord_hook(r: R) -> Pair:
    sec = s(r, URL64, 68)
    return f"https://{r.choice(['discord.com', 'discordapp.com', 'canary.discord.com'])}/api/webhooks/{r.randint(10**17, 13 * 10**17)}/{sec}", sec


raw("discord_webhook", _discord_hook)
reg("telegram_bot", lambda r: f"{r.randint(10**9, 8 * 10**9)}:AA{s(r, URL64, 33)}")


def _teams_hook(r: R) -> Pair:
    sec = s(r, URL64, 43)
    return (f"https://prod-{r.randint(10, 99)}.westeurope.logic.azure.com:443/workflows/{s(r, HEXL, 32)}/triggers/manual/paths/invoke"
            f"?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig={sec}"), sec


raw("teams_workflow_webhook", _teams_hook)
reg("twilio_api_key_sid", lambda r: "SK" + s(r, HEXL, 32))


def _twilio(r: R) -> Pair:
    sec = s(r, HEXL, 32)
    return r.choice([
        f"TWILIO_ACCOUNT_SID=AC{s(r, HEXL, 32)}\nTWILIO_AUTH_TOKEN={sec}",
        f'client = Client("AC{s(r, HEXL, 32)}", auth_token="{sec}")',
        f"curl -u AC{s(r, HEXL, 32)}:{sec} https://api.twilio.com/2010-04-01/Accounts.json",
    ]), sec


raw("twilio_auth_token", _twilio)
reg("sendgrid", lambda r: f"SG.{s(r, URL64, 22)}.{s(r, URL64, 43)}")
reg("mailgun_key_prefix", lambda r: "key-" + s(r, HEXL, 32))
reg("mailgun_new", lambda r: f"{s(r, HEXL, 32)}-{s(r, HEXL, 8)}-{s(r, HEXL, 8)}")
reg("mailchimp", lambda r: f"{s(r, HEXL, 32)}-us{r.randint(1, 22)}")
reg("mandrill", lambda r: "md-" + s(r, URL64, 22))
reg("brevo", lambda r: f"xkeysib-{s(r, HEXL, 64)}-{s(r, ALNUM, 16)}")
reg("resend", lambda r: f"re_{s(r, ALNUM, 8)}_{s(r, ALNUM, 24)}")
named("postmark_server", ["POSTMARK_SERVER_TOKEN", "POSTMARK_API_TOKEN", "X-Postmark-Server-Token"], uuid)
named("messagebird", ["MESSAGEBIRD_ACCESS_KEY"], lambda r: s(r, ALNUM, 25))
named("vonage", ["VONAGE_API_SECRET"], lambda r: s(r, ALNUM, 16))
reg("intercom", lambda r: "dG9rO" + s(r, B64, 54) + "=")

# --- package registries -----------------------------------------------------
reg("npm_granular", lambda r: crc_token(r, "npm_"))
reg("pypi", lambda r: "pypi-AgEIcHlwaS5vcmc" + s(r, URL64, r.randint(130, 170)))
reg("testpypi", lambda r: "pypi-AgENdGVzdC5weXBpLm9yZw" + s(r, URL64, r.randint(130, 170)))
reg("rubygems", lambda r: "rubygems_" + s(r, HEXL, 48))
reg("crates_io", lambda r: "cio" + s(r, ALNUM, 32))
reg("nuget", lambda r: "oy2" + s(r, LOW + "234567", 43))
reg("docker_hub_pat", lambda r: "dckr_pat_" + s(r, URL64, 27))
reg("docker_hub_org", lambda r: "dckr_oat_" + s(r, URL64, 32))
reg("clojars", lambda r: "CLOJARS_" + s(r, HEXL, 60))
reg("artifactory_api_key", lambda r: "AKCp" + s(r, ALNUM, 69))
reg("artifactory_reference_token", lambda r: b64(f"reftkn:01:{r.randint(1_740_000_000, 1_790_000_000)}:{s(r, ALNUM, 26)}".encode()).rstrip("="))
named("cloudsmith", ["CLOUDSMITH_API_KEY"], lambda r: s(r, HEXL, 40))

# --- hosting and data bases -------------------------------------------------
reg("heroku", lambda r: "HRKU-AA" + s(r, URL64, 58))
named("heroku_legacy", ["HEROKU_API_KEY"], uuid)


def _cf(prefix: str) -> Callable[[R], str]:
    def make(r: R) -> str:
        body = s(r, ALNUM, 40)
        return f"{prefix}{body}{zlib.crc32(body.encode()):08x}"
    return make


reg("cloudflare_user_token", _cf("cfut_"))
reg("cloudflare_account_token", _cf("cfat_"))
reg("cloudflare_global_key_new", _cf("cfk_"))
named("cloudflare_token_legacy", ["CLOUDFLARE_API_TOKEN", "CF_API_TOKEN"], lambda r: s(r, URL64, 40))
named("cloudflare_global_key_legacy", ["CLOUDFLARE_API_KEY", "X-Auth-Key"], lambda r: s(r, HEXL, 37))
reg("cloudflare_origin_ca", lambda r: f"v1.0-{s(r, HEXL, 24)}-{s(r, HEXL, 146)}")
named("fastly", ["FASTLY_API_TOKEN", "FASTLY_API_KEY", "Fastly-Key"], lambda r: s(r, URL64, 32))
reg("vercel_pat_new", lambda r: "vcp_" + s(r, ALNUM, 56))
reg("vercel_ai_gateway", lambda r: "vck_" + s(r, ALNUM, 56))
named("vercel_legacy", ["VERCEL_TOKEN"], lambda r: s(r, ALNUM, 24))
reg("vercel_blob", lambda r: f"vercel_blob_rw_{s(r, ALNUM, 16)}_{s(r, ALNUM, 30)}")
reg("netlify_pat", lambda r: "nfp_" + s(r, ALNUM, 36))
reg("supabase_pat", lambda r: "sbp_" + s(r, HEXL, 40))
reg("supabase_secret", lambda r: f"sb_secret_{s(r, URL64, 22)}_{s(r, URL64, 8)}")
reg("supabase_service_role_legacy", lambda r: jwt(r, {"iss": "supabase", "ref": s(r, LOW, 20), "role": "service_role", "iat": 1740000000, "exp": 2055000000}))
reg("planetscale_token", lambda r: "pscale_tkn_" + s(r, URL64, 43))
reg("planetscale_password", lambda r: "pscale_pw_" + s(r, URL64, 43))
reg("planetscale_oauth", lambda r: "pscale_oauth_" + s(r, URL64, 43))
reg("neon_api", lambda r: "napi_" + s(r, LOW + DIG, 64))


def _neon_url(r: R) -> Pair:
    p = "npg_" + s(r, ALNUM, 12)
    return f"postgresql://neondb_owner:{p}@ep-{r.choice(WORDS)}-{s(r, LOW + DIG, 8)}-pooler.eu-central-1.aws.neon.tech/neondb?sslmode=require", p


raw("neon_password_url", _neon_url)
reg("databricks", lambda r: "dapi" + s(r, HEXL, 32) + r.choice(["", "-2", "-3"]))
reg("databricks_oauth_secret", lambda r: "dose" + s(r, HEXL, 32))
named("snowflake_pat", ["SNOWFLAKE_PAT", "SNOWFLAKE_PASSWORD"],
      lambda r: jwt(r, {"p": str(r.randint(10**9, 10**12)) + ":" + str(r.randint(10**9, 10**12)), "iss": "SF:2", "exp": r.randint(1_790_000_000, 1_820_000_000)}, "ES256", {"kid": s(r, DIG, 12)}))
named("mongodb_atlas_private", ["MONGODB_ATLAS_PRIVATE_KEY", "MCLI_PRIVATE_API_KEY"], uuid)
named("turso", ["TURSO_AUTH_TOKEN"], lambda r: jwt(r, {"a": "rw", "iat": 1760000000, "id": uuid(r)}, "ES256"))
named("upstash_redis_rest", ["UPSTASH_REDIS_REST_TOKEN"], lambda r: "A" + s(r, ALNUM, 3) + "AAIncDE" + s(r, ALNUM, 44))
reg("confluent_secret", lambda r: "cflt" + s(r, B64, 60))
named("elastic_api_key", ["ELASTIC_API_KEY", "ES_API_KEY"], lambda r: b64(f"{s(r, URL64, 20)}:{s(r, URL64, 22)}".encode()))
reg("aiven", lambda r: "aivenv1_" + s(r, B64, 80))
named("clickhouse_cloud", ["CLICKHOUSE_KEY_SECRET"], lambda r: "4b1d" + s(r, ALNUM, 38))
reg("fly_io_macaroon", lambda r: "FlyV1 fm2_" + s(r, B64, r.randint(300, 500)) + "=")
reg("fly_io_fo1", lambda r: "fo1_" + s(r, URL64, 43))
reg("render", lambda r: "rnd_" + s(r, ALNUM, 28))
named("railway", ["RAILWAY_TOKEN", "RAILWAY_API_TOKEN"], uuid)
reg("tailscale_auth", lambda r: f"tskey-auth-k{s(r, ALNUM, 8)}11CNTRL-{s(r, ALNUM, 32)}")
reg("tailscale_api", lambda r: f"tskey-api-k{s(r, ALNUM, 8)}11CNTRL-{s(r, ALNUM, 32)}")
reg("tailscale_client", lambda r: f"tskey-client-k{s(r, ALNUM, 8)}11CNTRL-{s(r, ALNUM, 32)}")
named("ngrok_authtoken", ["NGROK_AUTHTOKEN", "authtoken"], lambda r: f"{r.choice('23')}{s(r, ALNUM, 26)}_{s(r, ALNUM, 21)}")
named("ngrok_api", ["NGROK_API_KEY"], lambda r: f"{r.choice('23')}{s(r, ALNUM, 26)}_{s(r, ALNUM, 21)}")

# --- build and quality ------------------------------------------------------
reg("buildkite_user", lambda r: "bkua_" + s(r, HEXL, 40))
reg("buildkite_agent", lambda r: "bkct_" + s(r, ALNUM, 44))
reg("circleci_pat", lambda r: f"CCIPAT_{s(r, ALNUM, 22)}_{s(r, HEXL, 40)}")
reg("circleci_project", lambda r: f"CCIPRJ_{s(r, ALNUM, 22)}_{s(r, HEXL, 40)}")
named("codecov", ["CODECOV_TOKEN"], uuid)
reg("sonarqube_user", lambda r: "squ_" + s(r, HEXL, 40))
reg("sonarqube_project", lambda r: "sqp_" + s(r, HEXL, 40))
reg("sonarqube_global", lambda r: "sqa_" + s(r, HEXL, 40))
named("sonarcloud", ["SONAR_TOKEN"], lambda r: s(r, HEXL, 40))
named("travis", ["TRAVIS_API_TOKEN"], lambda r: s(r, ALNUM, 22))
named("drone", ["DRONE_TOKEN"], lambda r: s(r, ALNUM, 32))
reg("harness_pat", lambda r: f"pat.{s(r, ALNUM, 22)}.{s(r, HEXL, 24)}.{s(r, ALNUM, 20)}")
reg("sourcegraph", lambda r: f"sgp_{s(r, HEXL, 16)}_{s(r, HEXL, 40)}")
named("snyk", ["SNYK_TOKEN"], uuid)
reg("infracost", lambda r: "ico-" + s(r, ALNUM, 32))
reg("prefect", lambda r: "pnu_" + s(r, ALNUM, 36))
reg("doppler_personal", lambda r: "dp.pt." + s(r, ALNUM, 43))
reg("doppler_service", lambda r: f"dp.st.{r.choice(['dev', 'stg', 'prd'])}." + s(r, ALNUM, 43))
reg("doppler_service_account", lambda r: "dp.sa." + s(r, ALNUM, 43))
reg("vault_service", lambda r: "hvs.CAESI" + s(r, URL64, 86))
reg("vault_batch", lambda r: "hvb.AAAAAQ" + s(r, URL64, 140))
reg("vault_short", lambda r: "hvs." + s(r, ALNUM, 24))
named("vault_legacy", ["VAULT_TOKEN"], lambda r: "s." + s(r, ALNUM, 24))
reg("terraform_cloud", lambda r: f"{s(r, ALNUM, 14)}.atlasv1.{s(r, URL64, 67)}")
reg("pulumi", lambda r: "pul-" + s(r, HEXL, 40))
reg("onepassword_service", lambda r: "ops_" + b64u(json.dumps({
    "signInAddress": "my.1password.com", "userAuth": {"method": "SRPg-4096", "alg": "PBES2g-HS256", "iterations": 650000, "salt": s(r, URL64, 22)},
    "email": s(r, LOW + DIG, 13) + "@1passwordserviceaccounts.com", "srpX": s(r, HEXL, 64),
    "muk": {"alg": "A256GCM", "ext": True, "k": s(r, URL64, 43), "key_ops": ["encrypt", "decrypt"], "kty": "oct", "kid": "mp"},
    "secretKey": "A3-" + s(r, UP + DIG, 6) + "-" + s(r, UP + DIG, 6), "throttleSecret": {"seed": s(r, HEXL, 64), "uuid": s(r, UP + DIG, 26)}}).encode()))
reg("onepassword_secret_key", lambda r: "A3-" + s(r, UP + DIG, 6) + "-" + s(r, UP + DIG, 6) + "-" + "-".join(s(r, UP + DIG, 5) for _ in range(4)))
reg("age_secret_key", lambda r: "AGE-SECRET-KEY-1" + s(r, BECH, 58))
reg("infisical_service", lambda r: f"st.{s(r, HEXL, 24)}.{s(r, HEXL, 32)}.{s(r, HEXL, 32)}")

# --- observation ------------------------------------------------------------
reg("grafana_service_account", lambda r: f"glsa_{s(r, ALNUM, 32)}_{s(r, HEXL, 8)}")
reg("grafana_cloud_policy", lambda r: "glc_" + b64(json.dumps({"o": s(r, DIG, 6), "n": r.choice(WORDS), "k": s(r, ALNUM, 24), "m": {"r": "eu"}}).encode()))
named("datadog_api_key", ["DD_API_KEY", "DATADOG_API_KEY", "DD-API-KEY"], lambda r: s(r, HEXL, 32))
named("datadog_app_key", ["DD_APP_KEY", "DATADOG_APP_KEY", "DD-APPLICATION-KEY"], lambda r: s(r, HEXL, 40))
reg("newrelic_user", lambda r: "NRAK-" + s(r, UP + DIG, 27))
reg("newrelic_license", lambda r: s(r, HEXL, 36) + "NRAL")
reg("newrelic_insert", lambda r: "NRII-" + s(r, URL64, 32))
reg("sentry_user", lambda r: "sntryu_" + s(r, HEXL, 64))
reg("sentry_org", lambda r: "sntrys_" + b64(json.dumps({"iat": r.randint(1_740_000_000, 1_790_000_000) + 0.5, "url": "https://sentry.io", "region_url": "https://de.sentry.io", "org": r.choice(WORDS)}).encode()) + "_" + s(r, B64, 43))
reg("dynatrace_api", lambda r: f"dt0c01.{s(r, B32, 24)}.{s(r, B32, 64)}")
reg("dynatrace_platform", lambda r: f"dt0s16.{s(r, B32, 8)}.{s(r, B32, 64)}")
reg("honeycomb_ingest", lambda r: f"hcaik_01{s(r, LOW + DIG, 24)}{s(r, LOW + DIG, 32)}")
named("splunk_hec", ["SPLUNK_HEC_TOKEN", "HEC_TOKEN"], uuid)
named("rollbar", ["ROLLBAR_ACCESS_TOKEN"], lambda r: s(r, HEXL, 32))
named("pagerduty", ["PAGERDUTY_TOKEN", "PD_API_KEY"], lambda r: "u+" + s(r, URL64, 18))
named("opsgenie", ["OPSGENIE_API_KEY"], uuid)
reg("posthog_personal", lambda r: "phx_" + s(r, ALNUM, 43))
reg("launchdarkly_api", lambda r: "api-" + uuid(r))
reg("launchdarkly_sdk", lambda r: "sdk-" + uuid(r))
named("statsig_server", ["STATSIG_SERVER_SECRET"], lambda r: "secret-" + s(r, ALNUM, 43))
named("algolia_admin", ["ALGOLIA_ADMIN_KEY", "ALGOLIA_API_KEY"], lambda r: s(r, HEXL, 32))
reg("mapbox_secret", lambda r: "sk." + b64u(json.dumps({"u": r.choice(WORDS), "a": "c" + s(r, LOW + DIG, 24)}).encode()) + "." + s(r, URL64, 22))
reg("segment_public_api", lambda r: "sgp_" + s(r, ALNUM, 64))
named("segment_write", ["SEGMENT_WRITE_KEY"], lambda r: s(r, ALNUM, 32))
reg("typeform", lambda r: f"tfp_{s(r, ALNUM, 44)}_{s(r, ALNUM, 14)}")
named("amplitude_secret", ["AMPLITUDE_SECRET_KEY"], lambda r: s(r, HEXL, 32))

# --- office -----------------------------------------------------------------
reg("linear_api", lambda r: "lin_api_" + s(r, ALNUM, 40))
reg("linear_oauth", lambda r: "lin_oauth_" + s(r, HEXL, 64))
reg("notion_new", lambda r: "ntn_" + s(r, DIG, 11) + s(r, ALNUM, 35))
reg("notion_legacy", lambda r: "secret_" + s(r, ALNUM, 43))
reg("airtable_pat", lambda r: f"pat{s(r, ALNUM, 14)}.{s(r, HEXL, 64)}")
reg("asana_pat", lambda r: f"2/{s(r, '123456789', 1)}{s(r, DIG, 15)}/{s(r, '123456789', 1)}{s(r, DIG, 15)}:{s(r, HEXL, 32)}")
reg("atlassian_api", lambda r: "ATATT3xFfGF0" + s(r, URL64, 171) + "=" + s(r, HEXU, 8))
reg("bitbucket_app_password", lambda r: "ATBB" + s(r, ALNUM, 24) + s(r, HEXU, 8))
reg("bitbucket_access", lambda r: "ATCTT3xFfGN0" + s(r, URL64, 171) + "=" + s(r, HEXU, 8))
reg("figma_pat", lambda r: "figd_" + s(r, URL64, 40))
reg("postman", lambda r: f"PMAK-{s(r, HEXL, 24)}-{s(r, HEXL, 34)}")
reg("contentful_pat", lambda r: "CFPAT-" + s(r, URL64, 43))
reg("hubspot_private_app", lambda r: f"pat-{r.choice(['na1', 'eu1', 'na2'])}-" + uuid(r))
reg("okta_ssws", lambda r: "SSWS 00" + s(r, URL64, 40))
named("okta_api", ["OKTA_API_TOKEN", "OKTA_CLIENT_TOKEN"], lambda r: "00" + s(r, URL64, 40))
named("auth0_client_secret", ["AUTH0_CLIENT_SECRET"], lambda r: s(r, URL64, 64))
named("zendesk", ["ZENDESK_API_TOKEN"], lambda r: s(r, ALNUM, 40))
named("trello_token", ["TRELLO_TOKEN"], lambda r: "ATTA" + s(r, HEXL, 64) + s(r, HEXU, 8))
reg("dropbox_short", lambda r: "sl.u.A" + s(r, URL64, r.randint(140, 180)))
reg("facebook_access", lambda r: "EAA" + s(r, ALNUM, r.randint(140, 200)))
named("clerk_secret", ["CLERK_SECRET_KEY"], lambda r: "sk_live_" + s(r, ALNUM, 42))
reg("readme_com", lambda r: "rdme_" + s(r, LOW + DIG, 70))
reg("shippo_live", lambda r: "shippo_live_" + s(r, HEXL, 40))
reg("easypost", lambda r: "EZAK" + s(r, HEXL, 32) + s(r, ALNUM, 22))
named("salesforce_refresh", ["SALESFORCE_REFRESH_TOKEN", "SF_REFRESH_TOKEN"], lambda r: "5Aep861" + s(r, ALNUM + "._", 80))
reg("adobe_client_secret", lambda r: "p8e-" + s(r, URL64, 32))

# --- keys -------------------------------------------------------------------
reg("jwt_hs256", lambda r: jwt(r))
reg("jwt_rs256", lambda r: jwt(r, None, "RS256", {"kid": s(r, ALNUM, 12)}))
reg("kubernetes_sa_token", lambda r: jwt(r, {"iss": "kubernetes/serviceaccount", "sub": f"system:serviceaccount:default:{r.choice(WORDS)}"}, "RS256"))


def _pem(label: str, n: int, head: bytes = b"", width: int = 64, headers: str = "") -> Gen:
    def g(r: R) -> Pair:
        k = pem(r, label, n, head, width, headers)
        pre = r.choice(["", "$ cat key.pem\n", "key: |\n", "# deploy\n"])
        if pre == "key: |\n":
            k = "\n".join("  " + x for x in k.split("\n"))
        body = [x for x in k.split("\n") if x.strip() and "-----" not in x and ":" not in x and not x.strip().startswith("=")]
        return pre + k + "\n", body[r.randrange(len(body) - 1)].strip() if len(body) > 1 else body[0].strip()
    return g


raw("pem_rsa", _pem("RSA PRIVATE KEY", 1188, bytes.fromhex("308204a40201000282010100")))
raw("pem_rsa_encrypted", _pem("RSA PRIVATE KEY", 1190, b"", 64, "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF\n\n"))
raw("pem_ec", _pem("EC PRIVATE KEY", 115, bytes.fromhex("30770201010420")))
raw("pem_pkcs8", _pem("PRIVATE KEY", 1190, bytes.fromhex("308204be020100")))
raw("pem_pkcs8_encrypted", _pem("ENCRYPTED PRIVATE KEY", 1300, bytes.fromhex("308205")))
raw("pem_dsa", _pem("DSA PRIVATE KEY", 440, bytes.fromhex("308201bb")))
raw("pem_openssh", _pem("OPENSSH PRIVATE KEY", 340, b"openssh-key-v1\0\0\0\0\4none\0\0\0\4none\0\0\0\0\0\0\0\1", 70))
raw("pgp_private", _pem("PGP PRIVATE KEY BLOCK", 700, bytes.fromhex("9503c604"), 64, "\n"))


def _putty(r: R) -> Pair:
    k = b64(rb(r, 36))
    return (f"PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: key\nPublic-Lines: 2\n{b64(rb(r, 48))}\n{b64(rb(r, 3))}\n"
            f"Private-Lines: 1\n{k}\nPrivate-MAC: {s(r, HEXL, 64)}\n"), k


raw("putty_private", _putty)


def _jwk(r: R) -> Pair:
    d = b64u(rb(r, 32))
    return json.dumps({"kty": "EC", "crv": "P-256", "x": b64u(rb(r, 32)), "y": b64u(rb(r, 32)), "d": d, "kid": s(r, ALNUM, 8)}), d


raw("jwk_private", _jwk)


def _wg(r: R) -> Pair:
    k = b64(rb(r, 32))
    return f"[Interface]\nPrivateKey = {k}\nAddress = 10.0.0.2/32\n", k


raw("wireguard_private", _wg)


def _totp(r: R) -> Pair:
    k = s(r, B32, 32)
    return f"otpauth://totp/{r.choice(WORDS)}:me@example.com?secret={k}&issuer={r.choice(WORDS)}", k


raw("otpauth_secret", _totp)

# ============================ generic forms =================================
def pw(r: R, safe: bool = False) -> str:
    """A password of one of several kinds; safe=True leaves out what breaks URLs or quotes."""
    k = r.randrange(5)
    if k == 0:
        return s(r, ALNUM, r.randint(12, 20))
    if k == 1:
        sep = "-" if safe else r.choice("-_.")
        return sep.join(r.sample(WORDS, 3)).title() + str(r.randint(10, 999))
    if k == 2:
        return s(r, HEXL, r.choice([24, 32, 40]))
    punct = "-_.~" if safe else "!%^*-_+=.?~"
    body = list(s(r, ALNUM, r.randint(9, 15)) + s(r, punct, 3))
    r.shuffle(body)
    return r.choice(LOW + UP) + "".join(body) + r.choice(ALNUM)


def user(r: R) -> str:
    return r.choice(["app", "admin", "svc_" + r.choice(WORDS), "deploy", "root", r.choice(WORDS)])


def host(r: R) -> str:
    return r.choice(["db", "cache", "mq", "mail", "api"]) + r.choice(["", "1", "-prod"]) + "." + r.choice(WORDS) + r.choice([".example.com", ".internal", ".local"])


def form(f: Callable[[R, str], str], safe: bool = False, make: Callable[[R], str] | None = None) -> Gen:
    def g(r: R) -> Pair:
        x = make(r) if make else pw(r, safe)
        return f(r, x), x
    return g


FORMS["dotenv"] = form(lambda r, x: f"# settings\nDEBUG=0\n{r.choice(['DB_PASSWORD', 'SECRET_KEY', 'API_SECRET', 'JWT_SECRET', 'SESSION_SECRET', 'MAIL_PASSWORD', 'REDIS_PASS'])}={x}\nPORT=8080\n", True)
FORMS["dotenv_quoted"] = form(lambda r, x: f"export {r.choice(['ADMIN_PASSWORD', 'ENCRYPTION_KEY', 'APP_SECRET', 'ACCESS_TOKEN', 'PRIVATE_KEY_PASSPHRASE'])}=\"{x}\"", True)
FORMS["yaml_password"] = form(lambda r, x: f"database:\n  host: {host(r)}\n  username: {user(r)}\n  password: {x}\n", True)
FORMS["yaml_password_quoted"] = form(lambda r, x: f"auth:\n  {r.choice(['password', 'passwd', 'secret', 'client_secret', 'apiKey', 'token'])}: \"{x}\"\n  realm: main\n")
FORMS["json_api_key"] = form(lambda r, x: json.dumps({"endpoint": "https://" + host(r), r.choice(["api_key", "apiKey", "api-key", "client_secret", "secretKey", "accessToken", "password"]): x, "timeout": 30}, indent=r.choice([None, 2])))
FORMS["json_one_line_log"] = form(lambda r, x: f'2026-05-04 10:11:12 DEBUG request {{"user":"{user(r)}","password":"{x}"}}')
FORMS["toml_password"] = form(lambda r, x: f"[server]\nhost = \"{host(r)}\"\n{r.choice(['password', 'secret_key', 'token', 'auth_token'])} = \"{x}\"\n")
FORMS["ini_password"] = form(lambda r, x: f"[mysql]\nuser={user(r)}\npassword={x}\nport=3306\n", True)
FORMS["netrc_multi"] = form(lambda r, x: f"machine {host(r)}\n  login {user(r)}\n  password {x}\n", True)
FORMS["netrc_single"] = form(lambda r, x: f"machine {host(r)} login {user(r)} password {x}", True)
FORMS["curl_user"] = form(lambda r, x: f"curl {r.choice(['-u', '--user'])} {user(r)}:{x} https://{host(r)}/v1/status", True)
FORMS["curl_user_quoted"] = form(lambda r, x: f"curl -sS -u '{user(r)}:{x}' -X POST https://{host(r)}/login")
FORMS["curl_bearer"] = form(lambda r, x: f"curl -H \"Authorization: Bearer {x}\" https://{host(r)}/me", True, lambda r: s(r, URL64, r.randint(30, 60)))
FORMS["curl_header_api_key"] = form(lambda r, x: f"curl -H '{r.choice(['X-API-Key', 'X-Auth-Token', 'Api-Key', 'apikey', 'PRIVATE-TOKEN'])}: {x}' https://{host(r)}/", True, lambda r: s(r, ALNUM, r.randint(24, 48)))
FORMS["basic_auth_header"] = form(lambda r, x: f"GET / HTTP/1.1\nHost: {host(r)}\nAuthorization: Basic {x}\n", make=lambda r: b64(f"{user(r)}:{pw(r)}".encode()))
FORMS["cookie_session"] = form(lambda r, x: f"Cookie: theme=dark; {r.choice(['sessionid', 'connect.sid', 'JSESSIONID', 'session_token'])}={x}; lang=en", make=lambda r: s(r, ALNUM, 32))
FORMS["docker_config_auth"] = form(lambda r, x: json.dumps({"auths": {r.choice(["https://index.docker.io/v1/", "ghcr.io", host(r)]): {"auth": x}}}, indent=2), make=lambda r: b64(f"{user(r)}:{pw(r)}".encode()))
FORMS["docker_login"] = form(lambda r, x: f"docker login -u {user(r)} -p {x} {host(r)}", True)
FORMS["docker_compose_env"] = form(lambda r, x: f"services:\n  db:\n    image: postgres:17\n    environment:\n      - POSTGRES_USER={user(r)}\n      - POSTGRES_PASSWORD={x}\n", True)
FORMS["dockerfile_env"] = form(lambda r, x: f"FROM node:24\nENV {r.choice(['NPM_TOKEN', 'DB_PASSWORD', 'API_SECRET'])}={x}\n", True)
FORMS["postgres_url"] = form(lambda r, x: f"DATABASE_URL={r.choice(['postgres', 'postgresql', 'postgresql+asyncpg'])}://{user(r)}:{x}@{host(r)}:5432/app?sslmode=require", True)
FORMS["mysql_url"] = form(lambda r, x: f"mysql{r.choice(['', '2', '+pymysql'])}://{user(r)}:{x}@{host(r)}:3306/shop", True)
FORMS["mongodb_url"] = form(lambda r, x: f"mongodb+srv://{user(r)}:{x}@cluster0.{s(r, LOW + DIG, 7)}.mongodb.net/?retryWrites=true&w=majority", True)
FORMS["redis_url"] = form(lambda r, x: f"REDIS_URL={r.choice(['redis', 'rediss'])}://{r.choice(['', 'default'])}:{x}@{host(r)}:6379/0", True)
FORMS["amqp_url"] = form(lambda r, x: f"broker_url = '{r.choice(['amqp', 'amqps'])}://{user(r)}:{x}@{host(r)}:5672/%2F'", True)
FORMS["basic_auth_url"] = form(lambda r, x: f"git clone https://{user(r)}:{x}@{host(r)}/team/repo.git", True)
FORMS["git_remote_token_url"] = form(lambda r, x: f"origin\thttps://oauth2:{x}@gitlab.{r.choice(WORDS)}.com/a/b.git (fetch)", True)
FORMS["git_credentials_file"] = form(lambda r, x: f"https://{user(r)}:{x}@github.com\n", True)
FORMS["query_string_key"] = form(lambda r, x: f"https://{host(r)}/maps?{r.choice(['api_key', 'apikey', 'access_token', 'key', 'token', 'client_secret'])}={x}&zoom=4", make=lambda r: s(r, ALNUM, r.randint(24, 40)))
FORMS["npmrc_authtoken"] = form(lambda r, x: f"@team:registry=https://{host(r)}/\n//{host(r)}/:_authToken={x}\n", make=lambda r: r.choice([uuid(r), s(r, ALNUM, 40)]))
FORMS["npmrc_auth_basic"] = form(lambda r, x: f"registry=https://{host(r)}/npm/\n_auth={x}\nalways-auth=true\n", make=lambda r: b64(f"{user(r)}:{pw(r)}".encode()))
FORMS["npmrc_password"] = form(lambda r, x: f"//{host(r)}/:username={user(r)}\n//{host(r)}/:_password={x}\n", make=lambda r: b64(pw(r).encode()))
FORMS["pypirc"] = form(lambda r, x: f"[distutils]\nindex-servers = private\n\n[private]\nrepository = https://{host(r)}/\nusername = {user(r)}\npassword = {x}\n", True)
FORMS["pip_index_url"] = form(lambda r, x: f"[global]\nextra-index-url = https://{user(r)}:{x}@{host(r)}/simple\n", True)
FORMS["kubernetes_secret"] = form(lambda r, x: f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ntype: Opaque\ndata:\n  {r.choice(['password', 'token', 'api-key', 'DB_PASS'])}: {x}\n", make=lambda r: b64(pw(r).encode()))
FORMS["kubernetes_stringdata"] = form(lambda r, x: f"kind: Secret\napiVersion: v1\nstringData:\n  username: {user(r)}\n  password: {x}\n", True)
FORMS["kubeconfig_token"] = form(lambda r, x: f"users:\n- name: ci\n  user:\n    token: {x}\n", make=lambda r: s(r, ALNUM, 48))
FORMS["kubeconfig_client_key"] = form(lambda r, x: f"users:\n- name: admin\n  user:\n    client-key-data: {x}\n", make=lambda r: b64(pem(r, "RSA PRIVATE KEY", 600).encode()))
FORMS["kubectl_literal"] = form(lambda r, x: f"kubectl create secret generic db --from-literal=password={x}", True)
FORMS["jdbc_query"] = form(lambda r, x: f"jdbc:{r.choice(['postgresql', 'mysql', 'mariadb'])}://{host(r)}:5432/app?user={user(r)}&password={x}", True)
FORMS["jdbc_sqlserver"] = form(lambda r, x: f"jdbc:sqlserver://{host(r)}:1433;databaseName=app;user=sa;password={x};encrypt=true", True)
FORMS["jdbc_oracle"] = form(lambda r, x: f"jdbc:oracle:thin:{user(r)}/{x}@//{host(r)}:1521/ORCL", True)
FORMS["ado_net"] = form(lambda r, x: f"Server=tcp:{host(r)},1433;Initial Catalog=app;User ID={user(r)};{r.choice(['Password', 'Pwd'])}={x};Encrypt=True;", True)
FORMS["smtp_settings"] = form(lambda r, x: f"EMAIL_HOST = '{host(r)}'\nEMAIL_HOST_USER = '{user(r)}@example.com'\nEMAIL_HOST_PASSWORD = '{x}'\n")
FORMS["smtp_url"] = form(lambda r, x: f"MAILER_DSN=smtp://{user(r)}:{x}@{host(r)}:587", True)
FORMS["wp_config"] = form(lambda r, x: f"define( 'DB_USER', '{user(r)}' );\ndefine( 'DB_PASSWORD', '{x}' );\ndefine( 'DB_HOST', 'localhost' );")
FORMS["wp_salt"] = form(lambda r, x: f"define('{r.choice(['AUTH_KEY', 'SECURE_AUTH_KEY', 'LOGGED_IN_SALT', 'NONCE_SALT'])}', '{x}');", make=lambda r: s(r, ALNUM + "!@#%^&*()-_[]{}<>~`+=,.;:/?|", 64))
FORMS["php_array"] = form(lambda r, x: f"'mysql' => ['username' => '{user(r)}', 'password' => '{x}', 'charset' => 'utf8mb4'],")
FORMS["terraform_tfvars"] = form(lambda r, x: f"region = \"eu-central-1\"\n{r.choice(['db_password', 'admin_password', 'api_token', 'client_secret'])} = \"{x}\"\n")
FORMS["terraform_variable_default"] = form(lambda r, x: f"variable \"db_password\" {{\n  type    = string\n  default = \"{x}\"\n}}")
FORMS["terraform_env"] = form(lambda r, x: f"TF_VAR_db_password={x} terraform apply", True)
FORMS["powershell_securestring"] = form(lambda r, x: f"$pw = ConvertTo-SecureString \"{x}\" -AsPlainText -Force", True)
FORMS["powershell_env"] = form(lambda r, x: f"$env:{r.choice(['API_TOKEN', 'DB_PASSWORD', 'CLIENT_SECRET'])} = '{x}'")
FORMS["windows_net_use"] = form(lambda r, x: f"net use Z: \\\\{host(r)}\\share {x} /user:CORP\\{user(r)}", True)
FORMS["java_properties"] = form(lambda r, x: f"spring.datasource.username={user(r)}\nspring.datasource.password={x}\nserver.port=8443\n", True)
FORMS["java_keystore_password"] = form(lambda r, x: f"server.ssl.key-store-password={x}\n", True)
FORMS["maven_settings"] = form(lambda r, x: f"<server>\n  <id>releases</id>\n  <username>{user(r)}</username>\n  <password>{x}</password>\n</server>", True)
FORMS["xml_attribute"] = form(lambda r, x: f"<add name=\"main\" username=\"{user(r)}\" password=\"{x}\" />", True)
FORMS["ruby_assignment"] = form(lambda r, x: f"config.{r.choice(['secret_key', 'api_key', 'password', 'secret_key_base'])} = '{x}'")
FORMS["ruby_hash"] = form(lambda r, x: f"{{ :user => '{user(r)}', :password => '{x}' }}")
FORMS["python_assignment"] = form(lambda r, x: f"{r.choice(['PASSWORD', 'api_key', 'SECRET_KEY', 'auth_token', 'db_password'])} = \"{x}\"")
FORMS["python_kwarg"] = form(lambda r, x: f"conn = connect(host='{host(r)}', user='{user(r)}', {r.choice(['password', 'passwd'])}='{x}')")
FORMS["django_secret_key"] = form(lambda r, x: f"SECRET_KEY = 'django-insecure-{x}'", make=lambda r: s(r, LOW + DIG + "!@#%^&*(-_=+)", 50))
FORMS["js_object"] = form(lambda r, x: f"const cfg = {{ host: '{host(r)}', {r.choice(['password', 'clientSecret', 'apiKey', 'authToken'])}: '{x}' }};")
FORMS["go_struct"] = form(lambda r, x: f"cfg := Config{{User: \"{user(r)}\", Password: \"{x}\"}}")
FORMS["csharp_const"] = form(lambda r, x: f"private const string {r.choice(['ApiKey', 'ClientSecret', 'DbPassword'])} = \"{x}\";")
FORMS["rust_const"] = form(lambda r, x: f"const API_SECRET: &str = \"{x}\";")
FORMS["c_define"] = form(lambda r, x: f"#define WIFI_PASSWORD \"{x}\"")
FORMS["wpa_supplicant"] = form(lambda r, x: f"network={{\n  ssid=\"{r.choice(WORDS)}\"\n  psk=\"{x}\"\n}}")
FORMS["aws_credentials_file"] = form(lambda r, x: f"[default]\naws_access_key_id = AKIA{s(r, B32, 16)}\naws_secret_access_key = {x}\nregion = eu-central-1\n", make=lambda r: s(r, B64, 40))
FORMS["pgpass"] = form(lambda r, x: f"{host(r)}:5432:app:{user(r)}:{x}\n", True)
FORMS["pgpassword_prefix"] = form(lambda r, x: f"PGPASSWORD={x} psql -h {host(r)} -U {user(r)} app", True)
FORMS["mysql_cli"] = form(lambda r, x: f"mysql -h {host(r)} -u {user(r)} -p{x} app < dump.sql", True)
FORMS["mysql_cli_long"] = form(lambda r, x: f"mysqldump --user={user(r)} --password={x} app", True)
FORMS["redis_cli"] = form(lambda r, x: f"redis-cli -h {host(r)} -a {x} ping", True)
FORMS["sql_create_user"] = form(lambda r, x: f"CREATE USER {user(r)} {r.choice(['WITH PASSWORD', 'IDENTIFIED BY', 'PASSWORD'])} '{x}';")
FORMS["htpasswd_bcrypt"] = form(lambda r, x: f"{user(r)}:{x}\n", make=lambda r: f"$2y${r.choice(['05', '10', '12'])}$" + s(r, ALNUM + "./", 53))
FORMS["htpasswd_apr1"] = form(lambda r, x: f"{user(r)}:{x}\n", make=lambda r: f"$apr1${s(r, ALNUM + './', 8)}$" + s(r, ALNUM + "./", 22))
FORMS["shadow_line"] = form(lambda r, x: f"{user(r)}:{x}:20240:0:99999:7:::\n", make=lambda r: f"$6${s(r, ALNUM + './', 16)}$" + s(r, ALNUM + "./", 86))
FORMS["sshpass"] = form(lambda r, x: f"sshpass -p '{x}' ssh -o StrictHostKeyChecking=no {user(r)}@{host(r)}")
FORMS["ssh_config_sshpass"] = form(lambda r, x: f"Host jump\n  HostName {host(r)}\n  User {user(r)}\n  ProxyCommand sshpass -p {x} ssh -W %h:%p gw\n", True)
FORMS["ansible_vars"] = form(lambda r, x: f"web1 ansible_host={host(r)} ansible_user={user(r)} {r.choice(['ansible_password', 'ansible_ssh_pass', 'ansible_become_password'])}={x}", True)
FORMS["gradle_properties"] = form(lambda r, x: f"signing.keyId={s(r, HEXU, 8)}\nsigning.password={x}\n", True)
FORMS["proxy_url"] = form(lambda r, x: f"export https_proxy=http://{user(r)}:{x}@{host(r)}:3128", True)
FORMS["ftp_url"] = form(lambda r, x: f"lftp -e mirror ftp://{user(r)}:{x}@{host(r)}/www", True)
FORMS["ldap_bind"] = form(lambda r, x: f"ldapsearch -x -D cn=admin,dc=example,dc=com -w {x} -b dc=example,dc=com", True)
FORMS["openssl_pass"] = form(lambda r, x: f"openssl enc -d -aes-256-cbc -in a.enc -pass pass:{x}", True)
FORMS["github_actions_env"] = form(lambda r, x: f"    env:\n      DEPLOY_TOKEN: {x}\n      NODE_ENV: production\n", make=lambda r: s(r, ALNUM, 40))
FORMS["systemd_environment"] = form(lambda r, x: f"[Service]\nEnvironment=\"APP_SECRET={x}\"\nExecStart=/usr/bin/app\n", True)
FORMS["cli_flag"] = form(lambda r, x: f"./deploy {r.choice(['--password', '--token', '--api-key', '--secret'])}{r.choice([' ', '='])}{x} --env prod", True)
FORMS["prose_password"] = form(lambda r, x: f"Hi, the {r.choice(['admin', 'staging', 'VPN'])} password is {x} and the user is {user(r)}.", True)
FORMS["oauth_form_body"] = form(lambda r, x: f"grant_type=client_credentials&client_id={uuid(r)}&client_secret={x}", True)
FORMS["htdigest_rabbitmq"] = form(lambda r, x: f"default_user = {user(r)}\ndefault_pass = {x}\n", True)
FORMS["s3cfg"] = form(lambda r, x: f"[default]\naccess_key = {s(r, UP + DIG, 20)}\nsecret_key = {x}\n", make=lambda r: s(r, B64, 40))
FORMS["rclone_conf"] = form(lambda r, x: f"[box]\ntype = sftp\nhost = {host(r)}\nuser = {user(r)}\npass = {x}\n", make=lambda r: s(r, URL64, 38))
