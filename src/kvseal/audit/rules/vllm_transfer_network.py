"""vLLM's own guide: inter-node traffic is insecure by default."""

from kvseal.audit.ask import is_disaggregated, is_engine, listens_widely
from kvseal.audit.cites import VLLM_SECURITY, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, every, some
from kvseal.fleet.facts import Key, Server


def judge(server: Server) -> Judged:
    wide = some((listens_widely(server, Key.KV_IP), listens_widely(server, Key.SIDE_CHANNEL_HOST)))
    return every((is_engine(server, "vllm"), is_disaggregated(server), wide))


RULE = Rule(
    id="vllm-transfer-network",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text(
        "KV transfer listens on the network without authentication",
        "Die KV-Übertragung hört ohne Authentifizierung im Netz",
    ),
    meaning=Text(
        "vLLM's security guide calls all communication between nodes insecure by default: KV "
        "transfer is neither authenticated nor encrypted.",
        "vLLMs Sicherheitshinweise nennen jede Kommunikation zwischen Knoten von sich aus unsicher: "
        "KV-Übertragung ist weder authentifiziert noch verschlüsselt.",
    ),
    fix=Text(
        "Isolate the nodes' network; set kv_ip and VLLM_NIXL_SIDE_CHANNEL_HOST to its addresses, "
        "never 0.0.0.0.",
        "Das Netz der Knoten isolieren; kv_ip und VLLM_NIXL_SIDE_CHANNEL_HOST auf dessen Adressen "
        "setzen, nie auf 0.0.0.0.",
    ),
    sources=(
        VLLM_SECURITY,
        package("vllm", "0.32.0", "vllm/envs.py"),
    ),
    versions="all",
    check=per_server(judge),
)
