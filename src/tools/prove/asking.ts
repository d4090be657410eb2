/** How the specification compares the fields of packets, and reports each comparison. */
import type { IpFamily } from "../../net/ip.ts";
import { prefixPatterns } from "../../trace/facts.ts";
import type { WalkObserver } from "../../trace/netfilter/observer.ts";
import type { Packet } from "../../trace/packet.ts";
import type { Question } from "../../trace/question.ts";
import { fits, type Pattern } from "../../trace/value.ts";
import type { Fate } from "./fate.ts";

export type Ask = WalkObserver["asked"];

export const loopbackOf = (family: IpFamily): Pattern[] =>
  ["127.0.0.0/8", "::1/128"].flatMap((prefix) => prefixPatterns(prefix, family));

export function only(way: string): Fate {
  return new Map([[way, 1]]);
}

export function exactly(values: readonly (string | number)[]): Pattern[] {
  return values.map((value) => ({ kind: "exact", value }));
}

/** Reports the question, and says whether the packet matches one of its keys. */
export function holds(question: Question, packet: Packet, ask: Ask): boolean {
  ask(question, packet);
  const values = question.values(packet) ?? [];
  return question.keys.some(({ patterns }) => patterns.every((pattern, index) => fits(pattern, values[index] ?? "")));
}
