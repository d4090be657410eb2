/**
 * Plans what the ipvs mode would program for a cluster on one node, without a kernel: as input of the tools that could
 * do it (`ip -batch`, `ipset restore`, `ipvsadm -R`, `iptables-restore`), or as data.
 */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import { type ModeRenderer, planAsData, toolName } from "../../contract/rendering.ts";
import type { Rule } from "../../kernel/iptables/rule.ts";
import { ruleLines, ruleSpec, transactionText } from "../../kernel/iptables/rule-text.ts";
import { hostCidr, type IpAddress, type IpFamily, joinHostPort } from "../../net/ip.ts";
import type { Protocol } from "../../net/protocol.ts";
import { jumpRules, savedText, type TableContent } from "../shared/iptables-rules/saved-form.ts";
import type { IpsetDefinition } from "./ipset/ipset.ts";
import {
  IPVS_SERVICE_PERSISTENT,
  IPVS_SERVICE_SCHEDULER_FLAG_1,
  IPVS_SERVICE_SCHEDULER_FLAG_2,
  type VirtualServer,
  virtualServerText,
} from "./kernel/ipvs.ts";
import { DUMMY_DEVICE, SET_IDS, setDefinition } from "./names.ts";
import { planInput } from "./node-facts.ts";
import { CHAINS_OF, JUMP_RULES, planRules, type RulesPlan, rulesOfDenied } from "./plan-rules.ts";
import { type PlannedVirtualServer, planServicePort } from "./plan-service-port.ts";
import { restoreText } from "./rules.ts";
import { realServersOf, realServerText } from "./virtual-server-step.ts";
import { virtualServerDump } from "./walk-virtual-servers.ts";
import { newWanted, partsOf, rulesInput } from "./wanted.ts";

/** A planned node; everything in a fixed order. */
interface IpvsPlan {
  readonly addresses: readonly IpAddress[];
  readonly sets: readonly { readonly definition: IpsetDefinition; readonly entries: readonly string[] }[];
  readonly virtualServers: readonly (PlannedVirtualServer & { readonly servicePort: string })[];
  readonly rules: RulesPlan;
  readonly extent: "whole" | "part";
}

/** Plans a whole cluster. @returns all of it, or the part of one Service (`namespace/name`) */
function planIpvs(node: OfflineNode, kubeProxyConfig: KubeProxyConfig, service?: string): IpvsPlan {
  const { family, state } = node;
  const { config, facts } = planInput(kubeProxyConfig, node);
  const wanted = newWanted();
  /** What to return: everything, or what one Service claims. */
  const shown = service === undefined ? wanted : newWanted();
  for (const [key, port] of state.services) {
    const plan = planServicePort(port, state.endpoints.get(key) ?? [], config, facts);
    const parts = partsOf(plan);
    wanted.put(key, parts);
    if (shown !== wanted && port.name.service === service) shown.put(key, parts);
  }
  return {
    extent: shown === wanted ? "whole" : "part",
    addresses: Array.from(shown.of.addresses.entries(), ([, { value }]) => value).sort(),
    sets: SET_IDS.map((id) => ({
      definition: setDefinition(id, family),
      entries: [...shown.of[id].keys()].sort(),
    })).filter(({ entries }) => shown === wanted || entries.length > 0),
    virtualServers: [...shown.of.virtualServers.keys()].sort().flatMap((key) => {
      // Another Service may own this frontend.
      const winner = wanted.of.virtualServers.effective(key);
      if (winner === undefined || winner.owner !== shown.of.virtualServers.effective(key)?.owner) return [];
      return [{ ...winner.value, servicePort: state.services.get(winner.owner)?.name.text ?? winner.owner }];
    }),
    rules:
      shown === wanted
        ? planRules(config, { ...rulesInput(wanted), unusable: new Set() })
        : { nat: [], filter: rulesOfDenied(rulesInput(shown).deniedVips) },
  };
}

const line = (text: string): string => `${text}\n`;

/** The input of `ip -batch -`. */
function ipInput({ addresses, extent }: IpvsPlan): string {
  const lines = addresses.map((address) => `addr add ${hostCidr(address)} dev ${DUMMY_DEVICE}`);
  const device = extent === "whole" ? [`link add ${DUMMY_DEVICE} type dummy`] : [];
  return [...device, ...lines].map(line).join("");
}

