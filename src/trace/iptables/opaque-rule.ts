/**
 * Rules with a match, an option or a target that is not understood. What stands before the first extension is still asked;
 * whether the rest holds is a question, and the target is obeyed where it is a known word or a chain.
 */

import { RuleSyntaxError, splitWords } from "../../kernel/iptables/parser/rule-options.ts";
import { targetOf } from "../../kernel/iptables/parser/rule-parts.ts";
import { parseRule } from "../../kernel/iptables/parser/rule-syntax.ts";
import type { IpFamily } from "../../net/ip.ts";
import { GO_ON, NO_MATCH, type Step, type StepResult, type Verdict } from "../netfilter/program.ts";
import { basicSteps } from "./basic-match.ts";

/** Targets that leave the packet to the next rule, and nothing that is walked depends on. */
const WITHOUT_EFFECT = new Set([
  "LOG",
  "NFLOG",
  "ULOG",
  "CONNMARK",
  "CONNSECMARK",
  "SECMARK",
  "CT",
  "TRACE",
  "AUDIT",
  "TCPMSS",
  "CHECKSUM",
  "DSCP",
  "TOS",
  "CLASSIFY",
  "SET",
  "LED",
  "RATEEST",
]);

/** @param text of the rule, without `-A CHAIN`. @param hasChain whether the table has a chain of this name. */
export function opaqueSteps(text: string, family: IpFamily, hasChain: (name: string) => boolean): Step[] {
  const question: StepResult = { kind: "unknown", question: `"${text}" matches`, yes: GO_ON, no: NO_MATCH };
  const target = targetOf(text);
  const verdict = target === undefined ? undefined : verdictOf(target, text, hasChain);
  const result: StepResult = verdict ?? { kind: "lost", because: `the target ${target} is not understood` };
  return [
    ...leadingSteps(text, family),
    { text: "what follows is not understood", run: () => question },
    ...(target === undefined || WITHOUT_EFFECT.has(target)
      ? []
      : [{ text: target, asks: [], isAction: true, run: () => result }]),
  ];
}

/** The tools print addresses, interfaces and the protocol first. */
function leadingSteps(text: string, family: IpFamily): Step[] {
  try {
    const words = splitWords(text);
    const end = words.findIndex((word) => /^-[mjg]$|^--/.test(word));
    return basicSteps(parseRule(words.slice(0, end < 0 ? words.length : end), family));
  } catch (error) {
    if (error instanceof RuleSyntaxError) return [];
    throw error;
  }
}

const VERDICTS: Readonly<Record<string, Verdict>> = {
  ACCEPT: { kind: "accept" },
  DROP: { kind: "drop" },
  RETURN: { kind: "return" },
  REJECT: { kind: "reject", answer: "icmp-port-unreachable" },
};

function verdictOf(target: string, text: string, hasChain: (name: string) => boolean): StepResult | undefined {
  const known = Object.hasOwn(VERDICTS, target) ? VERDICTS[target] : undefined;
  if (known !== undefined) return { kind: "verdict", verdict: known };
  const words = text.split(" ");
  const kind = words[words.indexOf(target) - 1] === "-g" ? "goto" : "jump";
  return hasChain(target) ? { kind: "verdict", verdict: { kind, chain: target } } : undefined;
}
