/** What the text of a rule requires of one field: of an address, or else of a port, of a range of addresses or a device. */
import { withoutQuoted } from "../../kernel/iptables/parser/rule-parts.ts";
import { NOWHERE, type RuleTexts } from "../../kernel/iptables/parser/ruleset.ts";
import { parseCidr, splitCidr } from "../../net/ip.ts";
import type { Step } from "../netfilter/program.ts";
import { type KeysOfRule, NEVER, type RuleKey } from "../netfilter/rule-index.ts";
import type { PacketField } from "../question.ts";

/** The start of a rule, as the tools print it. */
const BEGINNING = /^(?:(! )?-s (\S+) )?(?:(! )?-d (\S+) )?(?:(! )?-i (\S+) )?/;
const PORT = /(?<!!) --([ds])port (\d+)(?= |$)/;
const COMMENT = /( ?-m comment --comment (?:"(?:[^"\\]|\\.)*"|\S+))|"(?:[^"\\]|\\.)*"/g;
const VERDICT = /^-j (?:ACCEPT|DROP|RETURN|REJECT(?: --reject-with \S+)?)$/;
/** The steps that compare a field, by their texts. */
const COMPARING: Readonly<Partial<Record<PacketField, RegExp>>> = {
  ...{ source: /^-s /, destination: /^-d /, inInterface: /^-i / },
  ...{ sourcePort: /^-m (?:tcp|udp|sctp) /, destinationPort: /^-m (?:tcp|udp|sctp) / },
};
/** Of each rule. */
export function keysOf(rules: RuleTexts): (index: number) => KeysOfRule {
  const planned = rules.destinationAt?.bind(rules);
  return planned === undefined ? (index) => textKeys(rules.at(index) ?? "") : (index) => plannedKeys(planned(index));
}

function plannedKeys(destination: string | undefined): KeysOfRule {
  if (destination === undefined) return [];
  if (destination === NOWHERE) return NEVER;
  // Not the address ::1.
  const isPort = /^:\d/.test(destination);
  return [
    isPort
      ? { field: "destinationPort", value: Number(destination.slice(1)) }
      : { field: "destination", value: destination },
  ];
}

function textKeys(text: string): RuleKey[] {
  const [, isNotFrom, from, isNotTo, to, isNotBy, by] = BEGINNING.exec(text) ?? [];
  const addresses = [
    isNotTo === undefined && to !== undefined ? addressKey("destination", "-d", to, text) : undefined,
    isNotFrom === undefined && from !== undefined ? addressKey("source", "-s", from, text) : undefined,
  ].filter((key) => key !== undefined);
  if (addresses.some(({ prefix }) => prefix === undefined)) return addresses;
  const port = PORT.exec(withoutQuoted(text));
  if (port !== null) {
    const [option, side, number] = port;
    const field = side === "d" ? "destinationPort" : "sourcePort";
    const rest = text.slice(0, port.index) + text.slice(port.index + option.length);
    return [keyOf(field, Number(number), rest), ...addresses];
  }
  if (addresses.length > 0) return addresses;
  if (isNotBy !== undefined || by === undefined || by.endsWith("+")) return [];
  return [keyOf("inInterface", by, text.replace(`-i ${by} `, ""))];
}

function addressKey(field: PacketField, option: string, cidr: string, text: string): RuleKey | undefined {
  const parsed = parseCidr(cidr);
  if (parsed === undefined) return undefined;
  const { address, length } = splitCidr(parsed);
  const isHost = length === (address.includes(":") ? 128 : 32);
  const key = keyOf(field, address, text.replace(`${option} ${cidr} `, ""));
  return isHost ? key : { ...key, prefix: parsed };
}

function keyOf(field: PacketField, value: string | number, rest: string): RuleKey {
  const same = () => rest.replace(COMMENT, (whole, comment?: string) => (comment === undefined ? whole : "")).trim();
  return { field, value, rest: same, isVerdict: (text) => VERDICT.test(text) };
}

/** The index of the step that compares the field. */
export function comparingStep(steps: readonly Step[], field: PacketField | undefined): number {
  const comparing = field && COMPARING[field];
  return steps.findIndex(({ text }) => comparing?.test(text));
}
