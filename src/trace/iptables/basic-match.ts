/** Conditions of iptables rules without a match extension: addresses, interfaces, protocol. */
import type { LooseRule } from "../../kernel/iptables/parser/loose-rule.ts";
import type { AddressMatch, InterfaceMatch, KernelRule } from "../../kernel/iptables/parser/rule-syntax.ts";
import { splitCidr } from "../../net/ip.ts";
import { asked, GO_ON, NO_MATCH, type Step, type StepResult } from "../netfilter/program.ts";
import type { Packet } from "../packet.ts";
import { whichOf, within } from "../question.ts";
import { fits, type Pattern, prefixRange } from "../value.ts";

/** The conditions, in the order in which the tools print them. */
export function basicSteps(rule: Pick<LooseRule, keyof Omit<KernelRule, "matches" | "target">>): Step[] {
  const { source, destination, inInterface, outInterface, protocol } = rule;
  const steps: Step[] = [];
  if (source !== undefined) steps.push(addressStep("-s", source));
  if (destination !== undefined) steps.push(addressStep("-d", destination));
  if (inInterface !== undefined) steps.push(interfaceStep("-i", inInterface));
  if (outInterface !== undefined) steps.push(interfaceStep("-o", outInterface));
  if (protocol !== undefined) steps.push(protocolStep(protocol));
  return steps;
}

const sign = (negated: boolean): string => (negated ? "! " : "");

/** The result of a condition that may be negated. */
export function answer(holds: boolean, negated: boolean): StepResult {
  return holds === negated ? NO_MATCH : GO_ON;
}

function addressStep(option: "-s" | "-d", { cidr, negated }: AddressMatch): Step {
  const { address, length } = splitCidr(cidr);
  const isHost = length === (address.includes(":") ? 128 : 32);
  const range = prefixRange(cidr);
  const of = (packet: Packet) => (option === "-s" ? packet.source : packet.destination);
  return {
    text: `${sign(negated)}${option} ${cidr}`,
    asks: [within(option === "-s" ? "source" : "destination", [range])],
    run(packet) {
      const value = of(packet);
      return answer(isHost ? value === address : fits(range, value), negated);
    },
    observed: (packet) => `the ${option === "-s" ? "source" : "destination"} is ${of(packet)}`,
  };
}

function interfaceStep(option: "-i" | "-o", { name, negated }: InterfaceMatch): Step {
  const beginning = name.endsWith("+") ? name.slice(0, -1) : undefined;
  const pattern: Pattern =
    beginning === undefined ? { kind: "exact", value: name } : { kind: "beginning", text: beginning };
  const verb = option === "-i" ? "comes in" : "leaves";
  const of = (packet: Packet) => (option === "-i" ? packet.inInterface : packet.outInterface);
  return {
    text: `${sign(negated)}${option} ${name}`,
    // The outgoing interface follows from the destination, which the walk reports when it routes.
    asks: option === "-o" ? [] : [within("inInterface", [pattern])],
    run(packet) {
      const value = of(packet);
      if (value === undefined) return asked(`it ${verb} by ${name}`, negated);
      return answer(beginning === undefined ? value === name : value.startsWith(beginning), negated);
    },
    observed(packet) {
      const value = of(packet);
      return value === "" ? `it ${verb} by no interface` : `it ${verb} by ${value ?? "an interface that is not known"}`;
    },
  };
}

function protocolStep({ protocol, negated }: NonNullable<LooseRule["protocol"]>): Step {
  const wanted = protocol === "ipv6-icmp" ? "icmpv6" : protocol;
  return {
    text: `${sign(negated)}-p ${protocol}`,
    asks: [whichOf("protocol", [wanted])],
    run: (packet) => answer(packet.protocol === wanted, negated),
    observed: (packet) => `the protocol is ${packet.protocol}`,
  };
}
