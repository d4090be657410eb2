/** Reports what the path of a packet depends on, to find which other packets take the same path. */
import type { Packet } from "../packet.ts";
import { fieldsQuestion, type Question } from "../question.ts";
import type { Pattern } from "../value.ts";
import type { Chain, Rule, Step } from "./program.ts";

/** So many rules are a long way: on most nodes a packet meets fewer. */
export const LONG_WAY = 200;

/** Gets everything that a walk depends on, before the walk uses it. */
export interface WalkObserver {
  /** @param chain where the packet is, behind {@link LONG_WAY} rules of other programs. @default it is not */
  asked(question: Question, packet: Packet, chain?: string): void;
  /** The packet has met {@link LONG_WAY} rules and meets another. */
  isFar?(table: string, chain: Chain, packet: Packet): void;
  /** The walk depends on something that no question expresses. @param what it is, in words. */
  unclear(what: string): void;
}

/** Reports what a chain uses to find the rules that may match, from this one on. */
export function tellOfChain(
  observer: WalkObserver,
  { name, asks, firstCandidate }: Chain,
  packet: Packet,
  index: number,
): void {
  if (firstCandidate === undefined) return;
  if (asks === undefined) observer.unclear(`how ${name} finds its rules`);
  for (const question of asks?.(index) ?? []) observer.asked(question, packet);
}

/** Reports what a step of a rule looks at. */
export function tellOfStep(observer: WalkObserver, { asks, text }: Step, rule: Rule, packet: Packet): void {
  if (asks === undefined) observer.unclear(`"${text}" in the rule "${rule.text}"`);
  for (const question of asks ?? []) observer.asked(question, packet);
}

/** Reports a destination translation: it changes nothing for packets that already have what the rule names. */
export function tellOfChange(observer: WalkObserver, before: Packet, after: Packet | undefined): void {
  if (after === undefined) return;
  const isDecided = after.isDestinationDecided !== before.isDestinationDecided;
  if (before.destination === after.destination && !isDecided) return;
  const fields = isDecided ? after.decided : (["destination"] as const);
  const patterns = fields.map((field): Pattern => ({ kind: "exact", value: after[field] ?? 0 }));
  observer.asked(fieldsQuestion(fields, [{ patterns, outcome: "" }]), before);
}