/** The input of `ipset restore`. */
function ipsetInput({ sets }: IpvsPlan): string {
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

const SERVICE_OPTIONS: Readonly<Record<Protocol, string>> = { TCP: "-t", UDP: "-u", SCTP: "--sctp-service" };

/** The input of `ipvsadm -R`, as `ipvsadm -S -n` prints it. */
function ipvsadmInput({ virtualServers }: IpvsPlan): string {
  return virtualServers
    .flatMap((planned) => {
      const { virtualServer } = planned;
      const { protocol, address, port } = virtualServer;
      const service = `${SERVICE_OPTIONS[protocol]} ${joinHostPort(address, port)}`;
      return [
        `-A ${service} ${schedulingText(virtualServer)}`,
        ...realServersOf(planned).map((server) => `-a ${service} -r ${realServerText(server)} -m -w ${server.weight}`),
      ];
    })
    .map(line)
    .join("");
}

function schedulingText({ scheduler, flags, timeoutSeconds }: VirtualServer): string {
  const persistence = (flags & IPVS_SERVICE_PERSISTENT) === 0 ? "" : ` -p ${timeoutSeconds}`;
  const own = [
    (flags & IPVS_SERVICE_SCHEDULER_FLAG_1) === 0 ? [] : `${scheduler}-fallback`,
    (flags & IPVS_SERVICE_SCHEDULER_FLAG_2) === 0 ? [] : `${scheduler}-port`,
  ].flat();
  return `-s ${scheduler}${persistence}${own.length === 0 ? "" : ` -b ${own.join(",")}`}`;
}

/** The input of `iptables-restore --noflush`. */
function iptablesInput({ rules, extent }: IpvsPlan): string {
  if (extent === "whole") return restoreText(rules);
  return (["nat", "filter"] as const)
    .filter((table) => rules[table].length > 0)
    .map((table) => transactionText(table, ruleLines("append", rules[table])))
    .join("");
}

/** The output of `iptables-save` after a full sync. */
function savedInput({ rules, extent }: IpvsPlan, family: IpFamily): string {
  const jumps = extent === "whole" ? JUMP_RULES : [];
  const content = (table: "nat" | "filter"): TableContent => ({
    chains: extent === "whole" ? CHAINS_OF[table] : [],
    rules: [...jumpRules(table, jumps), ...rules[table]],
  });
  return savedText({ filter: content("filter"), nat: content("nat") }, family, extent);
}

/** All four inputs, in the order of use. */
function allInputs(plan: IpvsPlan, iptablesRestore: string): string {
  return [
    ["ip -batch -", ipInput(plan)],
    ["ipset restore", ipsetInput(plan)],
    [`${iptablesRestore} --noflush`, iptablesInput(plan)],
    ["ipvsadm -R", ipvsadmInput(plan)],
  ]
    .filter(([, input]) => plan.extent === "whole" || input !== "")
    .map(([tool, input]) => `# ${tool}\n${input}`)
    .join("\n");
}

/** The plan as plain data, for programs. Keys and lists have a fixed order. */
function planData({ addresses, sets, virtualServers, rules, extent }: IpvsPlan) {
  const data = (table: "nat" | "filter", rule: Rule) => ({ table, ...rule, text: ruleSpec(rule) });
  return {
    device: { name: DUMMY_DEVICE, addresses },
    sets: sets.map(({ definition, entries }) => ({ ...definition, entries })),
    virtualServers: virtualServers.map(({ virtualServer, endpoints, servicePort }) => ({
      text: virtualServerText(virtualServer),
      ...virtualServer,
      servicePort,
      realServers: realServersOf({ endpoints }),
    })),
    jumps: (extent === "whole" ? JUMP_RULES : []).map(({ table, rule }) =>
      data(table === "nat" ? "nat" : "filter", rule),
    ),
    rules: [...rules.nat.map((rule) => data("nat", rule)), ...rules.filter.map((rule) => data("filter", rule))],
  };
}

export type IpvsPlanData = ReturnType<typeof planData>;

export const renderIpvs: ModeRenderer<IpvsPlanData> = async (node, request) => {
  const { config, form, service } = request;
  const plan = planIpvs(node, config, service);
  const restore = toolName(node, "restore");
  const textFor = (tool: string | undefined, text: string) => ({ kind: "text" as const, text, tool });
  switch (form) {
    case "ip":
      return textFor(undefined, ipInput(plan));
    case "ipset":
      return textFor(undefined, ipsetInput(plan));
    case "ipvsadm":
      return textFor(undefined, ipvsadmInput(plan));
    case "virtual-servers":
      return { kind: "dump", dump: virtualServerDump(ipvsadmInput(plan)) };
    case "iptables":
      return textFor(restore, iptablesInput(plan));
    case "iptables-save":
      return textFor(toolName(node, "save"), savedInput(plan, node.family));
    case "json":
      return planAsData(node, request, planData(plan));
    default:
      return textFor(node.family, allInputs(plan, restore));
  }
};
