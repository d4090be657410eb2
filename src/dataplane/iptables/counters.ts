/**
 * Packets that the rules of the iptables mode have counted. nat sees only the first packet of a connection, so packets of a rule
 * are connections. A rule that is written again begins at zero.
 */
import { type Exec, execProcess } from "../../kernel/process.ts";
import { type IpFamily, parseIpAddress } from "../../net/ip.ts";
import { protocolName } from "../../net/protocol.ts";
import { CHAINS, endpointChain } from "../shared/iptables-rules/chain-names.ts";
import { addTo, type Count, type CountedPort, type ModeCounters } from "../traffic.ts";

const TIMEOUT_MS = 60_000;
const TOOLS: Readonly<Record<IpFamily, string>> = { IPv4: "iptables-save", IPv6: "ip6tables-save" };

export const iptablesCounters: ModeCounters = { isEndpointTracked: true, fill: (ports) => fillFromIptables(ports) };

/** @param exec runs the tools of one network namespace. */
async function fillFromIptables(ports: readonly CountedPort[], exec: Exec = execProcess): Promise<readonly string[]> {
  for (const family of new Set(ports.map((port) => port.family))) {
    const file = TOOLS[family];
    const { status, stdout, stderr } = await exec(file, ["-c", "-t", "nat"], { timeoutMs: TIMEOUT_MS });
    if (status !== 0) throw new Error(`${file}: ${stderr.trim().split("\n")[0] ?? ""}`);
    fillFromSaved(
      stdout,
      ports.filter((port) => port.family === family),
    );
  }
  return ["Rules count connections since they were written: those of a Service are written again when it changes."];
}

const RULE = /^\[(\d+):\d+\] -A (\S+) (.*)$/;
const DESTINATION = /-d ([\da-f.:]+)\/(?:32|128) -p (\w+) .*--dport (\d+) -j /;
const NODE_PORT = /-p (\w+) .*--dport (\d+) -j /;

/** @param text of `iptables-save -c -t nat`. */
function fillFromSaved(text: string, ports: readonly CountedPort[]): void {
  const frontends = new Map<string, Count>();
  const chains = new Map<string, Count>();
  for (const { name, frontends: own, endpoints } of ports) {
    for (const { address, port, count } of own) {
      frontends.set(`${address ?? ""} ${protocolName(name.protocol)} ${port}`, count);
    }
    for (const endpoint of endpoints) chains.set(endpointChain(name, endpoint), endpoint.count);
  }
  for (const line of linesOf(text)) {
    const [, packets, chain = "", rule = ""] = RULE.exec(line) ?? [];
    if (packets === undefined) continue;
    const count = chains.get(chain);
    if (count !== undefined && rule.includes(" -j DNAT ")) addTo(count, "counted", Number(packets));
    const place =
      chain === CHAINS.services ? addressIn(rule) : chain === CHAINS.nodePorts ? nodePortIn(rule) : undefined;
    const frontend = place === undefined ? undefined : frontends.get(place);
    if (frontend !== undefined) addTo(frontend, "counted", Number(packets));
  }
}

function addressIn(rule: string): string | undefined {
  const [, address = "", protocol, port] = DESTINATION.exec(rule) ?? [];
  return protocol === undefined ? undefined : `${parseIpAddress(address) ?? ""} ${protocol} ${port}`;
}

function nodePortIn(rule: string): string | undefined {
  const [, protocol, port] = NODE_PORT.exec(rule) ?? [];
  return protocol === undefined ? undefined : ` ${protocol} ${port}`;
}

function* linesOf(text: string): Generator<string, void> {
  for (let at = 0; at < text.length; ) {
    const end = text.indexOf("\n", at);
    const next = end < 0 ? text.length : end;
    yield text.slice(at, next);
    at = next + 1;
  }
}
