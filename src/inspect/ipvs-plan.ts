/**
 * What the ipvs mode would program for a cluster on one node, without a kernel: as the input of the tools that could do it
 * (`ip -batch`, `ipset restore`, `ipvsadm -R`, `iptables-restore`), or as data. Pure.
 */
import { DUMMY_DEVICE, SET_IDS, setDefinition } from "../backends/ipvs/names.ts";
import { nodeAddressFacts } from "../backends/ipvs/node-facts.ts";
import type { PlanConfig, PlanFacts } from "../backends/ipvs/plan-options.ts";
import { JUMP_RULES, planRules, type RulesPlan } from "../backends/ipvs/plan-rules.ts";
import { type PlannedVirtualServer, planServicePort } from "../backends/ipvs/plan-service-port.ts";
import { restoreText } from "../backends/ipvs/rules.ts";
import { WEIGHT } from "../backends/ipvs/virtual-server-step.ts";
import { WantedState } from "../backends/ipvs/wanted-state.ts";
import type { IpsetDefinition } from "../kernel/ipset/ipset.ts";
import type { Rule } from "../kernel/iptables/rule.ts";
import { ruleSpec } from "../kernel/iptables/rule-text.ts";
import {
  IPVS_SERVICE_PERSISTENT,
  IPVS_SERVICE_SCHEDULER_FLAG_2,
  type IpvsProtocol,
  type VirtualServer,
  virtualServerText,
} from "../kernel/ipvs/ipvs.ts";
import { hostCidr, type IpAddress, joinHostPort } from "../net/ip.ts";
import type { OfflineNode } from "./offline-node.ts";

/** A planned node; everything in a fixed order. */
export interface IpvsPlan {
  readonly addresses: readonly IpAddress[];
  readonly sets: readonly { readonly definition: IpsetDefinition; readonly entries: readonly string[] }[];
  readonly virtualServers: readonly (PlannedVirtualServer & { readonly servicePort: string })[];
  readonly rules: RulesPlan;
}

/** Plans a whole cluster. */
export function planIpvs(
  node: OfflineNode,
  options: Pick<PlanConfig, "masqueradeAll" | "masqueradeMark" | "scheduler">,
): IpvsPlan {
  const { family, state } = node;
  const config: PlanConfig = {
    ...options,
    family,
    nodeName: node.name,
    nodeIP: node.nodeIP,
    detector: node.detector,
    hasRandomFully: true,
  };
  const wanted = new WantedState();
  for (const [key, port] of state.services) {
    wanted.put(key, port.name.service, planServicePort(port, state.endpoints.get(key) ?? [], config, factsOf(node)));
  }
  return {
    addresses: Array.from(wanted.addresses.winners(), ({ value }) => value).sort(),
    sets: SET_IDS.map((id) => ({
      definition: setDefinition(id, family),
      entries: [...wanted.entries(id).keys()].sort(),
    })),
    virtualServers: [...wanted.virtualServers.keys()].sort().flatMap((key) => {
      const winner = wanted.virtualServers.winner(key);
      if (winner === undefined) return [];
      return [{ ...winner.value, servicePort: state.services.get(winner.owner)?.name.text ?? winner.owner }];
    }),
    rules: planRules(config, {
      filled: wanted.filledSets(),
      unusable: new Set(),
      deniedVips: wanted.deniedVips(),
    }),
  };
}

/** Without a kernel, the node's addresses are those that its object lists. */
function factsOf({ zone, hostAddresses, nodePortAddresses }: OfflineNode): PlanFacts {
  const addresses = hostAddresses.map((address) => ({ address, prefixLength: 0, link: "" }));
  const { nodeAddresses, nodePortIPs } = nodeAddressFacts(addresses, nodePortAddresses);
  return { zone, nodeAddresses, nodePortIPs };
}

const line = (text: string): string => `${text}\n`;

/** The input of `ip -batch -`. */
export function ipInput({ addresses }: IpvsPlan): string {
  const lines = addresses.map((address) => `addr add ${hostCidr(address)} dev ${DUMMY_DEVICE}`);
  return [`link add ${DUMMY_DEVICE} type dummy`, ...lines].map(line).join("");
}

/** The input of `ipset restore`. */
export function ipsetInput({ sets }: IpvsPlan): string {
  return sets
    .flatMap(({ definition: { name, type, family }, entries }) => [
      family === undefined
        ? `create ${name} ${type} range 0-65535`
        : `create ${name} ${type} family ${family === "IPv4" ? "inet" : "inet6"} hashsize 1024 maxelem 65536`,
      ...entries.map((entry) => `add ${name} ${entry}`),
    ])
    .map(line)
    .join("");
}

const SERVICE_OPTIONS: Readonly<Record<IpvsProtocol, string>> = { TCP: "-t", UDP: "-u", SCTP: "--sctp-service" };

/** The input of `ipvsadm -R`, as `ipvsadm -S -n` prints it. */
export function ipvsadmInput({ virtualServers }: IpvsPlan): string {
  return virtualServers
    .flatMap(({ virtualServer, endpoints }) => {
      const { protocol, address, port } = virtualServer;
      const service = `${SERVICE_OPTIONS[protocol]} ${joinHostPort(address, port)}`;
      return [
        `-A ${service} ${schedulingText(virtualServer)}`,
        ...endpoints.map(({ text }) => `-a ${service} -r ${text} -m -w ${WEIGHT}`),
      ];
    })
    .map(line)
    .join("");
}

function schedulingText({ scheduler, flags, timeoutSeconds }: VirtualServer): string {
  const persistence = (flags & IPVS_SERVICE_PERSISTENT) === 0 ? "" : ` -p ${timeoutSeconds}`;
  const schedulerFlag = (flags & IPVS_SERVICE_SCHEDULER_FLAG_2) === 0 ? "" : ` -b ${scheduler}-port`;
  return `-s ${scheduler}${persistence}${schedulerFlag}`;
}

/** The input of `iptables-restore --noflush`. */
export function iptablesInput({ rules }: IpvsPlan): string {
  return restoreText(rules);
}

/** All four, one after the other, in the order in which they could be used. */
export function allInputs(plan: IpvsPlan, iptablesRestore: string): string {
  return [
    ["ip -batch -", ipInput(plan)],
    ["ipset restore", ipsetInput(plan)],
    [`${iptablesRestore} --noflush`, iptablesInput(plan)],
    ["ipvsadm -R", ipvsadmInput(plan)],
  ]
    .map(([tool, input]) => `# ${tool}\n${input}`)
    .join("\n");
}

/** The plan as plain data, for programs. Keys and lists come in a fixed order. */
export function planData({ addresses, sets, virtualServers, rules }: IpvsPlan) {
  const data = (table: "nat" | "filter", rule: Rule) => ({ table, ...rule, text: ruleSpec(rule) });
  return {
    device: { name: DUMMY_DEVICE, addresses },
    sets: sets.map(({ definition, entries }) => ({ ...definition, entries })),
    virtualServers: virtualServers.map(({ virtualServer, endpoints, servicePort }) => ({
      text: virtualServerText(virtualServer),
      ...virtualServer,
      servicePort,
      realServers: endpoints.map(({ ip: address, port }) => ({ address, port, weight: WEIGHT })),
    })),
    jumps: JUMP_RULES.map(({ table, rule }) => data(table === "nat" ? "nat" : "filter", rule)),
    rules: [...rules.nat.map((rule) => data("nat", rule)), ...rules.filter.map((rule) => data("filter", rule))],
  };
}
